# SPDX-License-Identifier: PostgreSQL
"""What type checkers know of the library for Python: read by mypy (tools/check_lint), run by nobody."""
from typing import Any, List

from psycopg import AsyncConnection, Connection
from typing_extensions import assert_type

from sas_worker import Run, Submitted, Task, Worker, signal, signal_key, submit, submit_batch, wait


def calls(conn: Connection[Any]) -> None:
    assert_type(submit(conn, "order", {"n": 1}, key="k", priority=2), Submitted)
    assert_type(submit_batch(conn, "order", [{"n": 1}], ["k"]), List[Submitted])
    assert_type(wait(conn, 7, timeout=1.5), Run)
    signal(conn, 7, "paid")
    signal_key(conn, "order", "k", "paid", {"amount": 20})
    submit(conn)                # type: ignore[call-overload]
    submit(conn, 7)             # type: ignore[call-overload]
    signal(7, conn, "paid")     # type: ignore[call-overload]


async def later(conn: AsyncConnection[Any]) -> None:
    assert_type(await submit(conn, "order"), Submitted)
    assert_type(await wait(conn, 7), Run)


def handler(task: Task) -> Any:
    task.save({"done": 1}, progress=0.5)
    task.emit("a chunk")
    task.request_id = "one"     # type: ignore[assignment]
    return task.request


Worker("", "tasks", handler, concurrency=4, lease=30).run()
Worker("", "tasks", handler, concurency=4)      # type: ignore[call-arg]
