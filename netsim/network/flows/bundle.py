"""Bundles of flows whose rates rise together: one virtual time for all flows below their limit.

Virtual time is the number of bytes that a flow below its limit has got. A flow ends when it reaches a fixed virtual time, however
often the common rate changes; so a change of the rate costs nothing for each flow.

A bundle is the unit of the solver (`sharing`) and of a single shared link (`netsim.network.bandwidth.sharing`).
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
_SAVED = ("split", "limited_rate", "free_count", "rate", "_settled", "_served", "_since_s", "_steps")
"""Saved fields of a bundle, beside its classes."""


class FlowClass:
    """Flows that always have the same rate, at most `limit` each.

    `number` identifies the class and orders classes of one limit.
    """

    __slots__ = ("at_limit", "count", "first_end", "free", "left_early", "limit", "mark", "number", "queue", "served", "stamp")

    def __init__(self, limit: float, number: int) -> None:
        self.limit = limit
        self.number = number
        self.count = 0
        """Number of flows under way."""
        self.at_limit = False
        """True if the class lies before the split of its bundle: the solver gives it its limit, from the next `settle` on."""
        self.free = False
        """True if the class has the rate of its bundle now, False if its own limit holds."""
        self.served = 0.0
        """Bytes carried by `mark` for a member that was present since the start."""
        self.mark = 0.0
        """Virtual time of the bundle if `free`, else seconds."""
        self.queue: list[tuple[float, int, Any]] = []
        """Heap of (`served` at the end of the flow, number of the flow, its key)."""
        self.left_early: set[int] = set()
        """Numbers of flows that left early and are still in `queue`."""
        self.first_end: tuple[float, int] | None = None
        """First entry of `queue` for which the bundle has a due time."""
        self.stamp = 0
        """Number of the valid entry of this class in the heaps of its bundle."""

    def purge(self) -> None:
        """Drop flows that left early from the front of the queue, so that its first entry is a flow under way."""
        while self.queue and self.queue[0][1] in self.left_early:
            self.left_early.remove(heappop(self.queue)[1])

    def state(self) -> State:
        """Return the fields to save, as plain data."""
        queue = sorted(entry for entry in self.queue if entry[1] not in self.left_early)
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

    # There are two splits. The solver moves `split` to and fro while it searches, which changes counts only. `settle` then moves
    # `_settled` there once, because each class that changes sides needs its bytes brought up to date and a new entry in a heap.

    def __init__(self, now_s: float) -> None:
        self.order: list[tuple[float, int, FlowClass]] = []
        """The classes as (limit, number, class), in ascending order."""
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

    def insert(self, flow_class: FlowClass, now_s: float) -> None:
        """Add a class with its members, on the sides of both splits where its limit belongs."""
        self._advance(now_s)
        entry = (flow_class.limit, flow_class.number, flow_class)
        place = bisect_left(self.order, entry)
        self.order.insert(place, entry)
        # Both splits are places in the order: a class that comes in before one moves it by one.
        flow_class.at_limit = place < self.split
        self.split += flow_class.at_limit
        self._count(flow_class, more=flow_class.count)
        flow_class.free = place >= self._settled
        self._settled += not flow_class.free
        flow_class.mark = self._served if flow_class.free else now_s
        flow_class.first_end = None
        self._refresh(flow_class)

    def remove(self, flow_class: FlowClass, now_s: float) -> None:
        """Remove a class with its members, and set its `served` to the bytes served up to `now_s`."""
        self._advance(now_s)
        flow_class.served = self.served_bytes(flow_class, now_s)
        place = bisect_left(self.order, (flow_class.limit, flow_class.number))
        del self.order[place]
        self.split -= flow_class.at_limit
        self._count(flow_class, fewer=flow_class.count)
        self._settled -= not flow_class.free
        flow_class.stamp += 1  # the entry of the class in a heap of ends becomes outdated

    def relimit(self, flow_class: FlowClass, limit: float, now_s: float) -> None:
        """Give a class of this bundle another limit, and put it where the limit belongs in the order."""
        if len(self.order) > 1:
            self.remove(flow_class, now_s)
            flow_class.limit = limit
            self.insert(flow_class, now_s)
            return
        # Fast path of `remove` and `insert` for the only class of a bundle: it keeps its place in the order and its side of the
        # split. Counts, bytes and the entry in the heap must come out as they do there.
        self._advance(now_s)
        flow_class.served = self.served_bytes(flow_class, now_s)
        flow_class.limit, self.order[0] = limit, (limit, flow_class.number, flow_class)
        if flow_class.at_limit:
            self.limited_rate = limit * flow_class.count
        flow_class.mark, flow_class.first_end = self._served if flow_class.free else now_s, None
        self._refresh(flow_class)

    def add(self, flow_class: FlowClass, size: float, number: int, key: object, now_s: float) -> None:
        """Begin a flow of `size` bytes in `flow_class`, a class of this bundle.

        `number` orders ends at one time; `key` is the caller's name of the flow, which its end returns.
        """
        # Advance the virtual time to now first, as at every change of members.
        self._advance(now_s)
        heappush(flow_class.queue, (self.served_bytes(flow_class, now_s) + size, number, key))
        flow_class.count += 1
        self._count(flow_class, more=1)
        self._refresh(flow_class)

    def drop(self, flow_class: FlowClass, number: int, now_s: float) -> None:
        """End the flow `number` of `flow_class` early. Its entry stays in the queue of the class until `purge` comes to it."""
        self._advance(now_s)
        flow_class.left_early.add(number)
        flow_class.count -= 1
        self._count(flow_class, fewer=1)
        self._refresh(flow_class)

    def served_bytes(self, flow_class: FlowClass, now_s: float) -> float:
        """Return the bytes carried by `now_s` for a member of `flow_class` that was present since the start."""
        if flow_class.free:
            return flow_class.served + (self._served + self.rate * (now_s - self._since_s) - flow_class.mark)
        return flow_class.served + flow_class.limit * (now_s - flow_class.mark)

    def _count(self, flow_class: FlowClass, *, more: int = 0, fewer: int = 0) -> None:
        """Update `free_count` or `limited_rate` after `more` members of `flow_class` came and `fewer` went.

        `order`, `split` and the class's own count must show the change already, for all rates may be summed up again.
        """
        if not flow_class.at_limit:
            self.free_count += more - fewer
            return
        # Rounding errors of differences add up: sum again after as many steps as there are terms, so that a step costs the same
        # on average whatever the number of terms; the constant spares small bundles frequent sums.
        self._steps += 1
        if self._steps > len(self.order) + 16:
            self._steps = 0
            self.limited_rate = sum(limit * member.count for limit, _, member in self.order[: self.split])
        else:
            self.limited_rate += flow_class.limit * (more - fewer)

    # Rates.

    def aim(self, rate: float, *, up: bool = True, down: bool = True) -> bool:
        """Move the split until the classes before it have limits <= `rate` and others have not; return True if it moved.

        `up`, `down`: directions in which the split may move.
        """
        order, split_before = self.order, self.split
        while down and self.split and order[self.split - 1][0] > rate:
            self.split -= 1
            self._move(order[self.split][2], at_limit=False)
        while up and self.split < len(order) and order[self.split][0] <= rate:
            self.split += 1
            self._move(order[self.split - 1][2], at_limit=True)
        return self.split != split_before

    def free_last(self) -> None:
        """Free the class with the highest limit of those before the split."""
        self.split -= 1
        self._move(self.order[self.split][2], at_limit=False)

    def _move(self, flow_class: FlowClass, *, at_limit: bool) -> None:
        """Move a class, which the caller has put on the other side of the split, in the counts of members."""
        self._count(flow_class, fewer=flow_class.count)
        flow_class.at_limit = at_limit
        self._count(flow_class, more=flow_class.count)
        if not self.split:
            # No class has its limit: the sum is 0, and a rest of rounding errors must not lower the common rate.
            self.limited_rate = 0.0

    def fill(self, capacity: float) -> float:
        """Move the split to where all members together use `capacity`. Return the rate of free members there, inf if none is
        free.

        The split moves down first and then only up. Otherwise rounding could move a class whose limit equals the rate to and fro
        for ever.
        """
        while self.split and self._too_high(capacity):
            # Free all classes with this limit: aim just below it.
            self.aim(self.order[self.split - 1][0] * (1 - _ROUNDING), up=False)
        # Each class that reaches its limit leaves bandwidth to the others, whose rate may reach the next limit.
        while self.free_count and self.aim(self._free_rate(capacity), down=False):
            pass
        return self._free_rate(capacity) if self.free_count else _NEVER

    def _too_high(self, capacity: float) -> bool:
        """Return True if the last class before the split cannot have its limit."""
        if not self.free_count:
            return self.limited_rate > capacity
        return self.order[self.split - 1][0] > self._free_rate(capacity)

    def _free_rate(self, capacity: float) -> float:
        """Return the rate of each free member if classes before the split have their limits and all use `capacity`."""
        return max(capacity - self.limited_rate, 0.0) / self.free_count

    def settle(self, rate: float, now_s: float) -> None:
        """Put the split into effect, with `rate` for free members from `now_s` on."""
        self._served += (now_s - self._since_s) * self.rate
        self._since_s = now_s
        while self._settled > self.split:
            self._settled -= 1
            self._change_side(self.order[self._settled][2], now_s, free=True)
        while self._settled < self.split:
            self._change_side(self.order[self._settled][2], now_s, free=False)
            self._settled += 1
        self.rate = rate if self.free_count else 0.0
        if not self.free_count and self._settled == len(self.order):
            # No flow uses the virtual time: restart it at 0, where rounding errors are smallest.
            self._served, self._free_ends = 0.0, []

    def _change_side(self, flow_class: FlowClass, now_s: float, *, free: bool) -> None:
        """Let a class have the rate of the bundle (`free`) or its own limit from now on."""
        flow_class.served = self.served_bytes(flow_class, now_s)
        flow_class.free, flow_class.mark = free, self._served if free else now_s
        flow_class.first_end = None
        self._refresh(flow_class)

    def _advance(self, now_s: float) -> None:
        """Bring the virtual time up to `now_s`; `settle` does the same in place."""
        self._served += (now_s - self._since_s) * self.rate
        self._since_s = now_s

    # Ends.

    def _refresh(self, flow_class: FlowClass) -> None:
        """Put the first end of a class on the heap of its kind, if it has changed."""
        flow_class.purge()
        first_end = flow_class.queue[0][:2] if flow_class.queue else None
        if first_end == flow_class.first_end:
            return
        # The stamp makes earlier entries of the class outdated; they are dropped when they come to the front of their heap.
        flow_class.first_end, flow_class.stamp = first_end, flow_class.stamp + 1
        if first_end is None:
            return
        served_at_end, flow = first_end
        left_bytes = served_at_end - flow_class.served
        # Of free classes the end is a virtual time, of classes at their limit a time in seconds.
        if flow_class.free:
            heap, end = self._free_ends, flow_class.mark + left_bytes
        elif flow_class.limit > 0.0:
            heap, end = self._limited_ends, flow_class.mark + max(left_bytes, 0.0) / flow_class.limit
        else:
            return
        heappush(heap, (end, flow, flow_class.number, flow_class.stamp, flow_class))

    def next_end_s(self) -> float:
        """Return when the first flow ends at the present rates; inf if none does."""
        if not self._limited_ends:
            return self._free_end_s()
        limited_s, free_s = self._limited_end_s(), self._free_end_s()
        return limited_s if limited_s < free_s else free_s

    def _limited_end_s(self) -> float:
        """Return when the first flow of the classes at their limit ends; inf if none does."""
        ends = self._limited_ends
        while ends:
            end_s, _, _, stamp, flow_class = ends[0]
            if stamp == flow_class.stamp:
                return end_s
            heappop(ends)
        return _NEVER

    def _free_end_s(self) -> float:
        """Return when the first flow of the free classes ends at the present rate; inf if none does."""
        ends = self._free_ends
        while ends:
            virtual_end, _, _, stamp, flow_class = ends[0]
            if stamp == flow_class.stamp:
                left_bytes = virtual_end - self._served
                if left_bytes <= _ROUNDING * virtual_end:
                    return self._since_s
                return self._since_s + left_bytes / self.rate if self.rate > 0.0 else _NEVER
            heappop(ends)
        return _NEVER

    def end_s(self, flow_class: FlowClass, number: int) -> float:
        """Return the time in seconds at which the flow `number` of `flow_class` ends if no rate changes; inf if it does not.

        The flow must be in the class's queue. The result is that of `next_end_s` for the first flow of the class.
        """
        # A flow ends once the class has served this many bytes.
        served_at_end = next(served for served, flow, _ in flow_class.queue if flow == number)
        # Count from the last time at which the bytes served were brought up to date.
        rate, since_s = (self.rate, self._since_s) if flow_class.free else (flow_class.limit, flow_class.mark)
        left_bytes = served_at_end - self.served_bytes(flow_class, since_s)
        if left_bytes <= _ROUNDING * served_at_end:
            return since_s
        return since_s + left_bytes / rate if rate > 0.0 else _NEVER

    def pop_end(self, at_s: float) -> tuple[FlowClass, Any] | None:
        """Remove the next flow that has ended by `at_s`; return (its class, its key), or None.

        The bytes served are set to those at which the flow ends, which removes rounding errors: of the class, or of all free
        classes together.
        """
        limited_s, free_s = self._limited_end_s(), self._free_end_s()
        if limited_s > at_s and free_s > at_s:
            return None
        # The first entry of the heap is valid now: the two calls above have dropped outdated ones.
        if limited_s <= free_s:
            *_, flow_class = self._limited_ends[0]
            served_at_end, _, _ = flow_class.queue[0]
            flow_class.served, flow_class.mark = served_at_end, at_s
            self._advance(at_s)
        else:
            served_at_end, *_, flow_class = self._free_ends[0]
            self._served, self._since_s = served_at_end, at_s
        _, _, key = heappop(flow_class.queue)
        flow_class.count -= 1
        self._count(flow_class, fewer=1)
        self._refresh(flow_class)
        return flow_class, key

    # Saved state.

    def state(self) -> State:
        """Return the fields to save, with the classes in order."""
        fields = {name: getattr(self, name) for name in _SAVED}
        return fields | {"classes": [flow_class.state() for _, _, flow_class in self.order]}

    def load(self, state: State, flow_classes: Sequence[FlowClass]) -> None:
        """Set the fields of a saved bundle, with `flow_classes` as its classes in order."""
        for name in _SAVED:
            setattr(self, name, state[name])
        # The heaps of ends are not saved: `_refresh` puts the first end of each class there again.
        self.order = []
        for flow_class in flow_classes:
            insort(self.order, (flow_class.limit, flow_class.number, flow_class))
            self._refresh(flow_class)
