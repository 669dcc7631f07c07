# SPDX-License-Identifier: PostgreSQL
"""What the services of the tests share: their options, TLS, the reset of a connection, and the port that a test controls them by."""

import argparse
import asyncio
import json
import socket
import ssl
import struct


def options(*more):
    """--port, --control, --cert and --key, and more options; `tls` is the context of the last two, or None."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control", type=int)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    for name, rest in more:
        parser.add_argument(name, **rest)
    said = parser.parse_args()
    said.tls = None
    if said.cert:
        said.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        said.tls.load_cert_chain(said.cert, said.key)
    return said


def reset(writer):
    """Closes a connection with a RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


def control(answer):
    """A server of the control port: `await answer(method, path, said)` returns what is answered, as JSON."""
    async def serve(reader, writer):
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = lines[0].split(" ")
            length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
            body = json.dumps(await answer(method, path, json.loads(await reader.readexactly(length) or b"{}"))).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
    return serve


async def listen(said, serve, answer=None, address="127.0.0.1"):
    """Opens both ports and says so."""
    if answer:
        await asyncio.start_server(control(answer), "127.0.0.1", said.control)
    await asyncio.start_server(serve, address, said.port, backlog=4096, ssl=said.tls)
    print(f"listening on {said.port}", flush=True)
