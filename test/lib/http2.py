#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service that speaks HTTP/2 over TLS and breaks it, once for each id; then it answers well.

    http2.py --port N --control M --cert FILE --key FILE

The body of a request names the fault (the functions below) and an id: {"fault": NAME, "id": ID}.
GET /books on the control port: for each id how many requests came as a whole, and how many were carried out.
GET /cut/N there: a port that passes on what comes to port N; the k-th connection to it is cut when the service has
sent 32 k bytes.
GET /narrow/N there: a port whose connections take N streams at once, and one after a dozen requests; more are refused.
/books has its figures: most at once, too_many after the client had acknowledged the limit, served.
"""
import asyncio
import json
import struct

from control import listen, options, reset

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL = 0, 2, 7, 8
MAX_CONCURRENT_STREAMS = 3
BODY = b'"well"'

came = {}
done = {}
narrow = {}
said = options()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(stream, length=None):
    """Status 200 and the type (HPACK without its tables of names and Huffman), with a length or none."""
    def field(name, value):
        return bytes([15, name - 15, len(value)]) + value
    block = b"\x88" + field(31, b"application/json") + (field(28, b"%d" % length) if length is not None else b"")
    return frame(HEADERS, END_HEADERS, stream, block)


def data(stream, body, end=False):
    return frame(DATA, END_STREAM if end else 0, stream, body)


def rst(stream, code):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last, code=NO_ERROR):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


def well(stream):
    return head(stream) + data(stream, BODY, True)


# the bytes to send, and whether the connection ends afterwards: "fin", "reset" or not; NOT_DONE: the service reports it
FAULTS = {
    "rst_at_once": lambda s: (rst(s, INTERNAL_ERROR), None),
    "refused_stream": lambda s: (rst(s, REFUSED_STREAM), None),
    "rst_after_head": lambda s: (head(s) + rst(s, INTERNAL_ERROR), None),
    "rst_in_body": lambda s: (head(s, 6) + data(s, BODY[:3]) + rst(s, CANCEL), None),
    "rst_in_body_no_length": lambda s: (head(s) + data(s, BODY[:3]) + rst(s, CANCEL), None),
    "rst_in_body_no_error": lambda s: (head(s) + data(s, BODY[:3]) + rst(s, NO_ERROR), None),
    "rst_for_the_end": lambda s: (head(s) + data(s, BODY) + rst(s, INTERNAL_ERROR), None),
    "close_at_once": lambda s: (b"", "fin"),
    "reset_at_once": lambda s: (b"", "reset"),
    "close_after_head": lambda s: (head(s), "fin"),
    "close_in_body": lambda s: (head(s) + data(s, BODY[:3]), "fin"),
    "close_in_body_of_length": lambda s: (head(s, 6) + data(s, BODY[:3]), "fin"),
    "close_for_the_end": lambda s: (head(s) + data(s, BODY), "fin"),
    "close_in_frame": lambda s: (head(s) + data(s, BODY)[:-3], "fin"),
    "reset_in_body": lambda s: (head(s) + data(s, BODY[:3]), "reset"),
    "goaway_of_none": lambda s: (goaway(0), "fin"),
    "goaway_of_none_open": lambda s: (goaway(0), None),
    "goaway_in_body": lambda s: (head(s) + data(s, BODY[:3]) + goaway(s, INTERNAL_ERROR), "fin"),
    "goaway_before_end": lambda s: (head(s) + goaway(s) + data(s, BODY), "fin"),
    "bad_frame": lambda s: (head(s) + data(s, BODY[:3]) + b"\0\0\5\0\0\0\0\0\0hello", "fin"),
    "shorter_than_said": lambda s: (head(s, 60) + data(s, BODY, True), None),
    "longer_than_said": lambda s: (head(s, 3) + data(s, BODY, True), None),
    "other_stream": lambda s: (well(s + 2000), "fin"),
    # these are answers
    "well": lambda s: (well(s), None),
    "goaway_and_answer": lambda s: (goaway(s) + well(s), "fin"),
    "answer_and_goaway": lambda s: (well(s) + goaway(s), "fin"),
    "two_answers": lambda s: (well(s) + well(s), None),
    "answer_and_rst": lambda s: (well(s) + rst(s, NO_ERROR), None),
}
NOT_DONE = {"refused_stream", "goaway_of_none", "goaway_of_none_open"}


async def answer(writer, stream, body):
    """Returns how the connection ends; None: it goes on."""
    request = json.loads(body)
    number = came[request["id"]] = came.get(request["id"], 0) + 1
    name = request["fault"] if number == 1 else "well"
    if name not in NOT_DONE:
        done[request["id"]] = done.get(request["id"], 0) + 1
    what, end = FAULTS[name](stream)
    writer.write(what)
    await writer.drain()
    return end


async def serve(reader, writer):
    bodies = {}
    end = None
    try:
        await reader.readexactly(24)
        writer.write(frame(SETTINGS, 0, 0))
        while end is None:
            length, kind, flags, stream = struct.unpack(">IBBI", b"\0" + await reader.readexactly(9))
            payload = await reader.readexactly(length)
            if kind in (SETTINGS, PING) and not flags & ACK:
                writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                end = await answer(writer, stream, bodies.pop(stream))
        if end == "reset":
            await asyncio.sleep(0.01)
            reset(writer)
            writer.transport.abort()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


class Cut:
    def __init__(self, to):
        self.to = to
        self.connections = 0

    async def serve(self, reader, writer):
        left = 32 * self.connections
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self.to)

        async def forth():
            while some := await reader.read(65536):
                back.write(some)
        sender = asyncio.create_task(forth())
        try:
            while left > 0 and (some := await there.read(left)):
                writer.write(some)
                await writer.drain()
                left -= len(some)
            if left == 0:
                # a part that the client has not read yet would be lost with a RST
                await there.read(1)
        except OSError:
            pass
        finally:
            sender.cancel()
            writer.close()
            back.close()


class Narrow:
    def __init__(self, limit):
        self.limit = limit
        self.figures = {"most": 0, "too_many": 0, "served": 0}

    async def answer(self, writer, stream, body, streams):
        await asyncio.sleep(0.05)
        request = json.loads(body)
        came[request["id"]] = came.get(request["id"], 0) + 1
        done[request["id"]] = done.get(request["id"], 0) + 1
        self.figures["served"] += 1
        streams.discard(stream)
        try:
            writer.write(well(stream))
            await writer.drain()
        except OSError:
            pass

    async def serve(self, reader, writer):
        bodies = {}
        streams = set()
        told = [self.limit]
        acknowledged = 1 << 30
        tasks = []
        try:
            await reader.readexactly(24)
            writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", MAX_CONCURRENT_STREAMS, self.limit)))
            while True:
                length, kind, flags, stream = struct.unpack(">IBBI", b"\0" + await reader.readexactly(9))
                payload = await reader.readexactly(length)
                if kind == SETTINGS and flags & ACK:
                    acknowledged = told.pop(0)
                elif kind in (SETTINGS, PING) and not flags & ACK:
                    writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))
                elif kind == HEADERS:
                    streams.add(stream)
                    bodies[stream] = b""
                    self.figures["too_many"] += len(streams) > acknowledged
                    if len(streams) > self.limit:
                        streams.discard(stream)
                        del bodies[stream]
                        writer.write(rst(stream, REFUSED_STREAM))
                    self.figures["most"] = max(self.figures["most"], len(streams))
                elif kind == RST_STREAM:
                    streams.discard(stream)
                elif kind == DATA and stream in bodies:
                    bodies[stream] += payload
                if kind in (DATA, HEADERS) and flags & END_STREAM and stream in bodies:
                    tasks.append(asyncio.create_task(self.answer(writer, stream, bodies.pop(stream), streams)))
                    if len(tasks) == 12:
                        self.limit = 1
                        told.append(1)
                        writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", MAX_CONCURRENT_STREAMS, 1)))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def controlled(_, path, __):
    what, n = path[1:].split("/") if path.count("/") == 2 else ("books", 0)
    if what == "books":
        return {"came": came, "done": done, "narrow": {limit: port.figures for limit, port in narrow.items()}}
    if what == "narrow":
        narrow[n] = Narrow(int(n))
    server = await asyncio.start_server(narrow[n].serve if what == "narrow" else Cut(int(n)).serve, "127.0.0.1", 0,
                                        ssl=said.tls if what == "narrow" else None)
    return server.sockets[0].getsockname()[1]


async def main():
    said.tls.set_alpn_protocols(["h2"])
    await listen(said, serve, controlled)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
