/* SPDX-License-Identifier: PostgreSQL */
/*
 * networks.c: lists of networks in CIDR notation (RFC 4632, RFC 4291).
 *
 * An IPv4 address is kept as the IPv6 address that is mapped to it
 * (::ffff:0:0/96), so that both ways to write it meet the same rule.  What
 * is denied is denied in the forms, too, that gateways translate: NAT64
 * (RFC 6052), 6to4 (RFC 3056) and IPv4-compatible (RFC 4291); they count as
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

/* The IPv4 address within an IPv6 address, as a mapped one; false: it has none. */
static bool
networks_embedded(const unsigned char *address, unsigned char *mapped)
{
	static const unsigned char nat64[12] = {0, 0x64, 0xff, 0x9b};
	static const unsigned char compatible[12] = {0};
	const unsigned char *ipv4;

	if (memcmp(address, nat64, 12) == 0 || memcmp(address, compatible, 12) == 0)
		ipv4 = address + 12;
	else if (address[0] == 0x20 && address[1] == 0x02)
		ipv4 = address + 2;
	else
		return false;
	memcpy(mapped, networks_mapped, 12);
	memcpy(mapped + 12, ipv4, 4);
	return true;
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
	unsigned char mapped[16];

	return networks_contain(&networks_of[SAS_NETWORKS_DENIED], address) ||
		(networks_embedded(address, mapped) && networks_contain(&networks_of[SAS_NETWORKS_DENIED], mapped));
}

static const char *
networks_refuse(unsigned char *address)
{
	if (address != NULL)
		networks_resolve_unspecified(address);
	if (address == NULL ? networks_of[SAS_NETWORKS_DENIED].n > 0 : networks_denied(address))
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
