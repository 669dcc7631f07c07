/* SPDX-License-Identifier: PostgreSQL */
/*
 * origin.h
 *	  Addresses: origins, segments, dot segments.
 *
 * Used when an agent or a workflow is defined, and again when a call is sent, so that both use the
 * same parser: libcurl's.  Needs no set-up, starts no threads, and may be called in any session.
 */
#ifndef SAS_ORIGIN_H
#define SAS_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

/* enough for "https://", a host name of 255 bytes, and ":65535" */
#define SAS_ORIGIN_LEN 288

/*
 * Checks a base address and gives its origin, "scheme://host:port": in lower case, always with the
 * port.  A path is allowed; a query, a fragment, a user or a password is not.  On false *why says
 * what is wrong with it, as a fragment such as "it must begin with http:// or https://".
 */
extern bool sas_transport_origin_parse(const char *url, char *origin, size_t len, const char **why);

/* the same for the address of a call, which may have a query */
extern bool sas_transport_origin_of_call(const char *url, char *origin, size_t len, const char **why);

/* false also if one of them is not an address that sas would call */
extern bool sas_transport_same_origin(const char *a, const char *b);

/* the path, query and fragment of an address that sas would call */
extern const char *sas_transport_after_origin(const char *url);

/* Is the path of such an address that of the base address, or below it, by whole segments as they are written? */
extern bool sas_transport_is_below(const char *url, const char *base);

/* a reference (absolute or relative) as seen from base; free() it; NULL: bad */
extern char *sas_transport_origin_resolve(const char *base, const char *reference);

/*
 * Percent-encodes all but the unreserved characters of RFC 3986; free() it;
 * NULL: no memory.  "." and ".." stay what they are, since no encoding takes
 * their meaning away: look at the whole path with the next function.
 */
extern char *sas_transport_encode_segment(const char *in, size_t len);

/*
 * Is a segment of the path (up to ? or #) "." or ".."?  Dots may be written
 * %2e; a segment also ends at a backslash, %5c or %2f, since servers exist
 * that decode before they split.
 */
extern bool sas_transport_path_has_dot_segment(const char *path);

#endif							/* SAS_ORIGIN_H */
