"""Rounds of a server and clients over TCP, measured at the server: model down, a sleep for training, update up."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from tests.reliability.sockets.network import FORK, Limits, enter, star

_HEADER = struct.Struct("!Qd")
_PORT = 5009
_CHUNK = bytes(65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rounds to measure: bytes down and up and seconds of training, one for each client; `control`: of TCP's congestion."""

    name: str
    limits: Limits
    up_bytes: Sequence[int]
    train_s: Sequence[float]
    down_bytes: int = 0
    rounds: int = 1
    control: str = "cubic"


def measure(case: Case) -> list[list[float]]:
    """Return the seconds from the opening of each round to the last byte of each client's update."""
    clients = len(case.up_bytes)
    with star(clients, case.limits) as names:
        children = [FORK.Process(target=_client, args=(names[i + 1], i, case), daemon=True) for i in range(clients)]
        ready, result = FORK.Pipe(duplex=False)
        server = FORK.Process(target=_serve, args=(names[0], case, result), daemon=True)
        server.start()
        for child in children:
            child.start()
        try:
            # A process that ends before the server has answered has failed.
            if ready not in wait([ready, server.sentinel, *(child.sentinel for child in children)], timeout=120.0):
                raise ConnectionError(f"{case.name}: a client or the server failed, or took over 120 s")
            times: list[list[float]] = ready.recv()
        finally:
            for process in (*children, server):
                process.terminate()
                process.join()
    return times


def _set_control(connection: socket.socket, name: str) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= connection.send(_CHUNK[:size])


def _receive(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes; returns the last piece of them."""
    data = b""
    while size > 0:
        data = connection.recv(min(size, 65_536))
        if not data:
            raise ConnectionError("the other side has gone")
        size -= len(data)
    return data


def _client(namespace: str, number: int, case: Case) -> None:
    enter(namespace)
    for _ in range(200):
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        _set_control(connection, case.control)
        try:
            connection.connect(("10.9.0.1", _PORT))
            break
        except OSError:
            connection.close()
            time.sleep(0.05)
    connection.sendall(bytes([number]))
    while True:
        try:
            down_bytes, train_s = _HEADER.unpack(_receive(connection, _HEADER.size))
        except ConnectionError:
            return  # the last round is over
        _receive(connection, down_bytes)
        time.sleep(train_s)
        _send(connection, case.up_bytes[number])


def _serve(namespace: str, case: Case, result: object) -> None:
    enter(namespace)
    clients = len(case.up_bytes)
    with socket.create_server(("10.9.0.1", _PORT), backlog=clients) as door:
        connections: dict[int, socket.socket] = {}
        while len(connections) < clients:
            connection, _ = door.accept()
            _set_control(connection, case.control)
            connections[_receive(connection, 1)[0]] = connection
    times = []
    for _ in range(case.rounds):
        ends, begin = [0.0] * clients, time.monotonic()

        def play(number: int, ends: list[float] = ends, begin: float = begin) -> None:
            connection = connections[number]
            connection.sendall(_HEADER.pack(case.down_bytes, case.train_s[number]))
            _send(connection, case.down_bytes)
            _receive(connection, case.up_bytes[number])
            ends[number] = time.monotonic() - begin

        threads = [threading.Thread(target=play, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times.append(ends)
    result.send(times)  # type: ignore[attr-defined]
