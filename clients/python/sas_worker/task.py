# SPDX-License-Identifier: PostgreSQL
"""A claimed task, as a handler sees it."""
from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Callable, Optional
from uuid import UUID

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb


class HandBack(Exception):
    """Raised by a handler: nothing was done; another worker may have the task. Counts nothing."""


class InDoubt(Exception):
    """Raised by a handler: it cannot know what was done. Nothing is reported; the end of the lease says so."""


class Permanent(Exception):
    """Raised by a handler: it failed, and another attempt would, too."""


class Lost(Exception):
    """The claim is not valid any more, and nothing was stored. Roll back and stop."""


@dataclass(eq=False)
class Task:
    request_id: UUID
    run_id: int
    step: str
    undo: bool                  # undo the step
    idempotency_key: str        # the same in every attempt: send it to every service that is called
    request: Any                # the input of the step
    checkpoint: Any             # what was saved last, by the holder before this one, too; or None
    stopping: threading.Event   # the worker is being stopped: end soon, or raise HandBack
    _send: Callable[[Task, str, Any, Optional[float]], Future[None]] = field(repr=False)
    _until: float               # the claim holds at least until then (time.monotonic)
    cancelled: threading.Event = field(default_factory=threading.Event)     # stop
    reason: Optional[str] = None        # why: "cancel", the run cannot go on; "lost", the claim is not valid any more
    _left_at: float = float("inf")      # its handler is not waited for after that
    _gone: bool = False                 # the server has said that it is lost
    _settled: bool = False              # completed in a transaction of the handler
    _future: Any = field(default=None, repr=False)      # of an async handler

    def save(self, checkpoint: Any = None, progress: Optional[float] = None) -> None:
        """Stores what the next holder goes on from, and how much is done (0 to 1). Lost: it was not stored."""
        self._send(self, "heartbeat", checkpoint, progress).result()

    async def save_async(self, checkpoint: Any = None, progress: Optional[float] = None) -> None:
        await asyncio.wrap_future(self._send(self, "heartbeat", checkpoint, progress))

    def emit(self, chunk: Any) -> None:
        """Adds a chunk to those of the step, for whoever reads sas.chunks. Lost: it was not stored."""
        self._send(self, "emit", chunk, None).result()

    async def emit_async(self, chunk: Any) -> None:
        await asyncio.wrap_future(self._send(self, "emit", chunk, None))

    def complete(self, conn: Connection[Any], output: Any = None) -> None:
        """Completes the task together with what the transaction of conn writes: commit it. Lost: roll back."""
        self._check(self._settle(conn, output).fetchone())

    async def complete_async(self, conn: AsyncConnection[Any], output: Any = None) -> None:
        self._check(await (await self._settle(conn, output)).fetchone())

    def _settle(self, conn: Any, output: Any) -> Any:
        self._settled = True
        return conn.cursor(row_factory=tuple_row).execute("SELECT sas.complete(%s, %s)", [self.request_id, Jsonb(output)])

    def _check(self, row: Any) -> None:
        if not row[0]:
            raise Lost(f"the claim of step {self.step} of run {self.run_id} is not valid any more")
