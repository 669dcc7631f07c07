/* SPDX-License-Identifier: PostgreSQL */
/*
 * written.h: how long a value is as text. jsonb writes numbers out: the text of 1e131071 is 128 kB long, and its value has 8 bytes.
 */
#ifndef SAS_BASE_WRITTEN_H
#define SAS_BASE_WRITTEN_H

#include "utils/jsonb.h"

/*
 * The levels of a value that is stored. jsonb can be built with more levels than its text can be read
 * with: a dump of such a value could not be restored.
 */
#define SAS_WRITTEN_LEVELS 5000
#define SAS_WRITTEN_TOO_DEEP SIZE_MAX

/*
 * The bytes of a value as limits count them: those of the jsonb without compression, with the text of
 * each number whose text is longer than itself. SAS_WRITTEN_TOO_DEEP if it has more levels than a value
 * may have. A value larger than "most" without that is not looked into.
 */
extern Size sas_base_written_size(Datum jsonb, Size most);

/* Of a part of a value: a scalar, or a container. */
extern Size sas_base_written_value(const JsonbValue *value);

#endif							/* SAS_BASE_WRITTEN_H */
