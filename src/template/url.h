/* SPDX-License-Identifier: PostgreSQL */
/*
 * url.h
 *		Encodes values for use in a URL.
 */
#ifndef SAS_TEMPLATE_URL_H
#define SAS_TEMPLATE_URL_H

#include "lib/stringinfo.h"

/* Appends the UTF-8 bytes of the text, all except the unreserved characters of RFC 3986 as %XX. */
extern void sas_template_encode(StringInfo out, const char *string, int len);

/* Is there a segment "." or ".." (also as %2e) before the first "?" or "#" of a path or full URL? */
extern bool sas_template_has_dot_segment(const char *url, int len);

#endif							/* SAS_TEMPLATE_URL_H */
