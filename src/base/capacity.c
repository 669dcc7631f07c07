/* SPDX-License-Identifier: PostgreSQL */
/*
 * capacity.c: how many infinite tasks a worker hosts where nobody says so.
 *
 * An idle connection of a stream takes up to 128 kB with TLS.  The limit of
 * open files is another matter: see sockets.c.
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "base/capacity.h"
#include "base/settings.h"

/* The part of the memory that is for infinite tasks, and what one of them takes. */
#define SAS_MEMORY_SHARE 8
#define SAS_MEMORY_OF_WATCH (128 * 1024)

#define SAS_FEWEST_WATCHES 100
#define SAS_MOST_WATCHES 100000

/* The number in the first line of a file; -1: there is no such file, or it says something else ("max"). */
static int64
capacity_read(const char *path)
{
	FILE	   *file = AllocateFile(path, "r");
	char		line[64];
	int64		n = -1;
	char	   *end;

	if (file == NULL)
		return -1;
	if (fgets(line, sizeof(line), file) != NULL)
	{
		n = strtoi64(line, &end, 10);
		if (end == line || (*end != '\n' && *end != '\0'))
			n = -1;
	}
	FreeFile(file);
	return n;
}

/* The lowest limit on the way from this control group to the root, if it is lower than this one. */
static int64
capacity_of_group(const char *root, char *group, const char *name, int64 lowest)
{
	for (;;)
	{
		char	   *slash;
		char		path[MAXPGPATH];
		int64		limit;

		snprintf(path, sizeof(path), "%s%s/%s", root, group, name);
		limit = capacity_read(path);
		if (limit > 0 && limit < lowest)
			lowest = limit;
		slash = strrchr(group, '/');
		if (slash == NULL)
			return lowest;
		*slash = '\0';
	}
}

/* The memory of the machine, or what the control group of this process may use of it. */
static int64
capacity_memory(void)
{
	int64		memory = (int64) sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	FILE	   *file = AllocateFile("/proc/self/cgroup", "r");
	char		line[MAXPGPATH];

	if (file == NULL)
		return memory;
	/* a line is "number:controllers:/group"; version 2 has one without controllers */
	while (fgets(line, sizeof(line), file) != NULL)
	{
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

		if (group == NULL)
			continue;
		*group++ = '\0';
		controllers++;
		group[strcspn(group, "\n")] = '\0';
		if (controllers[0] == '\0')
			memory = capacity_of_group("/sys/fs/cgroup", group, "memory.max", memory);
		else if (strcmp(controllers, "memory") == 0)
			memory = capacity_of_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", memory);
	}
	FreeFile(file);
	return memory;
}

int
sas_base_capacity_watches(void)
{
	int64		n;

	if (sas_base_watch_slots >= 0)
		return sas_base_watch_slots;
	n = capacity_memory() / SAS_MEMORY_SHARE / SAS_MEMORY_OF_WATCH / Max(sas_base_agents, 1);
	return (int) Min(Max(n, SAS_FEWEST_WATCHES), SAS_MOST_WATCHES);
}
