/* SPDX-License-Identifier: PostgreSQL */
/*
 * place.c: what tells a copy of a server from the server itself.
 *
 * System identifier and database oid are in the catalogs. Two things are
 * only there when the postmaster starts:
 *
 *	standby.signal	the server is a standby. It is removed at promotion, so
 *					the postmaster remembers it; a crash of a child process
 *					does not change that. The launcher writes the place to a
 *					file, for a server that ends before each database has
 *					noted it (sql/base/place.sql). The file names timeline
 *					and backup: a copy of the file is of no use to a copy of
 *					the server.
 *	backup_label	the data directory is a base backup. Without a signal
 *					file it begins no new timeline. PostgreSQL keeps the file
 *					as backup_label.old.
 *
 * The names of these files have not changed from PostgreSQL 12 to 18.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "pgstat.h"
#include "storage/fd.h"

#include "base/place.h"

#define PLACE_FILE PGSTAT_STAT_PERMANENT_DIRECTORY "/sas.place"
#define PLACE_LINE 256
#define PLACE_LSN "START WAL LOCATION: "
#define PLACE_TIME "START TIME: "

static bool place_noted = false;
static bool place_continues = false;
static char place_backup[2 * PLACE_LINE] = "";
static char place_promoted[3 * PLACE_LINE] = "";	/* what the file says */

/* Appends what follows the prefix, up to the end of the line, and of its first word if that is wanted. */
static void
place_append(const char *line, const char *prefix, const char *ends)
{
	const char *from = line + strlen(prefix);
	size_t		length;

	if (strncmp(line, prefix, strlen(prefix)) != 0)
		return;
	length = strcspn(from, ends);
	if (place_backup[0] != '\0')
		strlcat(place_backup, " ", sizeof(place_backup));
	strlcat(place_backup, pnstrdup(from, length), sizeof(place_backup));
}

static bool
place_read_label(const char *path)
{
	FILE	   *file = AllocateFile(path, "r");
	char		line[PLACE_LINE];

	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		place_append(line, PLACE_LSN, " \n");
		place_append(line, PLACE_TIME, "\n");
	}
	FreeFile(file);
	return true;
}

static void
place_read_promoted(void)
{
	FILE	   *file = AllocateFile(PLACE_FILE, "r");

	if (file == NULL)
		return;
	if (fgets(place_promoted, sizeof(place_promoted), file) == NULL)
		place_promoted[0] = '\0';
	FreeFile(file);
}

/* The working directory is the data directory. */
void
sas_base_place_note(void)
{
	place_noted = true;
	place_continues = access("standby.signal", F_OK) == 0;
	if (!place_read_label("backup_label"))
		(void) place_read_label("backup_label.old");
	place_read_promoted();
}

/* This place, in words. */
static const char *
place_name(void)
{
	return psprintf(UINT64_FORMAT " %u %s\n", GetSystemIdentifier(), sas_base_place_timeline(), place_backup);
}

void
sas_base_place_write(void)
{
	const char *name = place_name();
	FILE	   *file;

	if (!place_continues || strcmp(name, place_promoted) == 0)
		return;
	file = AllocateFile(PLACE_FILE ".new", "w");
	if (file == NULL || fputs(name, file) == EOF || FreeFile(file) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", PLACE_FILE ".new")));
	else
		(void) durable_rename(PLACE_FILE ".new", PLACE_FILE, LOG);
}

const char *
sas_base_place_backup(void)
{
	return place_backup;
}

bool
sas_base_place_continues(void)
{
	return place_continues || !place_noted || RecoveryInProgress() ||
		(place_promoted[0] != '\0' && strcmp(place_name(), place_promoted) == 0);
}

TimeLineID
sas_base_place_timeline(void)
{
	TimeLineID	timeline;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&timeline);
	return timeline;
}
