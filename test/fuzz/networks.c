/* SPDX-License-Identifier: PostgreSQL */
/*
 * networks.c: lists of networks (sas.deny_networks) and addresses. The input is
 * a list and an address, a line each. A list that can be read, or the place
 * where it cannot; what a list allows and denies is not both.
 *
 * Sources: src/base/networks.c
 */
#include "base/networks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *list = malloc(size + 1);
	char	   *ip;
	const char *at = NULL;
	size_t		len = 0;

	memcpy(list, data, size);
	list[size] = '\0';
	ip = strchr(list, '\n');
	if (ip != NULL)
		*ip++ = '\0';
	else
		ip = list + strlen(list);
	if (sas_base_networks_check(list, &at, &len))
	{
		sas_base_networks_assign(SAS_NETWORKS_ALLOWED, "");
		sas_base_networks_assign(SAS_NETWORKS_DENIED, list);
		(void) sas_base_networks_refuse_text(ip);
		sas_base_networks_assign(SAS_NETWORKS_ALLOWED, list);
		/* denied and allowed: denied */
		if (sas_base_networks_refuse_text(ip) == NULL && *list != '\0' && strspn(list, ", \t\n\v\f\r") != strlen(list))
			abort();
	}
	else if (at == NULL || at < list || at + len > list + strlen(list))
		abort();
	free(list);
	return 0;
}
