/* SPDX-License-Identifier: PostgreSQL */
/* rehearsal.h: what the testing aids know of each other. */
#ifndef SAS_API_REHEARSAL_H
#define SAS_API_REHEARSAL_H

/* the function of a step is being called in this session: it must not use the aids itself */
extern bool sas_rehearsal_performs;

#endif							/* SAS_API_REHEARSAL_H */
