#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service each of whose paths breaks HTTP in a way of its own, once for each id; then it answers well.

    faults.py --port N [--address A] [--cert FILE --key FILE]

POST /NAME/ID: the first request meets fault NAME (the functions below), all others get "well".
GET /asked/NAME/ID: how many came.

Control port: GET /done/NAME/ID: 1 when all of the fault has been written, 0 before.
"""
import array
import asyncio
import fcntl
import gzip
import json
import socket
import termios

from control import listen, options, reset

WELL = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n"well"'
BAD = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n"forged"'
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_WELL = CHUNKED + b'6\r\n"well"\r\n0\r\n\r\n'
BOMB = gzip.compress(b"0" * 20_000_000)
OPEN_ENDED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"well"'


async def drip(writer, data, seconds):
    for n in range(len(data)):
        writer.write(data[n:n + 1])
        await writer.drain()
        await asyncio.sleep(seconds)


async def flood(writer, data):
    """Four megabytes of it."""
    some = data * (16384 // len(data) + 1)
    for _ in range(256):
        writer.write(some)
        await writer.drain()
        await asyncio.sleep(0)


async def arrived(writer):
    """Returns when the other side's TCP has all that was written, or is gone."""
    left = array.array("i", [1])
    try:
        await writer.drain()
        while left[0] > 0 and not writer.transport.is_closing():
            await asyncio.sleep(0.001)
            fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, left)
    except (OSError, AttributeError):  # the connection is gone, and with it its socket
        pass


def told(data):
    """A fault that is these bytes, and then the end of the connection."""
    async def give(writer):
        writer.write(data)
        await writer.drain()
    return give


def status(line, headers=b"Content-Length: 6\r\n", body=b'"well"'):
    return told(line + b"\r\n" + headers + b"\r\n" + body)


async def hang(writer):
    await asyncio.sleep(60)


async def hang_in_body(writer):
    writer.write(WELL[:-3])
    await asyncio.sleep(60)


async def slow(writer):
    await drip(writer, WELL, 0.2)


async def slow_but_in_time(writer):
    await drip(writer, WELL, 0.004)


async def informed(writer):
    """A flood of interim answers that never ends in one."""
    await flood(writer, b"HTTP/1.1 100 Continue\r\n\r\n")


