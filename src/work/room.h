/* SPDX-License-Identifier: PostgreSQL */
/*
 * room.h: whose calls take up how much of this worker's memory, by agent and
 * by owner.
 *
 * What an owner has at one agent is a share of it (transport/memory.c).  So
 * large answers of one owner keep neither another owner's calls of the same
 * agent nor the same owner's calls of another agent waiting.
 */
#ifndef SAS_WORK_ROOM_H
#define SAS_WORK_ROOM_H

#include "transport/transport.h"

/* Once in an agent worker. */
extern void sas_work_room_open(MemoryContext context, SasTransport *transport);

/* May calls of this owner begin at that agent? */
extern bool sas_work_room_for(int agent_id, Oid owner);

/* The share that a call belongs to; its reply, too, while it waits to be written: it stays. Each leaves it once. */
extern SasTransportShare *sas_work_room_enter(int agent_id, Oid owner);
extern void sas_work_room_stay(SasTransportShare *share);
extern void sas_work_room_leave(SasTransportShare *share);

#endif							/* SAS_WORK_ROOM_H */
