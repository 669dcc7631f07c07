# SPDX-License-Identifier: PostgreSQL
"""Calls in the transaction of the caller. With an AsyncConnection, each returns what is to be awaited."""
from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Mapping, NamedTuple, Protocol, Sequence, TypedDict, TypeVar, overload

from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack
    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class Both(Protocol[P, R]):
        @overload
        def __call__(self, conn: Connection[Any], /, *values: P.args, **named: P.kwargs) -> R: ...
        @overload
        def __call__(self, conn: AsyncConnection[Any], /, *values: P.args, **named: P.kwargs) -> Awaitable[R]: ...


# created is false if the key had been submitted before, with the same input
Submitted = NamedTuple("Submitted", [("run_id", int), ("created", bool)])
# state is "stopped" or "paused"; another one when the time was up
Run = NamedTuple("Run", [("state", str), ("result", str | None), ("output", Any), ("error", Any)])
# what sas.submit_batch takes besides the workflow, the inputs and the keys
BatchOptions = TypedDict("BatchOptions", {
    "priority": int, "start_at": datetime | None, "start_before": datetime | None, "deadline": timedelta | None, "version": int | None,
    "after_runs": list[int] | None, "after_result": list[str] | None, "reply_to": str | None, "labels": Mapping[str, Any]}, total=False)


class Options(BatchOptions, total=False):
    key: str | None


def _both(function: Callable[Concatenate[Any, P], R]) -> Both[P, R]:
    return function     # type: ignore[return-value]


def _call(conn: Any, row: Any, function: str, *values: Any, all: bool = False, **named: Any) -> Any:
    places = ["%s"] * len(values) + [f"{name} => %s" for name in named]
    given = [Jsonb(value) if isinstance(value, Mapping) else value for value in (*values, *named.values())]
    cursor, sql = conn.cursor(row_factory=row), f"SELECT * FROM sas.{function}({', '.join(places)})"

    def read(done: Any) -> Any:
        return done.fetchall() if all else done.fetchone()

    async def later() -> Any:
        return await read(await cursor.execute(sql, given))
    return later() if isinstance(conn, AsyncConnection) else read(cursor.execute(sql, given))


@_both
def submit(conn: Any, workflow: str, input: Mapping[str, Any] = {}, **options: Unpack[Options]) -> Submitted:
    """Submits a run. It begins when the transaction is committed; rolled back, it never was."""
    return _call(conn, class_row(Submitted), "submit", workflow, input, **options)


@_both
def submit_batch(conn: Any, workflow: str, inputs: Sequence[Mapping[str, Any]], keys: Sequence[str | None] | None = None,
                 **options: Unpack[BatchOptions]) -> list[Submitted]:
    """Submits a run for each input, in one call and in order. keys has one for each, or None."""
    return _call(conn, class_row(Submitted), "submit_batch", workflow, [Jsonb(input) for input in inputs], None if keys is None else list(keys),
                 all=True, **options)


@_both
def wait(conn: Any, run_id: int, timeout: float = 60) -> Run:
    """Waits until the run has stopped or is paused, at most timeout seconds. Not in a transaction that wrote."""
    return _call(conn, class_row(Run), "wait", run_id, timedelta(seconds=timeout))


@_both
def signal(conn: Any, run_id: int, name: str, payload: Any = {}) -> None:
    """Sends a named message to a run."""
    return _call(conn, lambda _: lambda _: None, "signal", run_id, name, Jsonb(payload))


@_both
def signal_key(conn: Any, workflow: str, key: str, name: str, payload: Any = {}) -> None:
    """Sends a named message to the run of that workflow that has the key."""
    return _call(conn, lambda _: lambda _: None, "signal_key", workflow, key, name, Jsonb(payload))
