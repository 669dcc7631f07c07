/* SPDX-License-Identifier: PostgreSQL */
/*
 * batch_size.h: how many steps a function worker claims at a time, which
 * functions run alone, and how many workers an owner may have.
 */
#ifndef SAS_FUNCTION_BATCH_SIZE_H
#define SAS_FUNCTION_BATCH_SIZE_H

/* no batch has more */
#define SAS_FUNCTION_BATCH 500

/* What the workers of this server know together; in the hooks of shared memory. */
extern Size sas_function_batch_shmem_size(void);
extern void sas_function_batch_shmem_init(void);

/* How many to claim next. */
extern int	sas_function_batch_size(void);

/* Is what is urgent claimed without the bulk behind it? */
extern bool sas_function_batch_is_short(void);

/* The claim returned n steps, and took spent_us. */
extern void sas_function_batch_claimed(int n, int64 spent_us);

/* The claim of n steps spent that long on templates, which made so many bytes; overran: that was too much, and nothing was claimed. */
extern void sas_function_batch_evaluated(int n, int64 spent_us, int64 bytes, bool overran);

/* n steps (n > 0) took spent_us, without their claim and commit, of which their functions called_us; was_slow: one of them ended the batch. */
extern void sas_function_batch_done(int64 spent_us, int64 called_us, int n, bool was_slow);

/* Does a call that took spent_us end its batch? */
extern bool sas_function_is_slow(int64 spent_us);

/* note_begin: the function is called now. note_time: it took spent_us. was_fast: has it run, and was it fast when it ran last? */
extern void sas_function_note_begin(const char *function);
extern void sas_function_note_time(const char *function, int64 spent_us);
extern bool sas_function_was_fast(const char *function);

/* How many workers may call functions of that owner at a time; read again when a limit has changed. In a transaction. */
extern int64 sas_function_workers_of(Oid owner);

#endif							/* SAS_FUNCTION_BATCH_SIZE_H */
