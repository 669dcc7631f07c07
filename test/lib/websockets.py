#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A service of WebSockets that writes each byte by hand, so that it can break every rule.

    websockets.py --port N --control N [--cert FILE --key FILE]

The path names a case, which is run by its first connection; later ones are left in peace. Cases of the groups 1 to 7,
9 and 10 of Autobahn's suite for clients have its numbers. A case is what is sent, the messages that are items, and
what a client has to say. The way of the answer to the handshake is a case as well. The messages of group 9 have a
sixteenth of their sizes, or are as many fewer, unless SAS_LONG is set; its items are told by length and MD5.

Control: GET / {cases: {NAME: {items, said, problem}}, results: {NAME: {said, masked, ended, connections, headers}}};
POST / {NAME: {...}} sets what the next connection of a name does: the attributes of a case, and connections: 0.
"""

import asyncio
import base64
import hashlib
import json
import os
import resource
import struct

from control import options, reset, listen as open_ports


def frame(kind, data=b"", final=True, bits=0, mask=False, size=None):
    n = len(data) if size is None else size
    length = struct.pack("!B", n | (0x80 if mask else 0)) if n < 126 else struct.pack("!BH", 126 | (0x80 if mask else 0), n) if n < 65536 else struct.pack("!BQ", 127, n)
    return bytes([kind | bits << 4 | (0x80 if final else 0)]) + length + (b"\1\2\3\4" + bytes(b ^ (i % 4 + 1) for i, b in enumerate(data)) if mask else data)


def closing(code=None, reason=b""):
    return frame(8, b"" if code is None else struct.pack("!H", code) + reason)


def value(data):
    """What a message is as an item."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


cases = {}
results = {}


def case(name, sent, items=(), said=(), problem=None, chop=0, **more):
    """said: what the client says; a number: it closes with that code. A case without problem is closed with 1000."""
    said = list(said)
    if problem is None and not any(s[0] == 8 for s in said if isinstance(s, list)):
        sent, said = sent + closing(1000), said + [[8, "1000"]]
    cases[name] = {"sent": sent, "items": [value(i) for i in items], "said": said, "problem": problem, "chop": chop, **more}


def fails(name, sent, code, problem, items=(), said=(), **more):
    # what comes behind the fault finds a closed connection: that resets it, and may cut off what was said before
    more["reset"] = more.get("reset", False) or more.get("chop", 0) > 0
    case(name, sent, items, list(said) + [[8, str(code)]], problem, **more)


def messages():
    for i, n in enumerate((0, 125, 126, 127, 128, 65535, 65536, 65536), 1):
        text, data = b"*" * n, b"\xfe" * n
        case(f"1.1.{i}", frame(1, text), [text] if n else [], chop=997 if i == 8 else 0)
        case(f"1.2.{i}", frame(2, data), [data] if n else [], chop=997 if i == 8 else 0)


def pings():
    case("2.1", frame(9), said=[[10, ""]])
    case("2.2", frame(9, b"Hello, world!"), said=[[10, "Hello, world!"]])
    case("2.3", frame(9, b"\x01\xff\xfe\xfd\xfc\xfb\x00\xff"), said=[[10, "\x01\xff\xfe\xfd\xfc\xfb\x00\xff"]])
    case("2.4", frame(9, b"\xfe" * 125), said=[[10, "\xfe" * 125]])
    fails("2.5", frame(9, b"\xfe" * 126), 1002, "a frame is not valid")
    case("2.6", frame(9, b"\xfe" * 125), said=[[10, "\xfe" * 125]], chop=1)
    case("2.7", frame(10))
    case("2.8", frame(10, b"unsolicited"))
    case("2.9", frame(10, b"unsolicited") + frame(9, b"ping"), said=[[10, "ping"]])
    for i, chop in ((10, 0), (11, 1)):
        case(f"2.{i}", b"".join(frame(9, b"payload-%d" % n) for n in range(10)), said=[[10, f"payload-{n}"] for n in range(10)], chop=chop)


