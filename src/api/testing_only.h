/* SPDX-License-Identifier: PostgreSQL */
/* testing_only.h: what the testing aids share. */
#ifndef SAS_API_TESTING_ONLY_H
#define SAS_API_TESTING_ONLY_H

/* the function of a step is being called in this session: it must not use the aids itself */
extern bool sas_api_testing_invokes;

#endif							/* SAS_API_TESTING_ONLY_H */
