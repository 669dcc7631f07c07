# SPDX-License-Identifier: PostgreSQL
"""Calls in the transaction of the caller. With an AsyncConnection, each returns what is to be awaited."""
from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Awaitable, List, Mapping, NamedTuple, Optional, TypedDict, overload

from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from typing_extensions import Unpack


# created is false if the key had been submitted before, with the same input
Submitted = NamedTuple("Submitted", [("run_id", int), ("created", bool)])
# state is "stopped" or "paused"; another one when the time was up
Run = NamedTuple("Run", [("state", str), ("result", Optional[str]), ("output", Any), ("error", Any)])
# what sas.submit takes besides the workflow and the input
Options = TypedDict("Options", {
    "key": Optional[str], "priority": int, "start_at": Optional[datetime], "start_before": Optional[datetime],
    "deadline": Optional[timedelta], "after_runs": Optional[List[int]], "after_result": Optional[List[str]],
    "reply_to": Optional[str], "labels": Mapping[str, Any], "version": Optional[int]}, total=False)


def _call(conn: Any, row: Any, function: str, *values: Any, **named: Any) -> Any:
    places = ["%s"] * len(values) + [f"{name} => %s" for name in named]
    given = [Jsonb(value) if isinstance(value, Mapping) else value for value in (*values, *named.values())]
    cursor, sql = conn.cursor(row_factory=row), f"SELECT * FROM sas.{function}({', '.join(places)})"

    async def later() -> Any:
        return await (await cursor.execute(sql, given)).fetchone()
    return later() if isinstance(conn, AsyncConnection) else cursor.execute(sql, given).fetchone()


@overload
def submit(conn: Connection[Any], workflow: str, input: Mapping[str, Any] = ..., **options: Unpack[Options]) -> Submitted: ...
@overload
def submit(conn: AsyncConnection[Any], workflow: str, input: Mapping[str, Any] = ...,
           **options: Unpack[Options]) -> Awaitable[Submitted]: ...
def submit(conn: Any, workflow: str, input: Mapping[str, Any] = {}, **options: Any) -> Any:
    """Submits a run. It begins when the transaction is committed; rolled back, it never was."""
    return _call(conn, class_row(Submitted), "submit", workflow, input, **options)


@overload
def wait(conn: Connection[Any], run_id: int, timeout: float = ...) -> Run: ...
@overload
def wait(conn: AsyncConnection[Any], run_id: int, timeout: float = ...) -> Awaitable[Run]: ...
def wait(conn: Any, run_id: int, timeout: float = 60) -> Any:
    """Waits until the run has stopped or is paused, at most timeout seconds. Not in a transaction that wrote."""
    return _call(conn, class_row(Run), "wait", run_id, timedelta(seconds=timeout))


@overload
def signal(conn: Connection[Any], run_id: int, name: str, payload: Any = ...) -> None: ...
@overload
def signal(conn: AsyncConnection[Any], run_id: int, name: str, payload: Any = ...) -> Awaitable[None]: ...
def signal(conn: Any, run_id: int, name: str, payload: Any = {}) -> Any:
    """Sends a named message to a run."""
    return _call(conn, lambda _: lambda _: None, "signal", run_id, name, Jsonb(payload))
