/* SPDX-License-Identifier: PostgreSQL */
/*
 * networks.c: lists of networks in CIDR notation (RFC 4632, RFC 4291).
 *
 * An IPv4 address is kept as the IPv6 address that is mapped to it
 * (::ffff:0:0/96), so that both ways to write it meet the same rule.  What
 * is denied is denied in the forms, too, that gateways translate: NAT64
 * (RFC 6052, RFC 8215), IPv4-translated (RFC 2765), 6to4 (RFC 3056), ISATAP
 * (RFC 5214), Teredo (RFC 4380) and IPv4-compatible (RFC 4291); they count as
 * allowed by their own network only.  A connection to the unspecified address
 * reaches this machine.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/networks.h"

typedef struct SasNetwork
{
	unsigned char address[16];
	int			bits;
} SasNetwork;

typedef struct SasNetworks
{
	int			n;
	SasNetwork	networks[SAS_MAX_NETWORKS];
} SasNetworks;

unsigned	sas_base_networks_generation = 0;

static SasNetworks networks_of[2];

static const unsigned char networks_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* An address as text; returns how many bits of its own it has: 32, 128; 0: it is none. */
static int
networks_read_address(const char *text, unsigned char *address)
{
	if (inet_pton(AF_INET, text, address + 12) == 1)
	{
		memcpy(address, networks_mapped, 12);
		return 32;
	}
	return inet_pton(AF_INET6, text, address) == 1 ? 128 : 0;
}

static bool
networks_read_one(const char *text, size_t len, SasNetwork *network)
{
	char		copy[64];
	char	   *slash;
	char	   *end;
	int			own;
	long		bits;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	slash = strchr(copy, '/');
	if (slash != NULL)
		*slash = '\0';
	own = networks_read_address(copy, network->address);
	if (own == 0)
		return false;
	bits = own;
	if (slash != NULL)
	{
		if (slash[1] < '0' || slash[1] > '9')
			return false;
		bits = strtol(slash + 1, &end, 10);
		if (*end != '\0' || bits > own)
			return false;
	}
	network->bits = (int) bits + 128 - own;
	return true;
}

/* networks NULL: only checks the text. */
static bool
networks_read(const char *list, SasNetworks *networks, const char **at, size_t *len)
{
	int			n = 0;

	for (const char *p = list + strspn(list, ", \t\n"); *p != '\0'; p += strspn(p, ", \t\n"))
	{
		SasNetwork	network;

		*at = p;
		*len = strcspn(p, ", \t\n");
		if (n == SAS_MAX_NETWORKS || !networks_read_one(p, *len, &network))
			return false;
		if (networks != NULL)
			networks->networks[n] = network;
		n++;
		p += *len;
	}
	if (networks != NULL)
		networks->n = n;
	return true;
}

bool
sas_base_networks_check(const char *list, const char **at, size_t *len)
{
	return networks_read(list, NULL, at, len);
}

void
sas_base_networks_assign(SasNetworksRule rule, const char *list)
{
	const char *at;
	size_t		len;

	(void) networks_read(list, &networks_of[rule], &at, &len);
	sas_base_networks_generation++;
}

static bool
networks_contain(const SasNetworks *networks, const unsigned char *address)
{
	for (int i = 0; i < networks->n; i++)
	{
		const SasNetwork *network = &networks->networks[i];
		int			bytes = network->bits / 8;
		int			rest = network->bits % 8;

		if (memcmp(network->address, address, bytes) == 0 &&
			(rest == 0 || ((network->address[bytes] ^ address[bytes]) >> (8 - rest)) == 0))
			return true;
	}
	return false;
}

