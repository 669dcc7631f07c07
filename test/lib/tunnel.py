#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""An HTTP proxy that behaves as a test tells it to.

    tunnel.py --port N --control N

CONNECT host:port makes a tunnel; a request with a whole address is passed on. What it does is set by POST of an object
to the control port, which also ends the tunnels that there are:

    how: well (default); refuse (status), garbage, silent, endless (headers without end), shut (closes at once),
         half (half an answer to CONNECT, then closed)
    status: of refuse
    cut: [least, most]: every tunnel is cut after so many bytes towards the client, a random number between them
    end: eof or reset: how it is cut
    seed: of these numbers

GET: {tunnels, asked: [first lines], credentials: [user:password of each, or ""], cuts}
"""

import asyncio
import base64
import random
import urllib.parse

from control import listen, options, reset

state = {"how": "well", "status": 403, "cut": None, "end": "eof", "seed": 1}
figures = {"tunnels": 0, "asked": [], "credentials": [], "cuts": 0}
tunnels = set()
chance = random.Random(1)


def end(writer, how):
    (reset if how == "reset" else asyncio.StreamWriter.close)(writer)


async def pump(reader, writer, limit=None):
    """False: it was cut."""
    left = limit
    try:
        while data := await reader.read(65536 if left is None else min(left, 65536)):
            writer.write(data)
            await writer.drain()
            if left is not None:
                left -= len(data)
                if left <= 0:
                    return False
    except OSError:
        pass
    return True


async def misbehave(how, writer):
    if how == "refuse":
        writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % state["status"])
    elif how == "garbage":
        writer.write(bytes(range(128, 256)) * 8 + b"\r\n\r\n")
    elif how == "half":
        writer.write(b"HTTP/1.1 200 Conn")
    elif how == "silent":
        await asyncio.sleep(3600)
    elif how == "endless":
        writer.write(b"HTTP/1.1 200 Connected\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 4000 + b"\r\n")
            await writer.drain()
    await writer.drain()
    writer.close()


async def serve(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    first, _, rest = head.partition(b"\r\n")
    method, target, _ = first.decode("latin-1").split(" ")
    figures["asked"].append(first.decode("latin-1"))
    given = [line.split(b" ")[-1] for line in rest.split(b"\r\n") if line.lower().startswith(b"proxy-authorization: basic ")]
    figures["credentials"].append(base64.b64decode(given[0]).decode() if given else "")
    how, way = state["how"], state["end"]
    if how != "well":
        await misbehave(how, writer)
        return
    if method == "CONNECT":
        host, port = target.rsplit(":", 1)
        there, to = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
    else:
        url = urllib.parse.urlsplit(target)
        there, to = await asyncio.open_connection(url.hostname, url.port)
        to.write(f"{method} {url.path or '/'}{'?' + url.query if url.query else ''} HTTP/1.1\r\n".encode() + rest)
    figures["tunnels"] += 1
    limit = chance.randint(*state["cut"]) if state["cut"] else None
    up = asyncio.ensure_future(pump(reader, to))
    down = asyncio.ensure_future(pump(there, writer, limit))
    tunnels.add(up)
    await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
    tunnels.discard(up)
    if down.done() and not down.result():
        figures["cuts"] += 1
        end(writer, way)
    for task in (up, down):
        task.cancel()
    to.close()
    writer.close()


async def guarded(reader, writer):
    try:
        await serve(reader, writer)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def controlled(method, _, said):
    if method == "POST":
        for up in tunnels:
            up.cancel()
        state.update({"how": "well", "cut": None, "end": "eof"}, **said)
        if "seed" in said:
            chance.seed(said["seed"])
    return figures


async def main():
    await listen(options(), guarded, controlled)
    await asyncio.Event().wait()


asyncio.run(main())
