"""A link that all messages under way share: processor sharing (Kleinrock 1967), with a limit for each client.

The bandwidth is shared max-min fairly (Bertsekas and Gallager 1992, Section 6.5.2): n messages under way get B/n each, but none
more than its client's limit, and what the limited ones leave goes to the others. Those of clients with one limit always get the
same, so each such class has a virtual time, the bytes that every member of it has been served; who is done next is the top of a
heap, and one call of the clock stands for the next end of all. An event costs O(log n) and a step for each limit in use.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.core.errors import ParameterError
from netsim.network.carriers import Beside, Carrier, check_sizes

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray, State
    from netsim.network.draws import Durations, Phases

_NEVER = float("inf")


class _Class:
    """The messages under way whose clients have one limit."""

    __slots__ = ("count", "limit", "queue", "rate", "served")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.count = 0
        self.rate = 0.0
        self.served = 0.0
        """Bytes that who has been here since the class was last empty has got."""
        self.queue: list[tuple[float, int, int]] = []
        """A heap of (`served` at which it is done, number, client); who went away early is still in it."""


class SharedMedium:
    """Messages of `size_bytes` share `bandwidth_bytes_per_s`; none is faster than its client's `per_client_bytes_per_s`.

    `size_bytes`: a number for all clients, or one each; so is `per_client_bytes_per_s`, where inf is no limit. Ends come before
    all else of their instant. Raises ValueError for a size, a bandwidth or a limit that is not > 0.
    """

    carries = True

    def __init__(
        self,
        *,
        clock: Clock,
        clients: int,
        size_bytes: float | FloatArray | IntArray,
        bandwidth_bytes_per_s: float,
        per_client_bytes_per_s: float | FloatArray = _NEVER,
    ) -> None:
        sizes = check_sizes(size_bytes, clients)
        if not 0 < bandwidth_bytes_per_s < _NEVER:
            raise ParameterError("bandwidth_bytes_per_s", bandwidth_bytes_per_s, "must be > 0 bytes a second and finite")
        limits = np.array(np.broadcast_to(per_client_bytes_per_s, (clients,)), np.float64)
        if not (limits > 0).all():
            client = int(np.argmin(limits > 0))
            limit = float(limits[client])
            shown = f" = {limit!r} for client {client}"
            raise ParameterError("per_client_bytes_per_s", limit, "must be > 0 bytes a second", shown=shown)
        self.clock = clock
        self._sizes: FloatArray = sizes
        self.bandwidth = float(bandwidth_bytes_per_s)
        self.on_end: Callable[[int], None] = lambda client: None
        self.on_stop: Callable[[int], None] = lambda client: None
        # A limit above the bandwidth limits nothing: such clients are one class with those that have none.
        self._limits: FloatArray = np.where(limits >= self.bandwidth, _NEVER, limits)
        self._active: list[_Class] = []
        """The classes that have members, by their limits."""
        self._members: dict[int, tuple[_Class, int]] = {}
        """Client -> its class, and the number of its entry in the queue."""
        self._number = 0
        self._since_s = 0.0
        """The time at which `served` of every class holds."""
        self._due_s = _NEVER
        self._next: _Class | None = None
        self._rings_s = _NEVER

    def __contains__(self, client: int) -> bool:
        return client in self._members

    def __len__(self) -> int:
        return len(self._members)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Seconds that messages of `clients` (n,) take that share with nobody, whenever they begin; shape (n,)."""
        return np.asarray(self._sizes[clients] / np.minimum(self._limits[clients], self.bandwidth))

    def join(self, client: int, size_bytes: float | None = None) -> None:
        """The message of `client`, who has none under way, begins now; `size_bytes`: where it is of another size."""
        size = float(self._sizes[client] if size_bytes is None else size_bytes)
        self._advance()
        limit = float(self._limits[client])
        group = next((one for one in self._active if one.limit == limit), None)
        if group is None:
            group = _Class(limit)
            insort(self._active, group, key=lambda one: one.limit)
        heappush(group.queue, (group.served + size, self._number, client))
        group.count += 1
        self._members[client] = (group, self._number)
        self._number += 1
        self._share()

    def leave(self, client: int) -> None:
        """The message of `client` is aborted; its share is the others'."""
        self._advance()
        self._remove(client)
        self._share()

    def beside(self, size_bytes: float | None) -> Carrier:
        return Beside(self, size_bytes)

    def timed(self, delays: Durations) -> Phases:
        return delays

    def open_round(self, round: int, time_s: float) -> None:
        """Nothing changes from round to round."""

    def renew(self) -> None:
        """Nothing changes."""

    def _advance(self) -> None:
        now = self.clock.now
        elapsed_s = now - self._since_s
        for group in self._active:
            group.served += elapsed_s * group.rate
        self._since_s = now

    def _remove(self, client: int) -> None:
        group, _ = self._members.pop(client)
        group.count -= 1
        if not group.count:
            self._active.remove(group)

    def _share(self) -> None:
        """Give everyone the rate that is theirs from now on, and find out who is done next."""
        left, count = self.bandwidth, len(self._members)
        self._due_s, self._next = _NEVER, None
        for group in self._active:
            group.rate = min(group.limit, left / count)
            left -= group.rate * group.count
            count -= group.count
            queue = group.queue
            while (group, queue[0][1]) != self._members.get(queue[0][2]):
                heappop(queue)
            due_s = self._since_s + max(queue[0][0] - group.served, 0.0) / group.rate
            if due_s < self._due_s:
                self._due_s, self._next = due_s, group
        if self._due_s < self._rings_s:
            self._rings_s = self._due_s
            self.clock.call_at(self._due_s, self._ring, self._due_s, FIRST)

    def _ring(self, at_s: float) -> None:
        if at_s != self._rings_s:
            return  # an earlier call has taken its place
        self._rings_s = _NEVER
        # The call stands where the next end was when it was set; who joined since has delayed that.
        while self._next is not None and self._due_s <= at_s:
            self._advance()
            group = self._next
            # To the byte, whatever rounding has made of the sum.
            group.served, _, client = heappop(group.queue)
            self._remove(client)
            self._share()
            self.on_end(client)
        if self._due_s < self._rings_s:
            self._rings_s = self._due_s
            self.clock.call_at(self._due_s, self._ring, self._due_s, FIRST)

    def state_dict(self) -> State:
        """What every message under way has got."""
        return {
            "since_s": self._since_s,
            "number": self._number,
            "classes": [
                {
                    "limit": group.limit,
                    "served": group.served,
                    "queue": [entry for entry in sorted(group.queue) if self._members.get(entry[2]) == (group, entry[1])],
                }
                for group in self._active
            ],
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Go on from a saved state; the next end is put on the clock."""
        self._since_s, self._number = state["since_s"], state["number"]
        self._active, self._members = [], {}
        for saved in state["classes"]:
            group = _Class(saved["limit"])
            group.served, group.queue = saved["served"], [tuple(entry) for entry in saved["queue"]]
            heapify(group.queue)
            group.count = len(group.queue)
            self._active.append(group)
            self._members |= {client: (group, number) for _, number, client in group.queue}
        if self._members:
            self._share()
