#!/usr/bin/env python3
# SPDX-License-Identifier: PostgreSQL
"""A link that can be cut: passes on what comes on one port of loopback to another.

    proxy.py --listen PORT --to PORT

SIGUSR1 cuts it: nothing passes any more, in either direction, and nobody is told (a network that swallows
packets); new connections are accepted and go nowhere.  SIGUSR2 heals it: what was on its way arrives.
"""
import argparse
import asyncio
import signal


class Link:
    def __init__(self, to):
        self.to = to
        self.open = asyncio.Event()
        self.open.set()

    async def pass_on(self, reader, writer):
        try:
            while data := await reader.read(65536):
                await self.open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self.open.wait()
            writer.close()

    async def serve(self, reader, writer):
        await self.open.wait()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.pass_on(reader, back), self.pass_on(there, writer))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", type=int, required=True)
    options = parser.parse_args()
    link = Link(options.to)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, link.open.clear)
    loop.add_signal_handler(signal.SIGUSR2, link.open.set)
    server = await asyncio.start_server(link.serve, "127.0.0.1", options.listen)
    print(f"listening on {options.listen}", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
