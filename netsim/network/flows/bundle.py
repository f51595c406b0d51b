"""Bundles of flows whose rates rise together: one virtual time for all flows below their limit.

A bundle is the unit of the solver (`sharing`) and of a single shared link (`netsim.network.bandwidth_sharing`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netsim.core.protocols import State

_NEVER = float("inf")
_ROUNDING = 1e-15
"""Relative error of a virtual time: a flow with less than this share of it to go counts as ended."""


class FlowClass:
    """Flows that always have the same rate, at most `limit` each.

    `number` identifies the class and orders classes of one limit.
    """

    __slots__ = ("at_limit", "count", "free", "front", "gone", "limit", "mark", "number", "queue", "served", "stamp")

    def __init__(self, limit: float, number: int) -> None:
        self.limit = limit
        self.number = number
        self.count = 0
        self.at_limit = False
        """True if the class lies before the split of its bundle, as the solver has it."""
        self.free = False
        """True if the class has the rate of its bundle, False if its own limit holds."""
        self.served = 0.0
        """Bytes carried by `mark` for a member that was present since the start."""
        self.mark = 0.0
        """Virtual time of the bundle if `free`, else seconds."""
        self.queue: list[tuple[float, int, Any]] = []
        """Heap of (`served` at the end of the flow, number of the flow, its key)."""
        self.gone: set[int] = set()
        """Numbers of flows that left early and are still in `queue`."""
        self.front: tuple[float, int] | None = None
        """First entry of `queue` for which the bundle has a due time."""
        self.stamp = 0

    def purge(self) -> None:
        """Drop flows that left early from the front of the queue."""
        while self.queue and self.queue[0][1] in self.gone:
            self.gone.remove(heappop(self.queue)[1])

    def state(self) -> State:
        """Fields to save, as plain data."""
        queue = sorted(entry for entry in self.queue if entry[1] not in self.gone)
        names = ("limit", "number", "count", "at_limit", "free", "served", "mark")
        return {name: getattr(self, name) for name in names} | {"queue": queue}

    def load(self, state: State) -> None:
        """Set the fields of a saved class."""
        for name in ("limit", "number", "count", "at_limit", "free", "served", "mark"):
            setattr(self, name, state[name])
        self.queue = [(end, number, key) for end, number, key in state["queue"]]
        heapify(self.queue)


class Bundle:
    """Classes in the order of their limits: the first ones have their limit, the others one common rate.

    A change of the common rate touches only the classes whose limit lies between the old rate and the new one. The solver
    moves a split through the limits (`aim`) until the rates add up; `settle` puts that split into effect.
    """

    def __init__(self, now_s: float) -> None:
        self.order: list[tuple[float, int, FlowClass]] = []
        self.split = 0
        """Number of classes at their limit, as the solver has it."""
        self.limited_rate = 0.0
        """Sum of the rates of all members at their limit."""
        self.free_count = 0
        """Members of all other classes."""
        self.rate = 0.0
        """Rate of each free member, bytes/s."""
        self._settled = 0
        """Number of classes at their limit, in effect."""
        self._served = 0.0
        """Virtual time: bytes that a free member has got, at `_since_s`."""
        self._since_s = now_s
        self._free_ends: list[tuple[float, int, int, int, FlowClass]] = []
        """Heap of (virtual time of the first end, numbers of flow and class, stamp, class); outdated ones have an old stamp."""
        self._limited_ends: list[tuple[float, int, int, int, FlowClass]] = []
        """Heap of the same entries for classes at their limit, by seconds."""
        self._steps = 0
        """Number of changes of `limited_rate` since it was last summed up."""

    def __len__(self) -> int:
        return len(self.order)

    # Members.

    def insert(self, group: FlowClass, now_s: float) -> None:
        """Add a class with its members."""
        self._advance(now_s)
        entry = (group.limit, group.number, group)
        place = bisect_left(self.order, entry)
        self.order.insert(place, entry)
        group.at_limit = place < self.split
        self.split += group.at_limit
        self._count(group, more=group.count)
        group.free = place >= self._settled
        self._settled += not group.free
        group.mark = self._served if group.free else now_s
        group.front = None
        self._refresh(group)

    def remove(self, group: FlowClass, now_s: float) -> None:
        """Remove a class with its members. Its `served` then holds at `now_s`."""
        self._advance(now_s)
        group.served = self.served(group, now_s)
        place = bisect_left(self.order, (group.limit, group.number))
        del self.order[place]
        self.split -= group.at_limit
        self._count(group, fewer=group.count)
        self._settled -= not group.free
        group.stamp += 1

    def relimit(self, group: FlowClass, limit: float, now_s: float) -> None:
        """Give a class of this bundle another limit."""
        if len(self.order) > 1:
            self.remove(group, now_s)
            group.limit = limit
            self.insert(group, now_s)
            return
        # The order of limits does not change.
        self._advance(now_s)
        group.served = self.served(group, now_s)
        self._count(group, fewer=group.count)
        group.limit, self.order[0] = limit, (limit, group.number, group)
        self._count(group, more=group.count)
        group.mark, group.front = self._served if group.free else now_s, None
        self._refresh(group)

    def add(self, group: FlowClass, size: float, number: int, key: object, now_s: float) -> None:
        """Begin a flow of `size` bytes in `group`, a class of this bundle.

        `number` orders ends at one time; `key` is the caller's name of the flow, which its end returns.
        """
        # Advance the virtual time to now first, as at every change of members.
        self._advance(now_s)
        heappush(group.queue, (self.served(group, now_s) + size, number, key))
        group.count += 1
        self._count(group, more=1)
        self._refresh(group)

    def drop(self, group: FlowClass, number: int, now_s: float) -> None:
        """End the flow `number` of `group` early."""
        self._advance(now_s)
        group.gone.add(number)
        group.count -= 1
        self._count(group, fewer=1)
        self._refresh(group)

    def served(self, group: FlowClass, now_s: float) -> float:
        """Return the bytes carried by `now_s` for a member of `group` that was present since the start."""
        if group.free:
            return group.served + (self._served + self.rate * (now_s - self._since_s) - group.mark)
        return group.served + group.limit * (now_s - group.mark)

    def _count(self, group: FlowClass, *, more: int = 0, fewer: int = 0) -> None:
        """Update the counts of members after members of `group` came or went."""
        if not group.at_limit:
            self.free_count += more - fewer
            return
        # Rounding errors of differences add up: sum again after as many steps as there are terms.
        self._steps += 1
        if self._steps > len(self.order) + 16:
            self._steps = 0
            self.limited_rate = sum(limit * flow_class.count for limit, _, flow_class in self.order[: self.split])
        else:
            self.limited_rate += group.limit * (more - fewer)

    # Rates.

    def aim(self, rate: float, *, up: bool = True, down: bool = True) -> bool:
        """Move the split so that the classes before it have limits <= `rate`; return True if it moved."""
        order, split = self.order, self.split
        while down and self.split and order[self.split - 1][0] > rate:
            self.split -= 1
            self._move(order[self.split][2], False)
        while up and self.split < len(order) and order[self.split][0] <= rate:
            self.split += 1
            self._move(order[self.split - 1][2], True)
        return self.split != split

    def _move(self, group: FlowClass, at_limit: bool) -> None:
        self._count(group, fewer=group.count)
        group.at_limit = at_limit
        self._count(group, more=group.count)
        if not self.split:
            self.limited_rate = 0.0

    def fill(self, capacity: float) -> float:
        """Aim at the rate of free members with which all together use `capacity`, and return it; inf if none is free.

        The split moves in one direction at a time: rounding could otherwise move a class whose limit equals the rate to and fro
        for ever.
        """
        while self.split and self._too_high(capacity):
            self.aim(self.order[self.split - 1][0] * (1 - _ROUNDING), up=False)
        while self.free_count and self.aim(self._share(capacity), down=False):
            pass
        return self._share(capacity) if self.free_count else _NEVER

    def _too_high(self, capacity: float) -> bool:
        """Return True if the last class before the split cannot have its limit."""
        if not self.free_count:
            return self.limited_rate > capacity
        return self.order[self.split - 1][0] > self._share(capacity)

    def _share(self, capacity: float) -> float:
        return max(capacity - self.limited_rate, 0.0) / self.free_count

    def settle(self, rate: float, now_s: float) -> None:
        """Put the split into effect, with `rate` for free members from `now_s` on."""
        self._served += (now_s - self._since_s) * self.rate
        self._since_s = now_s
        while self._settled > self.split:
            self._settled -= 1
            self._cross(self.order[self._settled][2], True, now_s)
        while self._settled < self.split:
            self._cross(self.order[self._settled][2], False, now_s)
            self._settled += 1
        self.rate = rate if self.free_count else 0.0
        if not self.free_count and self._settled == len(self.order):
            # No flow uses the virtual time: restart it at 0, where rounding errors are smallest.
            self._served, self._free_ends = 0.0, []

    def _cross(self, group: FlowClass, free: bool, now_s: float) -> None:
        group.served = self.served(group, now_s)
        group.free, group.mark = free, self._served if free else now_s
        group.front = None
        self._refresh(group)

    def _advance(self, now_s: float) -> None:
        self._served += (now_s - self._since_s) * self.rate
        self._since_s = now_s

    # Ends.

    def _refresh(self, group: FlowClass) -> None:
        """Note the first end of a class, if it has changed."""
        group.purge()
        front = group.queue[0][:2] if group.queue else None
        if front == group.front:
            return
        group.front, group.stamp = front, group.stamp + 1
        if front is None:
            return
        left = front[0] - group.served
        if group.free:
            heappush(self._free_ends, (group.mark + left, front[1], group.number, group.stamp, group))
        elif group.limit > 0.0:
            heappush(self._limited_ends, (group.mark + max(left, 0.0) / group.limit, front[1], group.number, group.stamp, group))

    def next_end_s(self) -> float:
        """Return when the first flow ends at the present rates; inf if none does."""
        if not self._limited_ends:
            return self._free_end_s()
        limited_s, free_s = self._limited_end_s(), self._free_end_s()
        return limited_s if limited_s < free_s else free_s

    def _limited_end_s(self) -> float:
        ends = self._limited_ends
        while ends and ends[0][3] != ends[0][4].stamp:
            heappop(ends)
        return ends[0][0] if ends else _NEVER

    def _free_end_s(self) -> float:
        ends = self._free_ends
        while ends and ends[0][3] != ends[0][4].stamp:
            heappop(ends)
        if not ends:
            return _NEVER
        left = ends[0][0] - self._served
        if left <= _ROUNDING * ends[0][0]:
            return self._since_s
        return self._since_s + left / self.rate if self.rate > 0.0 else _NEVER

    def end_s(self, group: FlowClass, number: int) -> float:
        """Return when the flow `number` of `group` ends at the present rates; inf if it does not."""
        end = next(end for end, flow, _ in group.queue if flow == number)
        rate, since_s = (self.rate, self._since_s) if group.free else (group.limit, group.mark)
        left = end - self.served(group, since_s)
        if left <= _ROUNDING * end:
            return since_s
        return since_s + left / rate if rate > 0.0 else _NEVER

    def pop_end(self, at_s: float) -> tuple[FlowClass, Any] | None:
        """Remove the next flow that has ended by `at_s`; return its class and key, or None.

        The bytes carried are set to the size of the flow, which removes rounding errors.
        """
        limited_s, free_s = self._limited_end_s(), self._free_end_s()
        if limited_s > at_s and free_s > at_s:
            return None
        if limited_s <= free_s:
            group = self._limited_ends[0][4]
            group.served, group.mark = group.queue[0][0], at_s
            self._advance(at_s)
        else:
            virtual, _, _, _, group = self._free_ends[0]
            self._served, self._since_s = virtual, at_s
        key = heappop(group.queue)[2]
        group.count -= 1
        self._count(group, fewer=1)
        self._refresh(group)
        return group, key

    # Saved state.

    def state(self) -> State:
        """Fields to save, with the classes in order."""
        names = ("split", "limited_rate", "free_count", "rate", "_settled", "_served", "_since_s", "_steps")
        return {name: getattr(self, name) for name in names} | {"classes": [group.state() for _, _, group in self.order]}

    def load(self, state: State, groups: Sequence[FlowClass]) -> None:
        """Set the fields of a saved bundle, with `groups` as its classes in order."""
        for name in ("split", "limited_rate", "free_count", "rate", "_settled", "_served", "_since_s", "_steps"):
            setattr(self, name, state[name])
        self.order = []
        for group in groups:
            insort(self.order, (group.limit, group.number, group))
            self._refresh(group)
