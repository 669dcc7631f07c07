/* SPDX-License-Identifier: PostgreSQL */
/*
 * event_triggers.h: what sas does in event triggers, while a session has turned them off.
 */
#ifndef SAS_API_EVENT_TRIGGERS_H
#define SAS_API_EVENT_TRIGGERS_H

/* While the library is loaded. */
extern void sas_api_event_triggers_install(void);

#endif							/* SAS_API_EVENT_TRIGGERS_H */