/* Where IPv6 addresses contain IPv4 addresses: they begin so, after the bytes in which they may differ. */
static const struct
{
	unsigned char begin[14];
	int			free;			/* so many bytes before are not compared */
	int			compared;
	int			at[4];			/* the bytes of the IPv4 address */
	unsigned char inverted;
}			networks_forms[] = {
	{{0}, 0, 12, {12, 13, 14, 15}, 0},	/* IPv4-compatible */
	{{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 0, 12, {12, 13, 14, 15}, 0},	/* IPv4-translated */
	{{0, 0x64, 0xff, 0x9b}, 0, 12, {12, 13, 14, 15}, 0},	/* NAT64 */
	{{0, 0x64, 0xff, 0x9b, 0, 1}, 0, 6, {12, 13, 14, 15}, 0},	/* NAT64 of one's own, by the length of its prefix */
	{{0, 0x64, 0xff, 0x9b, 0, 1}, 0, 6, {6, 7, 9, 10}, 0},
	{{0, 0x64, 0xff, 0x9b, 0, 1}, 0, 6, {7, 9, 10, 11}, 0},
	{{0, 0x64, 0xff, 0x9b, 0, 1}, 0, 6, {9, 10, 11, 12}, 0},
	{{0x20, 0x02}, 0, 2, {2, 3, 4, 5}, 0},	/* 6to4 */
	{{0x20, 0x01, 0, 0}, 0, 4, {12, 13, 14, 15}, 0xff},	/* Teredo */
	{{0, 0, 0x5e, 0xfe}, 8, 4, {12, 13, 14, 15}, 0},	/* ISATAP */
	{{2, 0, 0x5e, 0xfe}, 8, 4, {12, 13, 14, 15}, 0}
};

/* Is an IPv4 address denied that this IPv6 address contains?  None begins with a zero, as ::1 would. */
static bool
networks_deny_within(const unsigned char *address)
{
	unsigned char mapped[16];

	memcpy(mapped, networks_mapped, 12);
	for (size_t i = 0; i < sizeof(networks_forms) / sizeof(networks_forms[0]); i++)
	{
		if (memcmp(address + networks_forms[i].free, networks_forms[i].begin, networks_forms[i].compared) != 0)
			continue;
		for (int k = 0; k < 4; k++)
			mapped[12 + k] = address[networks_forms[i].at[k]] ^ networks_forms[i].inverted;
		if (mapped[12] != 0 && networks_contain(&networks_of[SAS_NETWORKS_DENIED], mapped))
			return true;
	}
	return false;
}

/* Of 0.0.0.0 and ::, what a connection to it reaches. */
static void
networks_resolve_unspecified(unsigned char *address)
{
	static const unsigned char any[16] = {0};
	static const unsigned char any_mapped[4] = {0};

	if (memcmp(address, any, 16) == 0)
		address[15] = 1;
	else if (memcmp(address, networks_mapped, 12) == 0 && memcmp(address + 12, any_mapped, 4) == 0)
	{
		address[12] = 127;
		address[15] = 1;
	}
}

static bool
networks_denied(const unsigned char *address)
{
	return networks_contain(&networks_of[SAS_NETWORKS_DENIED], address) || networks_deny_within(address);
}

/* The unspecified address is denied by its own network, too. */
static const char *
networks_refuse(unsigned char *address)
{
	bool		denied = address == NULL ? networks_of[SAS_NETWORKS_DENIED].n > 0 : networks_denied(address);

	if (address != NULL)
	{
		networks_resolve_unspecified(address);
		denied = denied || networks_denied(address);
	}
	if (denied)
		return "sas.deny_networks";
	if (networks_of[SAS_NETWORKS_ALLOWED].n > 0 && (address == NULL || !networks_contain(&networks_of[SAS_NETWORKS_ALLOWED], address)))
		return "sas.allow_networks";
	return NULL;
}

const char *
sas_base_networks_refuse(const struct sockaddr *address)
{
	unsigned char bytes[16];

	switch (address->sa_family)
	{
		case AF_INET:
			memcpy(bytes, networks_mapped, 12);
			memcpy(bytes + 12, &((const struct sockaddr_in *) address)->sin_addr, 4);
			return networks_refuse(bytes);
		case AF_INET6:
			memcpy(bytes, &((const struct sockaddr_in6 *) address)->sin6_addr, 16);
			return networks_refuse(bytes);
		default:
			return networks_refuse(NULL);
	}
}

const char *
sas_base_networks_refuse_text(const char *ip)
{
	unsigned char bytes[16];
	char		copy[64];

	/* the zone of a link-local address is not part of it */
	snprintf(copy, sizeof(copy), "%s", ip);
	copy[strcspn(copy, "%")] = '\0';
	return networks_refuse(networks_read_address(copy, bytes) > 0 ? bytes : NULL);
}
