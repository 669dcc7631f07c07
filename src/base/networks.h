/* SPDX-License-Identifier: PostgreSQL */
/*
 * networks.h: which addresses workers may connect to: sas.deny_networks and
 * sas.allow_networks.
 *
 * Plain C: transport asks from within callbacks of libcurl, where nothing may
 * raise.
 */
#ifndef SAS_BASE_NETWORKS_H
#define SAS_BASE_NETWORKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* Link-local addresses, and those at which clouds tell a machine its credentials. */
#define SAS_DENY_NETWORKS "169.254.0.0/16, fe80::/10, fd00:ec2::254, fd00:ec2::23, fd20:ce::254, fd00:42::42, " \
	"fd00:a9fe:a9fe::1, 168.63.129.16, 192.0.0.192, 100.100.100.200"

/* networks in one setting */
#define SAS_MAX_NETWORKS 256

typedef enum SasNetworksRule
{
	SAS_NETWORKS_DENIED,
	SAS_NETWORKS_ALLOWED
} SasNetworksRule;

/* Can this list be read? Else the part that cannot is [*at, *at + *len). */
extern bool sas_base_networks_check(const char *list, const char **at, size_t *len);

/* The rule holds from now on. The list has been checked. */
extern void sas_base_networks_assign(SasNetworksRule rule, const char *list);

/* Counts assignments: what was connected before is to be asked about again. */
extern unsigned sas_base_networks_generation;

/* The setting that forbids to connect to this address, or NULL. An address that cannot be read is not allowed. */
extern const char *sas_base_networks_refuse(const struct sockaddr *address);
extern const char *sas_base_networks_refuse_text(const char *ip);

#endif							/* SAS_BASE_NETWORKS_H */
