/* SPDX-License-Identifier: PostgreSQL */
/*
 * names.c
 *	  For LD_PRELOAD: the names of test/t/137_remote_faults.pl.
 *
 * hang.invalid takes a minute, none.invalid is not known, moves.invalid has
 * the address that stands in the file SAS_NAMES.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*Lookup) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

int
getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	Lookup		lookup = (Lookup) dlsym(RTLD_NEXT, "getaddrinfo");
	char		address[64] = "";
	FILE	   *file;

	if (name != NULL && strcmp(name, "hang.invalid") == 0)
	{
		sleep(60);
		return EAI_AGAIN;
	}
	if (name != NULL && strcmp(name, "none.invalid") == 0)
		return EAI_NONAME;
	if (name != NULL && strcmp(name, "moves.invalid") == 0)
	{
		file = fopen(getenv("SAS_NAMES"), "r");
		if (file == NULL || fscanf(file, "%63s", address) != 1)
			return EAI_AGAIN;
		fclose(file);
		name = address;
	}
	return lookup(name, service, hints, result);
}
