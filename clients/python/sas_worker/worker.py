# SPDX-License-Identifier: PostgreSQL
"""A worker for the tasks of one external agent.

One connection claims, reports and extends leases, for all tasks at once. It is made again when it is lost, while the
handlers go on. Handlers have threads of their own, and those that are async share a loop in another thread: none keeps
the worker from extending leases. A claimed task is in _held until the server has answered to its last report, or it is
given up; what is to be said is in _reports until then.
"""
from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from .task import HandBack, InDoubt, Lost, Permanent, Task

log = logging.getLogger("sas_worker")

CLAIM = "SELECT c.*, extract(epoch FROM c.lease_until - now())::float8 FROM sas.claim(%s, %s, %s, %s) AS c"
# Locks are waited for for a moment only: a handler's transaction may hold them.
SAY = """
    SELECT CASE verb WHEN 'heartbeat' THEN sas.heartbeat(id, progress, value)
                     WHEN 'emit' THEN CASE WHEN sas.emit(value, id) THEN 'stored' ELSE 'lost' END
                     WHEN 'fail' THEN sas.fail(id, error)::text WHEN 'give up' THEN sas.fail(id, error, true)::text
                     ELSE sas.hand_back(id)::text END
    FROM set_config('lock_timeout', '2s', true), unnest(%s::uuid[], %s::text[], %s::jsonb[], %s::text[], %s::float8[])
         WITH ORDINALITY AS report (id, verb, value, error, progress, n) ORDER BY n"""
COMPLETE = "SELECT unnest(sas.complete_tasks(%s::uuid[], %s::jsonb[]))::text FROM set_config('lock_timeout', '2s', true)"

# seconds to say the last things after the grace period; until a statement, or an attempt to connect, has failed
TELL, ANSWER, NEVER = 5, 10, float("inf")
MEANWHILE = ("heartbeat", "emit")           # reports that do not end a task
REFUSED = ("0A", "22", "23", "42", "54")    # classes of errors that the same statement would get again
NO_SERVER = (psycopg.OperationalError, psycopg.InterfaceError, asyncio.TimeoutError, OSError)


@dataclass(eq=False)
class Report:
    task: Task
    verb: str
    value: Optional[str] = None         # JSON: the output, the checkpoint or the chunk
    error: Optional[str] = None
    progress: Optional[float] = None
    stored: Optional[Future[None]] = None

    def answer(self, error: Optional[Exception] = None) -> None:
        if self.stored and not self.stored.done():
            self.stored.set_exception(error) if error else self.stored.set_result(None)


