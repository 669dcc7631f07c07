/* SPDX-License-Identifier: PostgreSQL */
/*
 * retry_after.c
 *	  Retry-After (RFC 9110, 10.2.3): seconds, or a date.
 */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE

#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longer spans make no difference. */
#define RETRY_AFTER_MOST_S 86400.0

double
sas_transport_retry_after_ms(const SasReply *reply)
{
	const char *value = sas_transport_reply_header(reply, "retry-after");
	double		seconds;
	struct tm	tm;

	if (value == NULL)
		return -1;
	if (value[0] >= '0' && value[0] <= '9')
		seconds = strtod(value, NULL);
	else
	{
		memset(&tm, 0, sizeof(tm));
		if (strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &tm) == NULL)
			return -1;
		seconds = difftime(timegm(&tm), time(NULL));
	}
	return (seconds < 0 ? 0 : seconds > RETRY_AFTER_MOST_S ? RETRY_AFTER_MOST_S : seconds) * 1000;
}
