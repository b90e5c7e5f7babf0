#!/usr/bin/env python3
"""Somebody on the network who does not know the job's key, and tries what it can on the ports of a run until it is
stopped: random bytes, connections that say nothing, hundreds at once, and our own protocol with a wrong key.

  scripts/stranger.py HOST .. -- PORT ..
"""
import os
import random
import signal
import socket
import sys
import time

hosts, ports = sys.argv[1 : sys.argv.index("--")], [int(p) for p in sys.argv[sys.argv.index("--") + 1 :]]
count = {"connected": 0, "refused": 0, "random bytes": 0, "silent": 0, "hung up": 0, "wrong key": 0, "let in": 0}
kept = []


def report(*_):
    print(", ".join(f"{name} {number}" for name, number in count.items()), flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, report)
random.seed(1)


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return data
        data += part
    return data


def once(host, port):
    connection = socket.create_connection((host, port), timeout=0.3)
    count["connected"] += 1
    way = random.choice(["random bytes", "silent", "hung up", "wrong key", "flood"])
    try:
        if way == "random bytes":
            connection.sendall(os.urandom(random.randint(1, 5000)))
        elif way == "silent":
            kept.append(connection)
        elif way == "flood":
            for _ in range(300):
                kept.append(socket.create_connection((host, port), timeout=0.3))
                count["connected"] += 1
        elif way == "wrong key":
            # A challenge of 24 bytes is answered with 16 random ones, a rank, and a code of 32 bytes; the verdict
            # is a magic number, 1 or 0, and a code.
            receive(connection, 24)
            connection.sendall(os.urandom(16) + (1).to_bytes(4, "little") + bytes(4) + os.urandom(32))
            verdict = receive(connection, 40)
            if int.from_bytes(verdict[4:8], "little") == 1:
                count["let in"] += 1
        else:
            connection.close()
    except OSError:
        pass
    if way in count:
        count[way] += 1
    del kept[:-600]


while True:
    for host in hosts:
        for port in ports:
            try:
                once(host, port)
            except OSError:
                count["refused"] += 1
                time.sleep(0.005)
