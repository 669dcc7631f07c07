/* SPDX-License-Identifier: PostgreSQL */
/*
 * files.c: files with certificates, as they are when a request begins.
 *
 * libcurl knows a file by its name only: while connections are kept, a file that is replaced would
 * not be read.  It even remembers authorities for a day.  So libcurl gets another name of the file
 * for each of its states: the slashes at the start, with or without a dot, spell a digest of what
 * the file system says of it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "transport/request.h"

#define DIGEST_BITS 32

/* A step of FNV-1a (RFC 9923). */
static void
files_add(uint64_t *digest, uint64_t n)
{
	for (int i = 0; i < 8; i++, n >>= 8)
		*digest = (*digest ^ (n & 0xff)) * UINT64_C(0x100000001b3);
}

static uint32_t
files_digest(const struct stat *st)
{
	uint64_t	digest = UINT64_C(0xcbf29ce484222325);

	files_add(&digest, (uint64_t) st->st_dev);
	files_add(&digest, (uint64_t) st->st_ino);
	files_add(&digest, (uint64_t) st->st_size);
	files_add(&digest, (uint64_t) st->st_mtim.tv_sec);
	files_add(&digest, (uint64_t) st->st_mtim.tv_nsec);
	files_add(&digest, (uint64_t) st->st_ctim.tv_sec);
	files_add(&digest, (uint64_t) st->st_ctim.tv_nsec);
	return (uint32_t) (digest ^ digest >> 32);
}

/* Another name of this file, malloc'd; that of a file that is not there stays. NULL: no memory. */
static char *
files_name(const char *file)
{
	struct stat st;
	char	   *name = malloc(2 * DIGEST_BITS + strlen(file) + 3);
	char	   *end = name;
	uint32_t	digest;

	if (name == NULL)
		return NULL;
	if (stat(file, &st) != 0)
		return strcpy(name, file);
	digest = files_digest(&st);
	if (*file != '/')
		*end++ = '.';
	for (int i = 0; i < DIGEST_BITS; i++, digest >>= 1)
	{
		*end++ = '/';
		if (digest & 1)
			*end++ = '.';
	}
	*end++ = '/';
	strcpy(end, file);
	return name;
}

/* Sets one or two options to the file. */
static CURLcode
files_set(CURL *easy, const char *file, CURLoption one, CURLoption other)
{
	char	   *name = files_name(file);
	CURLcode	rc = name != NULL ? curl_easy_setopt(easy, one, name) : CURLE_OUT_OF_MEMORY;

	if (rc == CURLE_OK && other != one)
		rc = curl_easy_setopt(easy, other, name);
	free(name);
	return rc;
}

/* A certificate authority of the agent replaces the system's. */
CURLcode
sas_transport_request_set_files(SasRequest *r, const SasCall *call)
{
	CURLcode	rc = CURLE_OK;

	if (call->ca_file != NULL)
		rc = files_set(r->easy, call->ca_file, CURLOPT_CAINFO, CURLOPT_CAINFO);
	if (rc == CURLE_OK && call->ca_file != NULL)
		rc = curl_easy_setopt(r->easy, CURLOPT_CAPATH, NULL);
	if (rc == CURLE_OK && call->cert != NULL)
		rc = files_set(r->easy, call->cert, CURLOPT_SSLCERT, CURLOPT_SSLKEY);
	return rc;
}
