/* SPDX-License-Identifier: PostgreSQL */
/*
 * pins.h: settings that are fixed in a worker, whatever the configuration, the
 * database or a role says.
 *
 * So statements and function bodies of the extension mean the same under each
 * configuration.  A function of a user is called under the settings that the
 * database has for it.
 */
#ifndef SAS_STORE_PINS_H
#define SAS_STORE_PINS_H

/* Once per worker, outside a transaction. */
extern void sas_store_pin_settings(void);

/*
 * From now on the planner takes tables that grow for small ones, or never does:
 * a worker never does, and a session never inside a verb.  Returns what was so
 * before; who sets it for a while resets it after an error, too.
 */
extern bool sas_store_assume_sizes(bool assume);

/* After that, and after each reload of the configuration: notes what users' functions get. */
extern void sas_store_reload_pins(void);

/*
 * Before a function of a user, in a GUC nest level of its own whose end undoes
 * it: the pinned settings as they are without a pin, but for those that guard
 * the worker itself.
 */
extern void sas_store_unpin_settings(void);

/*
 * Between these two, the planner chooses for a verb what it chooses for a
 * worker, whatever the session forbids it.  Only what differs is set, so it
 * costs little.  pin returns what unpin needs; an error undoes it.
 */
extern int	sas_store_pin_plans(void);
extern void sas_store_unpin_plans(int level);

/*
 * A verb may call code of users in the session.  It notes the settings of the
 * session before it pins its own, and own_plans gives them to that code, in a
 * GUC nest level of its own.  note returns what forget needs, after an error,
 * too.  A worker notes none.
 */
typedef struct SasOwnPlans
{
	bool		noted;
	int			cache_mode;
	uint32		on;				/* a bit for each setting that is on */
} SasOwnPlans;

/* note, forget, own: see above. */
extern SasOwnPlans sas_store_note_plans(void);
extern void sas_store_forget_plans(SasOwnPlans before);
extern void sas_store_own_plans(void);

#endif							/* SAS_STORE_PINS_H */
