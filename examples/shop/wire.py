# SPDX-License-Identifier: PostgreSQL
"""HTTP/1.1 for the demo shop: requests in, answers out, and the ways to break off."""

import asyncio
import json
import socket
import struct
import time

MAX_HEAD = 64 * 1024
MAX_BODY = 8 * 1024 * 1024

REASONS = {
    200: "OK", 201: "Created", 400: "Bad Request", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 422: "Unprocessable Content",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented",
    503: "Service Unavailable",
}


def to_json(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def problem(status, detail):
    """An answer that tells what is wrong, in the shape of RFC 9457."""
    return status, {"title": REASONS[status], "status": status, "detail": detail}


class Refused(Exception):
    """A request that cannot be carried out: (status, body)."""

    def __init__(self, status, detail):
        super().__init__(detail)
        self.answer = problem(status, detail)


class Request:
    __slots__ = ("method", "path", "query", "headers", "body", "keep_alive", "mono", "epoch", "row")

    def json(self):
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body is not a JSON object")
        return value


def parse_head(head):
    """Request line and headers; Refused when they are not HTTP."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refused(400, "not an HTTP/1 request")
    request = Request()
    request.method = parts[0]
    request.path, _, request.query = parts[1].partition("?")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t":
            raise Refused(400, "malformed header")
        headers[name.lower()] = value.strip()
    request.headers = headers
    connection = headers.get("connection", "").lower()
    request.keep_alive = ("keep-alive" in connection if parts[2] == "HTTP/1.0" else "close" not in connection)
    request.body = b""
    request.row = None
    return request


def parse_chunks(buffer, start):
    """A chunked body that begins at start: (body, end), or None while it is not complete."""
    body = bytearray()
    at = start
    while True:
        eol = buffer.find(b"\r\n", at)
        if eol < 0:
            return None
        try:
            size = int(bytes(buffer[at:eol]).split(b";")[0], 16)
        except ValueError:
            raise Refused(400, "malformed chunk") from None
        if size < 0 or len(body) + size > MAX_BODY:
            raise Refused(413, "the body is too large")
        at = eol + 2
        if size == 0:
            while True:                     # trailers, up to the empty line
                eol = buffer.find(b"\r\n", at)
                if eol < 0:
                    return None
                if eol == at:
                    return bytes(body), at + 2
                at = eol + 2
        if len(buffer) < at + size + 2:
            return None
        body += buffer[at:at + size]
        at += size + 2


class Connection(asyncio.Protocol):
    """One client. Requests are answered one after the other, in the order they came.

    service has handle(connection, request), which sees to it that sooner or later answer(), send_raw() or
    drop() is called; note_answer(request, status); and the set connections.
    """

    __slots__ = ("service", "transport", "buffer", "request", "busy", "pumping", "closed", "mono", "epoch",
                 "continued")

    def __init__(self, service):
        self.service = service
        self.transport = None
        self.buffer = bytearray()
        self.request = None                 # the one being received or answered
        self.busy = False                   # an answer is owed
        self.pumping = False
        self.closed = False
        self.continued = False
        self.mono = self.epoch = 0.0

    def connection_made(self, transport):
        self.transport = transport
        self.service.connections.add(self)

    def connection_lost(self, exc):
        self.closed = True
        self.service.connections.discard(self)

    def data_received(self, data):
        if not self.buffer:                 # the first byte of a request
            self.mono = time.monotonic()
            self.epoch = time.time()
        self.buffer += data
        if len(self.buffer) > MAX_HEAD + 2 * MAX_BODY:
            self.transport.abort()
            return
        self.pump()

    def pump(self):
        """Handle every request that is complete."""
        if self.pumping:
            return
        self.pumping = True
        try:
            while self.buffer and not self.busy and not self.closed:
                try:
                    request = self.receive()
                except Refused as refused:
                    self.request = None
                    self.busy = True
                    self.answer(*refused.answer, close=True)
                    break
                if request is None:
                    break
                self.busy = True
                self.service.handle(self, request)
        finally:
            self.pumping = False

    def receive(self):
        """The next request, whole, or None."""
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise Refused(431, "the headers are too large")
            return None
        if head_end > MAX_HEAD:
            raise Refused(431, "the headers are too large")
        request = parse_head(self.buffer[:head_end])
        start = head_end + 4
        coding = request.headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise Refused(501, "transfer coding not known")
            self.say_continue(request)
            parsed = parse_chunks(self.buffer, start)
            if parsed is None:
                return None
            request.body, end = parsed
        else:
            length = request.headers.get("content-length", "0")
            if not length.isascii() or not length.isdigit():
                raise Refused(400, "malformed content-length")
            if len(length) > 9 or int(length) > MAX_BODY:
                raise Refused(413, "the body is too large")
            end = start + int(length)
            if len(self.buffer) < end:
                self.say_continue(request)
                return None
            request.body = bytes(self.buffer[start:end])
        del self.buffer[:end]
        request.mono, request.epoch = self.mono, self.epoch
        if self.buffer:                     # another one came with it
            self.mono, self.epoch = time.monotonic(), time.time()
        self.continued = False
        self.request = request
        return request

    def say_continue(self, request):
        if not self.continued and request.headers.get("expect", "").lower() == "100-continue":
            self.continued = True
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def answer(self, status, body, headers=(), close=False):
        """Answer the request at hand; body is bytes of JSON or a value."""
        request, self.request = self.request, None
        self.busy = False
        if self.closed:
            return
        if request is not None:
            self.service.note_answer(request, status)
        if not isinstance(body, bytes):
            body = to_json(body)
        close = close or request is None or not request.keep_alive
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(body)}\r\n"]
        lines.extend(f"{name}: {value}\r\n" for name, value in headers)
        lines.append("Connection: close\r\n\r\n" if close else "\r\n")
        head = "".join(lines).encode("latin-1")
        self.transport.write(head if request is not None and request.method == "HEAD" else head + body)
        if close:
            self.transport.close()
        elif self.buffer:
            self.pump()

    def send_raw(self, data, close=True):
        """Bytes that are not a proper answer."""
        if not self.closed:
            self.transport.write(data)
            if close:
                self.transport.close()

    def drop(self, reset):
        """Hang up without an answer, by a reset or by an orderly end."""
        if not self.closed:
            if reset:
                self.transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()
            else:
                self.transport.close()