def reserved():
    bit = "a frame has a reserved bit set"
    fails("3.1", frame(1, b"Hello", bits=1), 1002, bit)
    fails("3.2", frame(1, b"Hello") + frame(1, b"Hello", bits=2), 1002, bit, [b"Hello"])
    fails("3.3", frame(1, b"Hello") + frame(1, b"Hello", bits=3), 1002, bit, [b"Hello"])
    fails("3.4", frame(1, b"Hello") + frame(1, b"Hello", bits=4), 1002, bit, [b"Hello"], chop=1)
    fails("3.5", frame(2, b"\0\xff", bits=5), 1002, bit)
    fails("3.6", frame(9, b"ping", bits=6), 1002, bit)
    fails("3.7", frame(8, bits=7), 1002, bit)
    opcode = "a frame has an unknown opcode"
    for i in range(5):
        more = (b"" if i < 1 else b"reserved")
        fails(f"4.1.{i + 1}", frame(1, b"Hello") + frame(3 + i, more), 1002, opcode, [b"Hello"], chop=1 if i > 2 else 0)
        fails(f"4.2.{i + 1}", frame(1, b"Hello") + frame(11 + i, more), 1002, opcode, [b"Hello"], chop=1 if i > 2 else 0)


def fragments():
    a, b, c, d = b"fragment1", b"fragment2", b"fragment3", b"fragment4"
    none, twice = "a frame continues no message", "a message begins in the middle of another one"
    fails("5.1", frame(9, a, False) + frame(0, b), 1002, "a frame is not valid")
    fails("5.2", frame(10, a, False) + frame(0, b), 1002, "a frame is not valid")
    for i, chop in ((3, 0), (4, 0), (5, 1)):
        case(f"5.{i}", frame(1, a, False) + frame(0, b), [a + b], chop=chop)
    for i, chop in ((6, 0), (7, 0), (8, 1)):
        case(f"5.{i}", frame(1, a, False) + frame(9, b"ping") + frame(0, b), [a + b], [[10, "ping"]], chop=chop)
    for i, chop in ((9, 0), (10, 0), (11, 1)):
        fails(f"5.{i}", frame(0, b"non-continuation") + frame(1, b"Hello"), 1002, none, chop=chop)
    for i, chop in ((12, 0), (13, 0), (14, 1)):
        fails(f"5.{i}", frame(0, b"non-continuation", False) + frame(1, b"Hello"), 1002, none, chop=chop)
    fails("5.15", frame(1, a, False) + frame(0, b) + frame(0, c, False) + frame(1, d), 1002, none, [a + b])
    fails("5.16", (frame(0, a, False) + frame(1, b, False) + frame(0, c)) * 2, 1002, none)
    fails("5.17", (frame(0, a) + frame(1, b, False) + frame(0, c)) * 2, 1002, none)
    fails("5.18", frame(1, a, False) + frame(1, b), 1002, twice)
    mixed = frame(1, a, False) + frame(0, b, False) + frame(9, b"ping 1") + frame(0, c, False) + frame(0, d, False) + frame(9, b"ping 2") + frame(0, b"end")
    for i, chop in ((19, 0), (20, 1)):
        case(f"5.{i}", mixed, [a + b + c + d + b"end"], [[10, "ping 1"], [10, "ping 2"]], chop=chop)


