/* SPDX-License-Identifier: PostgreSQL */
/*
 * address.c: base_url, paths and how they are joined. The input is a base_url
 * and a path, a line each. What is accepted must stay below the base_url, as
 * libcurl reads the address when it removes dot segments, also when it reads a
 * path that the server has unescaped first.
 *
 * Sources: src/transport/origin.c src/template/url.c -lcurl -lpgcommon -lpgport
 */
#include "postgres.h"

#include <curl/curl.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "template/url.h"
#include "transport/origin.h"

#undef malloc
#undef free
#undef strdup

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* what the server would do */
int
GetDatabaseEncoding(void)
{
	return PG_SQL_ASCII;
}

char *
pg_server_to_any(const char *s, int len, int encoding)
{
	return unconstify(char *, s);
}

/* the path as libcurl reads it, without dot segments; NULL: it reads none */
static char *
path_of(const char *url)
{
	CURLU	   *u = curl_url();
	char	   *path = NULL;
	char	   *copy = NULL;

	if (curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_PATH, &path, 0) == CURLUE_OK)
		copy = strdup(path);
	curl_free(path);
	curl_url_cleanup(u);
	return copy;
}

static void
check_joined(const char *base, const char *path)
{
	size_t		len = strlen(base) + strlen(path) + 1;
	char	   *joined = malloc(len);
	char		of_base[SAS_ORIGIN_LEN];
	char		of_joined[SAS_ORIGIN_LEN];
	const char *why;
	char	   *base_path = path_of(base);
	char	   *joined_path;

	snprintf(joined, len, "%s%s", base, path);
	if (sas_transport_origin_of_call(joined, of_joined, sizeof(of_joined), &why))
	{
		if (!sas_transport_origin_parse(base, of_base, sizeof(of_base), &why) || strcmp(of_base, of_joined) != 0)
			abort();			/* a path has changed the origin */
		if (!sas_transport_same_origin(joined, base))
			abort();
		joined_path = path_of(joined);
		if (base_path != NULL && joined_path != NULL && strcmp(base_path, "/") != 0 &&
			strncmp(base_path, joined_path, strlen(base_path)) != 0)
			abort();			/* it has left the path of the base */
		free(joined_path);
	}
	free(base_path);
	free(joined);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *base = malloc(size + 1);
	char	   *path;
	char		origin[SAS_ORIGIN_LEN];
	char		again[SAS_ORIGIN_LEN];
	const char *why = NULL;
	char	   *segment;

	memcpy(base, data, size);
	base[size] = '\0';
	path = strchr(base, '\n');
	if (path != NULL)
		*path++ = '\0';
	else
		path = base + strlen(base);

	/* sql/definition/agent.sql: no dots in base_url; sql/definition/references.sql: a path is empty or begins with / or ? */
	if (sas_transport_origin_parse(base, origin, sizeof(origin), &why))
	{
		if (!sas_transport_origin_parse(origin, again, sizeof(again), &why) || strcmp(origin, again) != 0)
			abort();			/* an origin is its own origin */
		if (!sas_transport_path_has_dot_segment(base) && (*path == '\0' || *path == '/' || *path == '?') &&
			strchr(path, '#') == NULL && !sas_transport_path_has_dot_segment(path) &&
			!sas_template_has_dot_segment(path, (int) strlen(path)) && base[strlen(base) - 1] != '/')
			check_joined(base, path);
	}
	else if (why == NULL)
		abort();

	/* a value that is encoded as a segment has no end of a segment in it */
	segment = sas_transport_encode_segment(path, strlen(path));
	if (segment != NULL && strpbrk(segment, "/?#\\ ") != NULL)
		abort();
	free(segment);
	free(base);
	return 0;
}
