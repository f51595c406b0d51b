"""A network of namespaces: a server and clients on a bridge, links limited by `tbf`, delay and loss by a forwarder in user space.

Linux, root and the command `ip` are needed. Names begin with the number of the process; all is removed at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import multiprocessing
import os
import random
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

FORK = multiprocessing.get_context("fork")
PAYLOAD_SHARE = 1448 / 1514
"""Bytes of TCP payload in a frame over the bytes of the frame, which `tbf` counts."""
_CLONE_NEWNET = 0x40000000
_ETHTOOL = 0x8946
_OFFLOADS = (0x17, 0x19, 0x1F, 0x24, 0x2C)  # checksums, scatter/gather, TSO, GSO, GRO
_EVERY_PROTOCOL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the links in bytes of payload a second (None: none), and what the path to the server does to each frame.

    `up`, `down`: one for each client. `shared_up`, `shared_down`: of all together. `delay_s`: one way. `loss`: of each frame.
    """

    up: Sequence[float] | None = None
    down: Sequence[float] | None = None
    shared_up: float | None = None
    shared_down: float | None = None
    delay_s: float = 0.0
    loss: float = 0.0


def why_not() -> str | None:
    """Return the reason why such a network cannot be made here; None if it can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists() or os.geteuid() != 0:
        return "needs Linux and root"
    probe = f"netsim{os.getpid()}p"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "-n", probe, "link", "add", "near", "type", "veth", "peer", "name", "far")
        _run("tc", "-n", probe, "qdisc", "add", "dev", "near", "root", "tbf", "rate", "1mbit", "burst", "5000", "limit", "30000")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"needs the commands ip and tc, network namespaces and tbf: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def enter(namespace: str) -> None:
    """Move this thread into a network namespace."""
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def _without_offloads(namespace: str, device: str) -> None:
    """Send single frames with checksums: `tbf` counts frames, and a forwarder in user space sees what would be on a wire."""

    def change() -> None:
        enter(namespace)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            for command in _OFFLOADS:
                value = ctypes.create_string_buffer(struct.pack("II", command, 0))
                request = struct.pack("16sP", device.encode(), ctypes.addressof(value))
                with contextlib.suppress(OSError):
                    fcntl.ioctl(handle, _ETHTOOL, request)

    child = FORK.Process(target=change)
    child.start()
    child.join()


@contextlib.contextmanager
def star(clients: int, limits: Limits) -> Iterator[list[str]]:
    """Make a star and remove it; yields the namespaces of the server (address 10.9.0.1) and of the clients."""
    mark = f"netsim{os.getpid()}"
    middle, names = f"{mark}m", [f"{mark}s", *(f"{mark}c{client}" for client in range(clients))]
    forwarder: BaseProcess | None = None
    try:
        for name in (middle, *names):
            _run("ip", "netns", "add", name)
        _run("ip", "-n", middle, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", middle, "link", "set", "bridge", "up")
        forwards = limits.delay_s > 0 or limits.loss > 0
        for place, name in enumerate(names):
            port = "far" if place == 0 and forwards else f"port{place}"
            _run("ip", "-n", middle, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "-n", name, "addr", "add", f"10.9.0.{place + 1}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run("ip", "-n", middle, "link", "set", port, "up")
            _without_offloads(name, "eth0")
            if port != "far":
                _run("ip", "-n", middle, "link", "set", port, "master", "bridge")
        if forwards:
            _run("ip", "-n", middle, "link", "add", "port0", "type", "veth", "peer", "name", "near")
            for device in ("port0", "near"):
                _run("ip", "-n", middle, "link", "set", device, "up")
                _without_offloads(middle, device)
            _run("ip", "-n", middle, "link", "set", "port0", "master", "bridge")
            forwarder = FORK.Process(target=_forward, args=(middle, limits.delay_s, limits.loss), daemon=True)
            forwarder.start()
        _limit(middle, "port0", limits.shared_up)
        _limit(names[0], "eth0", limits.shared_down)
        for client in range(clients):
            _limit(names[client + 1], "eth0", None if limits.up is None else limits.up[client])
            _limit(middle, f"port{client + 1}", None if limits.down is None else limits.down[client])
        yield names
    finally:
        if forwarder is not None:
            forwarder.terminate()
            forwarder.join()
        for name in (middle, *names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _limit(namespace: str, device: str, payload_per_s: float | None) -> None:
    if payload_per_s is None:
        return
    bits = round(8 * payload_per_s / PAYLOAD_SHARE)
    # A queue of 0.1 s, as routers have; 20 frames at least.
    queue = max(30_280, round(0.1 * bits / 8))
    settings = ("rate", f"{bits}bit", "burst", "3100", "limit", str(queue))
    _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *settings)


def _forward(namespace: str, delay_s: float, loss: float) -> None:
    """Carry frames between the devices `near` and `far`, each after `delay_s`, and drop a share of them."""
    enter(namespace)
    ends = []
    for device in ("near", "far"):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
        end.bind((device, _EVERY_PROTOCOL))
        end.setblocking(False)
        ends.append(end)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    number, rng = 0, random.Random(1)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, end, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):
                end.send(frame)
        pause = max(0.0, waiting[0][0] - now) if waiting else 1.0
        for end in select.select(ends, [], [], pause)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame, sender = end.recvfrom(65_536)
                    if sender[2] == socket.PACKET_OUTGOING or rng.random() < loss:
                        continue
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + delay_s, number, other[end], frame))