def texts():
    good = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    bad = "a text message is not valid UTF-8"
    case("6.1.1", frame(1))
    case("6.1.2", frame(1, b"", False) + frame(0, b"", False) + frame(0, b""))
    case("6.1.3", frame(1, b"", False) + frame(0, b"middle", False) + frame(0, b""), [b"middle"])
    case("6.2.1", frame(1, good), [good])
    case("6.2.2", frame(1, good[:12], False) + frame(0, good[12:]), [good])
    case("6.2.3", b"".join(frame(0 if i else 1, good[i:i + 1], False) for i in range(len(good))) + frame(0), [good])
    greek = "κόσμε".encode()
    case("6.2.4", b"".join(frame(0 if i else 1, greek[i:i + 1], False) for i in range(len(greek))) + frame(0), [greek])
    wrong = greek + b"\xed\xa0\x80edited"
    fails("6.3.1", frame(1, wrong), 1007, bad)
    fails("6.3.2", b"".join(frame(0 if i else 1, wrong[i:i + 1], False) for i in range(len(wrong))) + frame(0), 1007, bad)
    fails("6.4.1", frame(1, greek + b"\xf4", False) + frame(0, b"\x90\x80\x80", False), 1007, bad)
    fails("6.4.2", frame(1, greek + b"\xf4\x90", False), 1007, bad)
    fails("6.4.3", frame(1, greek + b"\xf4\x90\x80\x80edited", size=60), 1007, bad)
    fails("6.4.4", frame(1, greek + b"\xf4\x90", size=60), 1007, bad, chop=1)
    valid = [b"\xce\xba", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80", b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\xed\x9f\xbf", b"\xee\x80\x80",
             b"\xef\xbf\xbd", b"\xef\xbf\xbe", b"\xf0\x9f\xbf\xbe"]
    invalid = [b"\xce", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf", b"\xf4\x90\x80\x80", b"\x80", b"\xbf",
               b"\x80\xbf\x80", b"\xc0 \xc1 ", b"\xe0 \xe1 ", b"\xf0 \xf1 ", b"\xfe", b"\xff", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf",
               b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xbf\xbf", b"\xed\xa0\x80\xed\xb0\x80"]
    for i, text in enumerate(valid):
        case(f"6.v{i + 1}", frame(1, text), [text])
    for i, text in enumerate(invalid):
        fails(f"6.i{i + 1}", frame(1, text), 1007, bad)


def closes():
    code, end = "a close frame has no valid code", [[8, ""]]
    case("7.1.1", frame(1, b"Hello World!"), [b"Hello World!"])
    case("7.1.2", closing(1000) + closing(1000), said=[[8, "1000"]])
    case("7.1.3", closing(1000) + frame(9), said=[[8, "1000"]])
    case("7.1.4", closing(1000) + frame(1, b"late"), said=[[8, "1000"]])
    case("7.1.5", frame(1, b"fragment1", False) + closing(1000) + frame(0, b"fragment2"), said=[[8, "1000"]], problem="the stream ended in the middle of an item")
    case("7.1.6", frame(1, b"BAsd7&jh23" * 6000) + closing(1000) + frame(9), [b"BAsd7&jh23" * 6000], [[8, "1000"]])
    case("7.3.1", closing(), said=end)
    fails("7.3.2", frame(8, b"a"), 1002, code)
    case("7.3.3", closing(1000), said=[[8, "1000"]])
    case("7.3.4", closing(1000, b"Hello World!"), said=[[8, "1000"]])
    case("7.3.5", closing(1000, b"*" * 123), said=[[8, "1000"]])
    fails("7.3.6", frame(8, struct.pack("!H", 1000) + b"*" * 124), 1002, "a frame is not valid")
    fails("7.5.1", closing(1000, "κόσμε".encode() + b"\xed\xa0\x80edited"), 1007, "the reason of a close frame is not valid UTF-8")
    for i, n in enumerate((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999), 1):
        case(f"7.7.{i}", closing(n), said=[[8, str(n)]], problem=f"close code {n}" if n > 1001 else None)
    for i, n in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        fails(f"7.9.{i}", closing(n), 1002, code)
    fails("7.13.1", closing(5000), 1002, code)
    fails("7.13.2", closing(65535), 1002, code)
    case("reason", closing(1013, b"come back later"), said=[[8, "1013"]], problem="close code 1013: come back later")


def beyond():
    """What the suite does not ask a client."""
    long = b"*" * 65536
    case("10.1.1", b"".join(frame(0 if i else 1, long[i:i + 1300], i + 1300 >= len(long)) for i in range(0, len(long), 1300)), [long])
    fails("masked", frame(1, b"Hello") + frame(1, b"Hello", mask=True), 1002, "a frame of the service is masked", [b"Hello"])
    fails("long", bytes([0x82, 126, 0, 5]) + b"short", 1002, "a frame is not valid")
    fails("endless", bytes([0x82, 127]) + b"\x7f" + b"\xff" * 7 + b"x", 1009, "an item is larger than max_response")
    fails("large", frame(1, b"x" * 300001), 1009, "an item is larger than max_response", reset=True)
    fails("large_parts", b"".join(frame(1 if i == 0 else 0, b"x" * 50000, False) for i in range(5)), 1009, "an item is larger than max_response", reset=True)
    case("json", frame(1, b'{"a": [1, null]}') + frame(2, b"2"), [b'{"a": [1, null]}', b"2"])
    case("drip", frame(1, b"one") + frame(1, b"two", False) + frame(9, b"?") + frame(0, b"three"), [b"one", b"twothree"], [[10, "?"]], chop=1, pause=0.02)
    case("at_once", frame(1, b"first") + frame(9, b"!") + frame(1, b"second"), [b"first", b"second"], [[10, "!"]], together=True)
    case("parted", frame(1, b"first"), [b"first"], chop_head=1)
    case("half", frame(1, b"first"), [b"first"], [], "the connection ended without a close frame", ends="eof")
    case("half_frame", frame(1, b"first") + b"\x81\x05He", [b"first"], [], "the connection ended without a close frame", ends="eof")
    case("torn", frame(1, b"first"), [b"first"], [], "the connection broke in the middle of the answer", ends="reset")
    case("interim", frame(1, b"first"), [b"first"], answer="HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 101 Go\r\nupgrade: WebSocket\r\nconnection: keep-alive, upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n")


def limits():
    shrink = 1 if os.environ.get("SAS_LONG") else 16

    def large(name, kind, n, fragment=0, chop=0, times=1):
        data, part = (b"*" if kind == 1 else b"\xfe") * n, fragment or max(n, 1)
        text = data if kind == 1 else base64.b64encode(data)
        cases[name] = {
            # not kept: all of them together are large
            "sent": lambda: b"".join(frame(0 if i else kind, data[i:i + part], i + part >= n) for i in range(0, max(n, 1), part)) * times + closing(1000),
            "items": [[len(text), hashlib.md5(text).hexdigest()]] * times if n else [], "said": [[8, "1000"]], "problem": None, "chop": chop}

    for kind in (1, 2):
        for i, n in enumerate((64, 256, 1024, 4096, 8192, 16384), 1):
            large(f"9.{kind}.{i}", kind, n * 1024 // shrink)
        for i in range(9):
            large(f"9.{kind + 2}.{i + 1}", kind, (4 << 20) // shrink, fragment=64 << 2 * i)
        for i in range(6):
            large(f"9.{kind + 4}.{i + 1}", kind, (1 << 20) // shrink, chop=64 << i)
        for i, n in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            large(f"9.{kind + 6}.{i}", kind, n, times=1000 // shrink)


def refused():
    head = "HTTP/1.1 101 Switching Protocols\r\n"
    accept = "Sec-WebSocket-Accept: {accept}\r\n"
    good = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    for name, answer, problem in (
            ("no_accept", head + good + "\r\n", "no valid Sec-WebSocket-Accept"),
            ("wrong_accept", head + good + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", "no valid Sec-WebSocket-Accept"),
            ("no_upgrade", head + "Connection: Upgrade\r\n" + accept + "\r\n", "switched to something else"),
            ("other_upgrade", head + "Upgrade: h2c\r\nConnection: Upgrade\r\n" + accept + "\r\n", "switched to something else"),
            ("no_connection", head + "Upgrade: websocket\r\n" + accept + "\r\n", "switched to something else"),
            ("extension", head + good + accept + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "extension of WebSocket that was not offered"),
            ("protocol", head + good + accept + "Sec-WebSocket-Protocol: chat\r\n\r\n", "subprotocol that was not offered"),
            ("status_200", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "does not speak WebSocket here"),
            ("status_403", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403"),
            ("status_503", "HTTP/1.1 503 Not now\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", "503"),
            ("no_http", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "not valid HTTP"),
            ("nothing", "", "the connection broke before an answer came"),
            ("half_head", "HTTP/1.1 101 Switch", "the connection broke before an answer came"),
            ("long_head", head + "X-Long: " + "x" * 300000, "the headers of the answer are too large"),
            ("many_heads", head + "X-Many: y\r\n" * 30000, "the headers of the answer are too large")):
        cases[name] = {"sent": b"", "items": [], "said": None, "problem": problem, "answer": answer, "ends": "eof"}


for make in (messages, pings, reserved, fragments, texts, closes, beyond, limits, refused):
    make()


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    length = second & 127
    if length == 126:
        length = struct.unpack("!H", await reader.readexactly(2))[0]
    elif length == 127:
        length = struct.unpack("!Q", await reader.readexactly(8))[0]
    mask = await reader.readexactly(4) if second & 128 else b"\0" * 4
    data = bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(length)))
    text = str(struct.unpack("!H", data[:2])[0]) if first & 15 == 8 and length > 1 else data.decode("latin-1")
    return [first & 15, text], bool(second & 128)


async def write(writer, data, chop, pause=0.0):
    for i in range(0, len(data), chop or max(len(data), 1)):
        writer.write(data[i:i + chop] if chop else data)
        await writer.drain()
        if chop:
            await asyncio.sleep(pause)


async def listen(reader, result):
    try:
        while True:
            said, masked = await read_frame(reader)
            result["said"].append(said)
            result["masked"] = result["masked"] and masked
            if said[0] == 9 and result["answers"]:
                result["writer"].write(frame(10, said[1].encode("latin-1")))
    except asyncio.IncompleteReadError:
        result["ended"] = "eof"
    except OSError:
        result["ended"] = "reset"


async def serve_one(reader, writer):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    name = lines[0].split(" ")[1].lstrip("/").split("?")[0]
    headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:] if ":" in line)}
    result = results.setdefault(name, {"connections": 0, "go": asyncio.Event()})
    result["connections"] += 1
    what = cases.get(name, {}) if result["connections"] == 1 else {}
    if result["connections"] == 1 or name not in cases:
        result.update(request=lines[0], headers=headers)
    own = {"said": [], "masked": True, "ended": None, "answers": not what.get("deaf"), "writer": writer}
    if result["connections"] == 1:
        result["own"] = own
    result["last"] = own
    accept = base64.b64encode(hashlib.sha1((headers.get("sec-websocket-key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    answer = what.get("answer", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n").replace("{accept}", accept).encode()
    sent = what.get("sent", b"")
    sent = sent() if callable(sent) else sent
    listening = asyncio.ensure_future(listen(reader, own))
    if what.get("held"):
        await result["go"].wait()
    try:
        if what.get("together"):
            writer.write(answer + sent)
        else:
            await write(writer, answer, what.get("chop_head", 0))
            await write(writer, sent, what.get("chop", 0), what.get("pause", 0))
    except OSError:
        pass                                # it does not want the rest
    if what.get("ends"):
        await writer.drain()
        await asyncio.sleep(0.2)
        (reset if what["ends"] == "reset" else asyncio.StreamWriter.close)(writer)
    await listening


async def serve(reader, writer):
    try:
        await serve_one(reader, writer)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        pass
    finally:
        writer.close()


def figures(entry):
    own, last = entry.get("own", {}), entry.get("last", {})
    return {**{k: entry.get(k) for k in ("connections", "request", "headers")}, **{k: own.get(k) for k in ("said", "masked", "ended")},
            "last_said": last.get("said"), "last_ended": last.get("ended")}


async def controlled(_, __, said):
    for name, what in said.items():
        if what.get("go"):
            results[name]["go"].set()
            continue
        what["sent"] = base64.b64decode(what.get("sent", ""))
        cases[name] = what
        results.pop(name, None)
    shown = {name: {k: c.get(k) for k in ("items", "said", "problem", "reset")} for name, c in cases.items()}
    return {"cases": shown, "results": {name: figures(entry) for name, entry in results.items()}}


async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    await open_ports(options(), serve, controlled)
    await asyncio.Event().wait()


asyncio.run(main())
