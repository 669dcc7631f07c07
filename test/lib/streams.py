#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service of streams: feeds of numbered items, and connections that behave as a test tells them to.

    streams.py --port N --control N [--cert FILE --key FILE]

The first segment of a path says how a feed is told, the second names it:

    /sse/F        Server-Sent Events; goes on behind Last-Event-ID
    /ndjson/F     a line per item; goes on behind ?after=N
    /long/F       long poll: an array of what is behind ?after=N, 204 after `patience` seconds without
    /ws/F         WebSocket; goes on behind the number that the first message says as {"after": N}
    /text/F       lines that are no JSON, and the Authorization of the request
    /state/F      the feed's state as JSON, with an ETag; 304 when it is as If-None-Match says

Item n is {"n": n} (with `pad` characters more), or n alone where the feed is `bare`. What a feed does is set by POST /feeds {F: {...}}:

    items: how many there are now              per: items of a connection, then it ends (how: close or reset)
    pad: characters in each item               state: anything, for /state
    patience: of a long poll                   status: what is answered instead of 200
    how: close (default) or reset at the end; at_once: ends without an item; drip: a byte every 5 ms;
         endless: one line without end; silent: an answer without an item; mute: no answer at all; garbage;
         html: 200 and a page; half: the last item is cut off, and the connection reset; unended: the end of the last
         item (its line feed) is missing, cut: a character of it, too, and the answer ends in good order
    greet: a line that each connection begins with; tail: a line or an event that it ends with behind `per` items
    held: true: connections get no answer until it is false
    cuts: so many answers to polls are cut off, by turns behind a length that is too large, and in a chunk

