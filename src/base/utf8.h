/* SPDX-License-Identifier: PostgreSQL */
/*
 * utf8.h: between the encoding of the database and UTF-8, in which services
 * speak.  In a database in UTF-8, or without an encoding (SQL_ASCII), nothing
 * is converted.
 */
#ifndef SAS_BASE_UTF8_H
#define SAS_BASE_UTF8_H

/*
 * Looks up the conversion functions, once. Needs a transaction; text is not
 * converted before. The other two functions do it when there is a
 * transaction.
 */
extern void sas_base_utf8_prepare(void);

/* Text of the database in UTF-8: a copy, or the text itself where there is nothing to convert, or no way to. */
extern char *sas_base_utf8_of(char *text);

/* Is this text of the database UTF-8, once it is converted? */
extern bool sas_base_is_utf8(char *text);

/*
 * Bytes from outside as text of the database, with a NUL behind it: UTF-8
 * that fits, else bytes that are text as they are. NULL when they are not
 * text, or have a character that the database cannot store.
 */
extern char *sas_base_utf8_text(const char *bytes, size_t len);

#endif							/* SAS_BASE_UTF8_H */
