/* SPDX-License-Identifier: PostgreSQL */
/*
 * names.c
 *	  For LD_PRELOAD: the names of test/t/137_remote_faults.pl and
 *	  590_several_addresses.pl.
 *
 * hang.invalid takes a minute, none.invalid is not known, moves.invalid has
 * the addresses that stand in the file SAS_NAMES, in their order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*Lookup) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* The addresses of the file, one after the other. */
static int
names_in_file(Lookup lookup, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	FILE	   *file = fopen(getenv("SAS_NAMES"), "r");
	char		address[64];
	int			failed = EAI_AGAIN;

	*result = NULL;
	while (file != NULL && fscanf(file, "%63s", address) == 1)
	{
		failed = lookup(address, service, hints, result);
		if (failed != 0)
			break;
		while (*result != NULL)
			result = &(*result)->ai_next;
	}
	if (file != NULL)
		fclose(file);
	return failed;
}

int
getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	Lookup		lookup = (Lookup) dlsym(RTLD_NEXT, "getaddrinfo");

	if (name != NULL && strcmp(name, "hang.invalid") == 0)
	{
		sleep(60);
		return EAI_AGAIN;
	}
	if (name != NULL && strcmp(name, "none.invalid") == 0)
		return EAI_NONAME;
	if (name != NULL && strcmp(name, "moves.invalid") == 0)
		return names_in_file(lookup, service, hints, result);
	return lookup(name, service, hints, result);
}