Control: POST /feeds, GET /feeds {F: {open, connections, told, last_event_ids, ...}}. POST /feeds keeps the rest of a
feed; items may be published one after the other by larger numbers. reset: true closes all connections of the feed.
"""

import asyncio
import base64
import hashlib
import json
import struct
import urllib.parse

from control import listen, options, reset


class Feed:
    def __init__(self):
        self.items = 0
        self.pad = 0
        self.per = 0
        self.state = None
        self.patience = 30
        self.status = 200
        self.how = "close"
        self.bare = False
        self.cuts = 0
        self.held = False
        self.greet = ""
        self.tail = ""
        self.open = set()
        self.connections = 0
        self.told = 0
        self.asked = []                     # Last-Event-ID or after, of each connection
        self.changed = asyncio.Condition()

    def item(self, n):
        if self.bare:
            return str(n)
        return json.dumps({"n": n, **({"pad": "x" * self.pad} if self.pad else {})})

    def figures(self):
        return {"open": len(self.open), "connections": self.connections, "told": self.told, "asked": self.asked[-50:]}


feeds = {}


def feed_of(name):
    if name not in feeds:
        feeds[name] = Feed()
    return feeds[name]


def head(status, kind, *more):
    return (f"HTTP/1.1 {status} Told\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n" + "".join(m + "\r\n" for m in more) + "\r\n").encode()


def chunk(data):
    data = data.encode() if isinstance(data, str) else data
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(status, body, *more):
    return (f"HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n" + "".join(m + "\r\n" for m in more) + "\r\n").encode() + body.encode()


def cut(feed, writer, body):
    """An answer whose last character is missing, though it is promised; the connection ends."""
    feed.cuts -= 1
    if feed.cuts % 2:
        writer.write(whole(200, body)[:-1])
    else:
        writer.write(head(200, "application/json") + b"%x\r\n%s" % (len(body), body.encode()[:-1]))


async def closed(feed, writer):
    async with feed.changed:
        await feed.changed.wait_for(writer.is_closing)


async def misbehave(feed, writer, kind):
    """What is wrong from the beginning; False: nothing is."""
    how = feed.how
    if how == "mute":
        await closed(feed, writer)
    elif how == "garbage":
        writer.write(bytes(range(128, 256)) * 8 + b"\r\n\r\n")
    elif how == "html":
        writer.write(head(200, "text/html") + chunk("<html>") + b"0\r\n\r\n")
    elif feed.status != 200:
        writer.write(whole(feed.status, "{}"))
    elif how in ("at_once", "silent", "endless", "drip"):
        writer.write(head(200, kind))
        if how == "at_once":
            writer.write(b"0\r\n\r\n")
        elif how == "silent":
            await closed(feed, writer)
        elif how == "endless":
            writer.write(chunk("data: " if "event" in kind else '"'))
            while True:
                writer.write(chunk("x" * 65536))
                await writer.drain()
        else:
            n = 0
            while True:
                n += 1
                for byte in (f"id: {n}\ndata: {feed.item(n)}\n\n" if "event" in kind else feed.item(n) + "\n"):
                    writer.write(chunk(byte))
                    await writer.drain()
                    await asyncio.sleep(0.005)
    else:
        return False
    await writer.drain()
    return True


async def tell_stream(feed, writer, after, kind):
    if await misbehave(feed, writer, kind):
        return False
    writer.write(head(200, kind))
    if feed.greet:
        writer.write(chunk(feed.greet + "\n"))
    at, told = after, 0
    while True:
        async with feed.changed:
            await feed.changed.wait_for(lambda: feed.items > at or writer.is_closing())
        if writer.is_closing():
            return False
        upto = min(feed.items, at + 500)
        if feed.per:
            upto = min(upto, at + feed.per - told)
        text = "".join(f"id: {n}\ndata: {feed.item(n)}\n\n" if "event" in kind else feed.item(n) + "\n" for n in range(at + 1, upto + 1))
        told += upto - at
        feed.told += upto - at
        at = upto
        ends = feed.per and told >= feed.per
        if ends and feed.how == "half":
            text = text[:-8]
        elif ends and feed.how in ("unended", "cut"):
            text = text[:-1] if feed.how == "unended" else text.rstrip("\n")[:-1]
        if ends and feed.tail:
            text += feed.tail + ("\n\n" if "event" in kind else "\n")
        writer.write(chunk(text))
        await writer.drain()
        if ends:
            if feed.how in ("reset", "half"):
                # what was sent is to arrive before the reset does
                await asyncio.sleep(0.05)
                reset(writer)
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return feed.how != "close"


def frame(kind, data, final=True):
    length = struct.pack("!B", len(data)) if len(data) < 126 else struct.pack("!BH", 126, len(data)) if len(data) < 65536 else struct.pack("!BQ", 127, len(data))
    return bytes([kind | (0x80 if final else 0)]) + length + data


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    length = second & 127
    if length == 126:
        length = struct.unpack("!H", await reader.readexactly(2))[0]
    mask = await reader.readexactly(4)
    return first & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(length)))


async def tell_websocket(feed, reader, writer, key):
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    writer.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
    _, hello = await read_frame(reader)
    at, told = json.loads(hello)["after"], 0
    feed.asked.append(str(at))
    # what it answers to pings; the end of it is noticed by watch_peers()
    asyncio.ensure_future(reader.read())
    while True:
        async with feed.changed:
            await feed.changed.wait_for(lambda: feed.items > at or writer.is_closing())
        if writer.is_closing():
            return False
        at, told = at + 1, told + 1
        data = feed.item(at).encode()
        feed.told += 1
        # whole, or in two parts with a ping between them
        if at % 3:
            writer.write(frame(1, data))
        else:
            writer.write(frame(1, data[:4], False) + frame(9, b"are you there") + frame(0, data[4:]))
        await writer.drain()
        if feed.per and told == feed.per:
            if feed.how == "reset":
                await asyncio.sleep(0.05)
                reset(writer)
            else:
                writer.write(frame(8, struct.pack("!H", 1000)))
                await writer.drain()
                await asyncio.sleep(0.2)
            return False


async def tell_long(feed, writer, after):
    if feed.how == "mute" or feed.status != 200:
        return not await misbehave(feed, writer, "application/json")
    try:
        async with feed.changed:
            await asyncio.wait_for(feed.changed.wait_for(lambda: feed.items > after), feed.patience)
    except asyncio.TimeoutError:
        writer.write(b"HTTP/1.1 204 Nothing\r\n\r\n")
        await writer.drain()
        return True
    upto = min(feed.items, after + (feed.per or 100))
    body = "[" + ",".join(feed.item(n) for n in range(after + 1, upto + 1)) + "]"
    if feed.bare and upto == after + 1:
        body = feed.item(upto)
    if feed.cuts:
        cut(feed, writer, body)
        await writer.drain()
        return False
    feed.told += upto - after
    writer.write(whole(200, body))
    await writer.drain()
    return True


async def tell_state(feed, writer, etag):
    body = json.dumps(feed.state)
    tag = f'"{hash(body):x}"'
    feed.told += 1
    if feed.cuts:
        cut(feed, writer, body)
        await writer.drain()
        return False
    if feed.status != 200:
        writer.write(whole(feed.status, "{}"))
    elif etag == tag:
        writer.write(f"HTTP/1.1 304 Same\r\nETag: {tag}\r\n\r\n".encode())
    else:
        writer.write(whole(200, body, *([f"ETag: {tag}"] if feed.how != "no_etag" else [])))
    await writer.drain()
    return True


async def one_request(reader, writer):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    _, target, _ = lines[0].split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:] if ":" in line)}
    url = urllib.parse.urlsplit(target)
    query = dict(urllib.parse.parse_qsl(url.query))
    way, name = url.path.split("/")[1:3]
    feed = feed_of(name)
    asked = headers.get("last-event-id") or query.get("after") or ""
    feed.connections += 1
    feed.asked.append(asked)
    after = int(asked) if asked.isdigit() else 0
    feed.open.add((reader, writer))
    try:
        async with feed.changed:
            await feed.changed.wait_for(lambda: not feed.held)
        if way == "sse":
            return await tell_stream(feed, writer, after, "text/event-stream")
        if way == "ndjson":
            return await tell_stream(feed, writer, after, "application/x-ndjson")
        if way == "long":
            return await tell_long(feed, writer, after)
        if way == "ws":
            return await tell_websocket(feed, reader, writer, headers.get("sec-websocket-key", ""))
        if way == "text":
            token = headers.get("authorization", "")
            lines = b"no JSON\n\xff\xfe\n" + json.dumps({"token": token[7:]}).encode() + b"\n" + token.encode() + b"\n"
            writer.write(head(200, "text/plain") + chunk(lines))
            await writer.drain()
            await asyncio.sleep(3600)
        return await tell_state(feed, writer, headers.get("if-none-match"))
    finally:
        feed.open.discard((reader, writer))


async def serve(reader, writer):
    try:
        while await one_request(reader, writer):
            pass
    except (OSError, asyncio.IncompleteReadError, ValueError):
        pass
    finally:
        writer.close()


async def watch_peers():
    """Connections whose peer has closed or reset them are closed, also those that nothing is told to.

    A process that is killed with something unread resets its connections: that is an error of the reader, not an end."""
    while True:
        await asyncio.sleep(0.05)
        for feed in list(feeds.values()):
            gone = [pair for pair in feed.open if pair[0].at_eof() or pair[0].exception() is not None]
            for reader, writer in gone:
                writer.close()
            if gone:
                async with feed.changed:
                    feed.changed.notify_all()


async def controlled(method, _, said):
    if method != "POST":
        return {name: feed.figures() for name, feed in feeds.items()}
    for name, what in said.items():
        feed = feed_of(name)
        again = what.pop("reset", False)
        for key, value in what.items():
            setattr(feed, key, value)
        if again:
            for _, one in list(feed.open):
                reset(one)
        async with feed.changed:
            feed.changed.notify_all()
    return {}


async def main():
    await listen(options(), serve, controlled)
    await watch_peers()


asyncio.run(main())
