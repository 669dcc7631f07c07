#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""cable.py PORT SOCKET ...: a network between programs and a server, from each port of loopback to a unix socket.

SIGKILL cuts it: every connection is reset. SIGSTOP makes it silent: connections stay, and nothing comes through.
"""
import asyncio
import resource
import socket
import struct
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(pairs):
    def carry(path):
        async def connected(reader, writer):
            # a cut connection is reset, not closed cleanly
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                there, to = await asyncio.open_unix_connection(path)
            except OSError:
                writer.close()
                return
            await asyncio.gather(pump(reader, to), pump(there, writer))
        return connected

    servers = [await asyncio.start_server(carry(path), "127.0.0.1", int(port), reuse_address=True, backlog=200) for port, path in pairs]
    print("carries", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
asyncio.run(main(list(zip(sys.argv[1::2], sys.argv[2::2]))))