def _told(error: BaseException) -> str:
    """What the error says, as text that the server takes; it may quote anything, and fail to say it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text[:2000].replace("\0", " ").encode("utf-8", "replace").decode()


class Worker:
    """run() works until stop(), SIGTERM or SIGINT.

    conninfo         as psycopg's; empty: from the environment
    handler          is called with each Task; what it returns (JSON) is the output of the step
    concurrency      handlers at once, and tasks held at once
    lease            seconds; extended every third of it
    grace            seconds for handlers to end after stop(); then their tasks are handed back
    poll             seconds; asks for tasks at the latest then, if none were announced
    listen_conninfo  for a connection of its own for LISTEN, past the pooler that conninfo leads to
    """

    def __init__(self, conninfo: str, agent: str, handler: Callable[[Task], Any], *, concurrency: int = 10,
                 lease: float = 30, grace: float = 20, poll: float = 60, name: Optional[str] = None,
                 listen_conninfo: Optional[str] = None) -> None:
        self.conninfo, self.listen_conninfo, self.agent, self.handler = conninfo, listen_conninfo, agent, handler
        self.concurrency, self.lease, self.grace, self.poll = concurrency, lease, grace, poll
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._listens = sql.SQL("LISTEN {}").format(sql.Identifier(f"sas_agent_{agent}"))
        self.stopping = threading.Event()
        self._held: Dict[UUID, Task] = {}
        self._reports: List[Report] = []
        self._left: Set[Task] = set()       # given up, though their handlers still run
        self._batch, self._pause = 1000, 0.1        # reports in a statement, 1 after an error; seconds between vain claims
        self._more, self._known = True, False       # there may be tasks to claim; the agent was found
        # again_at: when what failed for a moment is said again
        self._claim_at, self._beat_at, self._again_at, self._grace_end = 0.0, 0.0, NEVER, NEVER
        self._loop, self._handlers, self._wake = asyncio.new_event_loop(), asyncio.new_event_loop(), asyncio.Event()

    def run(self) -> None:
        """Returns when all is reported, at the latest grace and some seconds after stop()."""
        threading.Thread(target=self._handlers.run_forever, daemon=True).start()
        with closing(self._loop):
            self._loop.run_until_complete(self._main())

    def stop(self) -> None:
        """Claims no more. A second time: without a grace period. May be called from any thread."""
        self._later(self._stop)

    def _stop(self) -> None:
        self.stopping.set()
        self._grace_end = time.monotonic() + (self.grace if self._grace_end == NEVER else 0)
        self._wake.set()

    async def _main(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._stop)
        # _work ends when all is said, and _watch when the time for that is over, whatever the server does
        jobs = [self._loop.create_task(self._watch()), self._loop.create_task(self._through(self.conninfo, self._work))]
        if self.listen_conninfo is not None:
            jobs.append(self._loop.create_task(self._through(self.listen_conninfo, self._listen)))
        done, others = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        for job in others:
            job.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._held:
            log.warning("%s ends and holds %d tasks: their leases will end", self.name, len(self._held))
        for job in done:
            job.result()

    # -- handlers ------------------------------------------------------------------------------------------------

    def _handle(self, task: Task) -> None:
        try:
            output = self.handler(task)
            if inspect.iscoroutine(output):
                task._future = asyncio.run_coroutine_threadsafe(output, self._handlers)
                output = task._future.result()
            report = None if task._settled else Report(task, "complete", json.dumps(output, allow_nan=False))
        except BaseException as error:
            report = self._failure(task, error)
        self._later(self._ended, task, report)

    def _failure(self, task: Task, error: BaseException) -> Optional[Report]:
        """After a cancel, an exception leaves open what was done: nothing is reported."""
        if isinstance(error, HandBack):
            return Report(task, "hand back")
        if isinstance(error, (InDoubt, Lost)) or task.cancelled.is_set():
            return None
        log.warning("step %s of run %s failed", task.step, task.run_id, exc_info=error)
        return Report(task, "give up" if isinstance(error, Permanent) else "fail", error=_told(error))

    def _later(self, function: Callable[..., None], *values: Any) -> None:
        with suppress(RuntimeError):        # the worker has ended
            self._loop.call_soon_threadsafe(function, *values)

    def _ended(self, task: Task, report: Optional[Report]) -> None:
        if task in self._left:
            self._left.discard(task)
        elif report is None or task._gone:
            self._held.pop(task.request_id, None)
        else:
            self._reports.append(report)
        self._wake.set()

    def _send(self, task: Task, verb: str, value: Any, progress: Optional[float]) -> Future[None]:
        text = None if value is None and verb == "heartbeat" else json.dumps(value, allow_nan=False)
        report = Report(task, verb, text, progress=progress, stored=Future())
        self._later(self._ask, report)
        return report.stored                # type: ignore[return-value]

    def _ask(self, report: Report) -> None:
        if report.task.request_id not in self._held or report.task.reason == "lost" or report.task._settled:
            report.answer(Lost("the claim is not valid any more"))
        else:
            self._reports.append(report)
            self._wake.set()

    # -- time ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """What only time tells, with or without a connection."""
        while time.monotonic() < self._grace_end + TELL:
            await asyncio.sleep(min(self.lease / 10, 0.5))
            now = time.monotonic()
            ending = {report.task for report in self._reports if report.verb not in MEANWHILE}
            for task in list(self._held.values()):
                if now > task._until and not task._settled:
                    self._lose(task)
                if now > min(self._grace_end, task._left_at) and task not in ending:
                    self._leave(task)
            if len(self._left) >= self.concurrency and not self.stopping.is_set():
                log.error("%d handlers do not end: %s stops", len(self._left), self.name)
                self._stop()

    def _lose(self, task: Task) -> None:
        if task.reason != "lost":
            task.reason, task._left_at = "lost", time.monotonic() + self.grace
            task.cancelled.set()
        for report in [r for r in self._reports if r.task is task and r.verb in MEANWHILE]:
            self._reports.remove(report)
            report.answer(Lost("the claim is not valid any more"))

    def _leave(self, task: Task) -> None:
        """Its handler has had its time. Its place is for another."""
        log.warning("step %s of run %s does not end: it is left alone", task.step, task.run_id)
        self._left.add(task)
        if task._future:
            task._future.cancel()
        if task.reason is None and not task._settled:
            self._reports.append(Report(task, "hand back"))
        else:
            del self._held[task.request_id]
        self._wake.set()

    # -- the connection ------------------------------------------------------------------------------------------

    async def _connect(self, conninfo: str) -> psycopg.AsyncConnection[Tuple[Any, ...]]:
        given: Any = {"application_name": self.name, "client_encoding": "utf8", "keepalives_idle": 15,
                      "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": ANSWER * 1000, **conninfo_to_dict(conninfo)}
        return await asyncio.wait_for(psycopg.AsyncConnection.connect(autocommit=True, prepare_threshold=None, **given), ANSWER)

    async def _query(self, conn: psycopg.AsyncConnection[Any], query: Any, values: Optional[List[Any]] = None) -> List[Any]:
        try:
            cursor = await asyncio.wait_for(conn.execute(query, values), ANSWER)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise OSError(str(error)) if conn.closed else error

    async def _through(self, conninfo: str, live: Callable[[psycopg.AsyncConnection[Any]], Any]) -> None:
        """As many connections as it takes, one after the other."""
        pause = 0.1
        while not self.stopping.is_set() or self._held:
            try:
                async with await self._connect(conninfo) as conn:
                    pause = 0.1
                    return await live(conn)
            except NO_SERVER as error:
                log.warning("%s has no server: %s", self.name, str(error).strip() or "no answer")
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 5)

    async def _listen(self, conn: psycopg.AsyncConnection[Any]) -> None:
        await self._query(conn, self._listens)
        self._heard()
        async for _ in conn.notifies():
            self._heard()
        raise OSError("the connection has ended")

    def _heard(self, _: Any = None) -> None:
        self._more, self._pause = True, 0.1
        self._wake.set()

    async def _work(self, conn: psycopg.AsyncConnection[Any]) -> None:
        if self.listen_conninfo is None:
            conn.add_notify_handler(self._heard)
            await self._query(conn, self._listens)
        self._heard()
        while True:
            self._wake.clear()
            await self._say(conn)
            await self._claim(conn)
            if self.stopping.is_set() and not self._held:
                return
            await self._rest(conn)

    async def _rest(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Until there is something to do or to hear."""
        claims = len(self._held) < self.concurrency and not self.stopping.is_set()
        until = min(self._again_at, self._beat_at if self._held else NEVER, self._claim_at if claims else NEVER)
        timer = self._loop.call_later(min(max(0, until - time.monotonic()), 3600), self._wake.set)
        self._loop.add_reader(conn.fileno(), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._loop.remove_reader(conn.fileno())
        conn.pgconn.consume_input()
        while conn.pgconn.notifies():
            self._heard()

    async def _claim(self, conn: psycopg.AsyncConnection[Any]) -> None:
        free, sent = min(self.concurrency - len(self._held), 1000), time.monotonic()
        if self.stopping.is_set() or free <= 0 or not (self._more or sent >= self._claim_at):
            return
        self._more, rows = False, []
        try:
            rows = await self._query(conn, CLAIM, [self.agent, self.name, free, timedelta(seconds=self.lease)])
            self._known = True
        except psycopg.Error as error:
            if not self._known and (error.sqlstate or "")[:2] in REFUSED:
                raise
            log.error("%s could not claim: %s", self.name, error)
        self._more = self._more or len(rows) == free
        self._pause = 0.1 if rows else min(2 * self._pause, self.poll)
        self._claim_at = time.monotonic() + self._pause * random.uniform(0.75, 1)
        self._beat_at = self._beat_at if self._held else sent + self.lease / 3
        for *columns, _, left in rows:
            until = sent + (min(left, self.lease) if left > 0 else self.lease)
            task = Task(*columns[:7], self.stopping, self._send, until)     # type: ignore[call-arg]
            self._held[task.request_id] = task
            if self.stopping.is_set():
                self._reports.append(Report(task, "hand back"))
                self._wake.set()
            else:
                threading.Thread(target=self._handle, args=(task,), daemon=True).start()

    async def _say(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """All reports, then the outputs together, in the order of their runs. After an error each goes alone."""
        now = time.monotonic()
        self._again_at = self._again_at if now < self._again_at else NEVER
        if now >= self._beat_at:
            self._beat_at = now + self.lease / 3
            self._reports = [r for r in self._reports if r.verb != "heartbeat" or r.stored] + [
                Report(task, "heartbeat") for task in self._held.values() if task.reason != "lost" and not task._settled]
        waiting = sorted(self._reports, key=lambda report: (report.verb == "complete", report.task.run_id))
        while waiting:
            ends, sent = waiting[0].verb == "complete", time.monotonic()
            part = [r for r in waiting[:self._batch] if ends or r.verb != "complete"]
            waiting, names = waiting[len(part):], ("value",) if ends else ("verb", "value", "error", "progress")
            try:
                values = [[r.task.request_id for r in part], *([getattr(r, name) for r in part] for name in names)]
                answers: List[Any] = [row[0] for row in await self._query(conn, COMPLETE if ends else SAY, values)]
                self._batch = min(2 * self._batch, 1000)
            except psycopg.Error as error:
                if len(part) > 1:
                    self._batch, waiting = 1, part + waiting
                    continue
                answers = [error]
            for report, answer in zip(part, answers):
                if self._said(report, answer, sent) and report in self._reports:
                    self._reports.remove(report)

    def _said(self, report: Report, answer: Union[str, psycopg.Error], sent: float) -> bool:
        """What the server answered to a report; false: it is to be said again."""
        task = report.task
        if isinstance(answer, psycopg.Error):
            log.error("step %s of run %s: %s: %s", task.step, task.run_id, report.verb, answer)
            self._again_at = time.monotonic() + 0.5
            if (answer.sqlstate or "22")[:2] not in REFUSED:
                return False
            report.answer(answer)
            if report.verb == "complete":       # an output that cannot be stored
                report.verb, report.value, report.error = "fail", None, str(answer)[:2000]
                return False
        elif answer in ("go", "cancel"):
            task._until = max(task._until, sent + self.lease)
            if report.value is not None:
                task.checkpoint = json.loads(report.value)
            if answer == "cancel" and task.reason is None:
                task.reason = "cancel"
                task.cancelled.set()
        elif answer == "lost":
            task._gone = True
            self._lose(task)
            report.answer(Lost("the claim is not valid any more"))
        elif answer == "false":
            log.warning("step %s of run %s: %s was too late, or came twice", task.step, task.run_id, report.verb)
        report.answer()         # unless it was told of an error
        if report.verb not in MEANWHILE:
            self._held.pop(task.request_id, None)
        return True