async def early_hints(writer):
    await flood(writer, b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n")


async def headers(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await flood(writer, b"X-A: b\r\n")


async def one_header(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    await flood(writer, b"x" * 64)


async def status_line(writer):
    writer.write(b"HTTP/1.1 200 ")
    await flood(writer, b"x" * 64)


async def trailers(writer):
    writer.write(CHUNKED + b'6\r\n"well"\r\n0\r\n')
    await flood(writer, b"X-Trailer: b\r\n")


async def extension(writer):
    writer.write(CHUNKED + b"6;")
    await flood(writer, b"x" * 64)


async def chunk_sizes(writer):
    """Zeros before the size, for ever."""
    writer.write(CHUNKED)
    await flood(writer, b"0" * 64)


async def endless(writer):
    writer.write(CHUNKED)
    await flood(writer, b"1\r\nx\r\n")


async def endless_open(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    await flood(writer, b"x" * 4096)


async def bomb(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB)


async def two_answers(writer):
    """A second answer right behind the first: it must not pass for that of the next request.

    It comes when the first has been read; nobody could tell it from that of the next request if it came after that.  So a
    test that makes another waits until it is told to be written: the other side has acknowledged it."""
    writer.write(WELL)
    await asyncio.sleep(0.02)
    writer.write(BAD)
    await arrived(writer)
    return "keep"


async def meet():
    """Returns when two requests are here: they have a connection each."""
    global met
    if met is None or met.is_set():
        met = asyncio.Event()
        await met.wait()
    else:
        met.set()


async def well_together(writer):
    await meet()
    writer.write(WELL)
    return "keep"


async def two_together(writer):
    await meet()
    return await two_answers(writer)


async def two_at_once(writer):
    writer.write(WELL + BAD)
    await arrived(writer)
    return "keep"


async def more_than_said(writer):
    writer.write(WELL + b'"more"')
    await arrived(writer)
    return "keep"


async def open_cut(writer):
    """Without a length, and the connection ends below TLS: nothing says that this was all."""
    writer.write(OPEN_ENDED[:-2])
    await writer.drain()
    writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.5)


def later(value):
    return told(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: " + value + b"\r\n\r\n")


def text(kind, body):
    return told(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body)


FAULTS = {
    "hang": hang, "hang_in_body": hang_in_body, "slow": slow, "slow_but_in_time": slow_but_in_time,
    "informed": informed, "early_hints": early_hints, "headers": headers, "one_header": one_header, "status_line": status_line,
    "trailers": trailers, "extension": extension, "chunk_sizes": chunk_sizes, "endless": endless, "endless_open": endless_open,
    "bomb": bomb, "two_answers": two_answers, "two_at_once": two_at_once, "more_than_said": more_than_said,
    "longer_said": told(WELL.replace(b"Length: 6", b"Length: 60")),
    "negative_length": told(WELL.replace(b"Length: 6", b"Length: -6")),
    "no_number_length": told(WELL.replace(b"Length: 6", b"Length: six")),
    "absurd_length": told(WELL.replace(b"Length: 6", b"Length: 99999999999999999999999")),
    "large_length": told(WELL.replace(b"Length: 6", b"Length: 9000000000000000000")),
    "two_lengths": told(WELL.replace(b"Length: 6", b"Length: 6\r\nContent-Length: 3")),
    "list_of_lengths": told(WELL.replace(b"Length: 6", b"Length: 6, 3")),
    "length_and_chunks": told(CHUNKED_WELL.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1)),
    "no_hex_chunk": told(CHUNKED + b'zz\r\n"well"\r\n0\r\n\r\n'),
    "negative_chunk": told(CHUNKED + b'-6\r\n"well"\r\n0\r\n\r\n'),
    "absurd_chunk": told(CHUNKED + b'fffffffffffffffffffff\r\n"well"\r\n0\r\n\r\n'),
    "large_chunk": told(CHUNKED + b'7fffffffffffffff\r\n"well"\r\n0\r\n\r\n'),
    "chunk_without_end": told(CHUNKED + b'6\r\n"well"0\r\n\r\n'),
    "chunk_short": told(CHUNKED + b'4\r\n"well"\r\n0\r\n\r\n'),
    "chunk_long": told(CHUNKED + b'8\r\n"well"\r\n0\r\n\r\n'),
    "no_last_chunk": told(CHUNKED + b'6\r\n"well"\r\n'),
    "nothing": told(b""), "one_byte": told(b"H"), "no_http": told(b"SSH-2.0-OpenSSH_9.2\r\n"), "http_09": told(b'"well"'),
    "nul_in_header": status(b"HTTP/1.1 200 OK", b"X-A: a\0b\r\nContent-Length: 6\r\n"),
    "nul_in_status": status(b"HTTP/1.1 200 O\0K"),
    "status_99": status(b"HTTP/1.1 99 Low"), "status_0": status(b"HTTP/1.1 000 None"), "status_1000": status(b"HTTP/1.1 1000 High"),
    "status_text": status(b"HTTP/1.1 OK"), "status_negative": status(b"HTTP/1.1 -200 OK"), "status_600": status(b"HTTP/1.1 600 What"),
    "switching": told(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x04well"),
    "version_9": status(b"HTTP/9.1 200 OK"), "version_2": status(b"HTTP/2 200 OK"),
    "not_modified": status(b"HTTP/1.1 304 Not Modified", b"", b""),
    "later_in_the_past": later(b"Sun, 06 Nov 1994 08:49:37 GMT"), "later_in_words": later(b"soon"), "later_negative": later(b"-5"),
    "later_empty": later(b""), "open_cut": open_cut,
    # these are answers
    "no_reason": status(b"HTTP/1.1 200"), "version_0": status(b"HTTP/1.0 200 OK"), "open_end": told(OPEN_ENDED),
    "no_colon": status(b"HTTP/1.1 200 OK", b"no colon here\r\nContent-Length: 6\r\nContent-Type: application/json\r\n"),
    "some_hints": told(b"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n" * 5 + WELL),
    "chunks": told(CHUNKED + b'2;a=b\r\n"w\r\n4\r\nell"\r\n0\r\nX-Trailer: b\r\n\r\n'),
    "latin": status(b"HTTP/1.1 200 OK", b"X-A: \xe4\xff\r\nContent-Length: 6\r\nContent-Type: application/json\r\n"),
    # and these are bodies
    "deep": text(b"application/json", b"[" * 1_000_000),
    "deep_closed": text(b"application/json", b"[" * 500_000 + b"]" * 500_000),
    "not_utf8": text(b"application/json", b'"\xff\xfe"'),
    "nul_text": text(b"text/plain", b"a\0b"),
    "nul_json": text(b"application/json", b'"\\u0000"'),
    "surrogate": text(b"application/json", b'"\\ud800"'),
    "large_number": text(b"application/json", b"1e400000"),
    "numbers": text(b"application/json", b"[" + b"1e131071," * 20_000 + b"1]"),
    "long_key": text(b"application/json", b'{"' + b"k" * 1_000_000 + b'": 1}'),
    "some_numbers": text(b"application/json", b"[1e6, 1e-5, 1.2e+4]"),
    "half_json": text(b"application/json", b'{"a": '),
}
LATER = {"later_absurd": later(b"99999999999999999999999"), "later_infinite": later(b"1e400")}
# FAULT_at_N: the answer cut at byte N, with a FIN or a RST
CUT = {"fin": WELL, "reset": WELL, "chunked_fin": CHUNKED_WELL, "chunked_reset": CHUNKED_WELL, "open_reset": OPEN_ENDED}

# two requests that have a connection each: one is answered well, the other twice
TOGETHER = {"well_together": well_together, "two_together": two_together}

# a redirect, and behind it the answer to the request that it leads to. libcurl reads no further than the end of a body that
# needs several reads, so that this answer waits in the socket
MOVED = b"x" * 40000
REDIRECTS = {"moved": told(b"HTTP/1.1 307 Moved\r\nLocation: /well/1\r\nContent-Length: %d\r\n\r\n" % len(MOVED) + MOVED + BAD)}

asked = {}
met = None


async def read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = 0
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    await reader.readexactly(length)
    return head.split(" ")[1]


async def answer(writer, path):
    """True: the connection is kept."""
    if path.startswith("/asked/"):
        body = json.dumps(asked.get(path[6:], 0)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return True
    asked[path] = asked.get(path, 0) + 1
    name = path.split("/")[1]
    if asked[path] > 1 or name == "well":
        writer.write(WELL)
        return True
    kind, _, n = name.rpartition("_at_")
    if kind in CUT:
        writer.write(CUT[kind][:int(n)])
        await writer.drain()
        if kind.endswith("reset"):
            await asyncio.sleep(0.01)
            reset(writer)
        return False
    kept = await (FAULTS.get(name) or LATER.get(name) or REDIRECTS.get(name) or TOGETHER[name])(writer) == "keep" or name in REDIRECTS
    asked["/done" + path] = 1
    return kept


async def serve(reader, writer):
    try:
        while await answer(writer, await read_request(reader)):
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def written(_method, path, _said):
    return asked.get(path, 0)


async def main():
    said = options(("--address", {"default": "127.0.0.1"}))
    await listen(said, serve, written, address=said.address)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
