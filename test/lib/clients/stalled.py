# SPDX-License-Identifier: PostgreSQL
"""A worker whose server takes its connection and then says nothing more: it makes another one, and ends when told to.

    stalled.py listen | query

listen: nothing is answered. query: LISTEN is answered, and the first statement of the worker is not.
"""
import socket
import struct
import sys
import threading
import time

import sas_worker
from sas_worker import worker

worker.ANSWER, worker.TELL = 1, 1
CANCEL = 80877102
made, again = [], threading.Event()


def read(conn, size):
    data = b""
    while len(data) < size:
        part = conn.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def message(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(conn):
    """The code of the first packet that asks for neither TLS nor GSS."""
    while True:
        size, code = struct.unpack("!ii", read(conn, 8))
        read(conn, size - 8)
        if code not in (80877103, 80877104):
            return code
        conn.sendall(b"N")


def serve(conn):
    if startup(conn) == CANCEL:         # later versions of psycopg ask for that
        conn.close()
        return
    made.append(conn)
    if len(made) > 1:
        again.set()
    settings = b"".join(message(b"S", pair) for pair in (b"client_encoding\0UTF8\0", b"server_version\0" + b"15.0\0"))
    conn.sendall(message(b"R", struct.pack("!i", 0)) + settings + message(b"K", struct.pack("!ii", 1, 1)) + message(b"Z", b"I"))
    heard = b""
    while sys.argv[1] == "query" and b"LISTEN" not in heard:
        heard += conn.recv(65536)
    if heard.startswith(b"Q"):
        conn.sendall(message(b"C", b"LISTEN\0") + message(b"Z", b"I"))
    elif heard:                         # the extended protocol
        conn.sendall(message(b"1") + message(b"2") + message(b"n") + message(b"C", b"LISTEN\0") + message(b"Z", b"I"))


def accept(server):
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, args=(server,), daemon=True).start()
runs = sas_worker.Worker(f"host=127.0.0.1 port={server.getsockname()[1]} user=x dbname=x sslmode=disable gssencmode=disable",
                         "work", lambda task: None, grace=0)
thread = threading.Thread(target=runs.run, daemon=True)
thread.start()
print("connects again" if again.wait(float(sys.argv[2])) else "waits for ever", flush=True)
runs.stop()
thread.join(float(sys.argv[2]))
print("goes on" if thread.is_alive() else "ends", flush=True)
