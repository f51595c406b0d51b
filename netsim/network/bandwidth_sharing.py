"""A link that all messages under way share: processor sharing (Kleinrock 1967), with a limit for each client.

The bandwidth is shared max-min fairly (Bertsekas and Gallager 1992, Section 6.5.2): n messages under way get B/n each, but none
more than its client's limit, and what the limited ones leave goes to the others. All messages below their limit have one virtual
time, and one call of the clock stands for the next end of all (`netsim.network.flows.bundle`). An event costs O(log n) and a step
for each limit that lies between the old share and the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.core.errors import ParameterError
from netsim.network.carriers import SERVER, Key, Ports, check_sizes
from netsim.network.flows.bundle import Bundle, FlowClass

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray, State

_NEVER = float("inf")


class SharedMedium(Ports):
    """Messages of `size_bytes` share `bandwidth_bytes_per_s`; none is faster than its client's `per_client_bytes_per_s`.

    `size_bytes`: a number for all clients, or one each; so is `per_client_bytes_per_s`, where inf is no limit. Ends come before
    all else of their instant. Raises ValueError for a size, a bandwidth or a limit that is not > 0.
    """

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
        super().__init__()
        self.clock = clock
        self._sizes: FloatArray = sizes
        self.bandwidth = float(bandwidth_bytes_per_s)
        # A limit above the bandwidth limits nothing: such clients are one class with those that have none.
        self._limits: FloatArray = np.where(limits >= self.bandwidth, _NEVER, limits)
        self._bundle = Bundle(clock.now)
        self._classes: dict[float, FlowClass] = {}
        """Messages under way, by the limits of their clients."""
        self._members: dict[Key, tuple[FlowClass, int]] = {}
        """Class and number of each message under way."""
        self._keys: dict[int, Key] = {}
        """Messages under way, by number."""
        self._number = 0
        self._due_s = _NEVER
        self._rings_s = _NEVER

    def __contains__(self, key: Key) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Seconds that messages of `clients` (n,) take that share with nobody, whenever they begin; shape (n,)."""
        return np.asarray(self._sizes[clients] / np.minimum(self._limits[clients], self.bandwidth))

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        size = float(self._sizes[client] if size_bytes is None else size_bytes)
        limit, now = float(self._limits[client]), self.clock.now
        group = self._classes.get(limit)
        if group is None:
            group = self._classes[limit] = FlowClass(limit, 0)
            self._bundle.insert(group, now)
        self._bundle.add(group, size, self._number, self._number, now)
        self._members[key], self._keys[self._number] = (group, self._number), key
        self._number += 1
        self._share()

    def leave(self, key: Key) -> None:
        group, number = self._members.pop(key)
        del self._keys[number]
        self._bundle.drop(group, number, self.clock.now)
        self._forget_if_empty(group)
        self._share()

    def open_round(self, round: int, time_s: float) -> None:
        """Nothing changes from round to round."""

    def renew(self) -> None:
        """Nothing changes."""

    def _forget_if_empty(self, group: FlowClass) -> None:
        if not group.count:
            self._bundle.remove(group, self.clock.now)
            del self._classes[group.limit]

    def _share(self) -> None:
        """Set all rates from now on, and the call at the next end."""
        bundle = self._bundle
        bundle.settle(bundle.fill(self.bandwidth), self.clock.now)
        self._due_s = bundle.next_end_s()
        self._call_at_next_end()

    def _call_at_next_end(self) -> None:
        if self._due_s < self._rings_s:
            self._rings_s = self._due_s
            self.clock.call_at(self._due_s, self._ring, self._due_s, FIRST)

    def _ring(self, at_s: float) -> None:
        if at_s != self._rings_s:
            return  # an earlier call has taken its place
        self._rings_s = _NEVER
        # The call stands where the next end was when it was set; messages that began since have delayed that.
        while self._due_s <= at_s and (end := self._bundle.pop_end(at_s)) is not None:
            group, number = end
            key = self._keys.pop(number)
            del self._members[key]
            self._forget_if_empty(group)
            self._share()
            self._end(key)
        self._call_at_next_end()

    def state_dict(self) -> State:
        """Bytes that every message under way has got."""
        keys = [[number, *key] for number, key in self._keys.items()]
        return {"number": self._number, "keys": keys, "bundle": self._bundle.state()}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Go on from a saved state; the next end is put on the clock."""
        self._number, saved = state["number"], state["bundle"]
        self._keys = {number: (kind, place) for number, kind, place in state["keys"]}
        self._bundle, self._classes, self._members = Bundle(time_s), {}, {}
        for fields in saved["classes"]:
            group = FlowClass(fields["limit"], fields["number"])
            group.load(fields)
            self._classes[group.limit] = group
            self._members |= {self._keys[number]: (group, number) for _, number, _ in group.queue}
        self._bundle.load(saved, list(self._classes.values()))
        if self._members:
            self._due_s = self._bundle.next_end_s()
            self._call_at_next_end()
