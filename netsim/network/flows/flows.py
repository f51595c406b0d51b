"""Flows on a clock: bytes that cross links at max-min fair rates, and the time at which each flow ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from netsim.core.clock import FIRST, LAST, Clock
from netsim.core.errors import ParameterError
from netsim.network.flows.sharing import Link, Path, PathBundle, PathClass, Sharing
from netsim.network.flows.usage import Usage

if TYPE_CHECKING:
    from netsim.core.protocols import State

_NEVER = float("inf")


class Flows:
    """Flows under way on `links`. A flow has one rate on all links of its path; rates are max-min fair at every instant.

    Within one instant ends of flows come first, in the order in which the flows began; then everything else that happens at
    that time (changes of capacity, beginnings); the rates follow once it is complete. A flow whose rate is 0 has no end.

    Links are shared by name; raises ParameterError for two links of one name.

    >>> from netsim.core.clock import Clock
    >>> clock = Clock()
    >>> flows = Flows(clock=clock, links=[Link("up", 100.0), Link("core", 150.0)])
    >>> flows.listen(lambda flow: print(f"flow {flow} ends at {clock.now:.2f} s"))
    >>> both, core = flows.path("both", [("up", 1.0), ("core", 1.0)]), flows.path("core", [("core", 1.0)])
    >>> flows.start(both, 75.0), flows.start(core, 150.0)
    (0, 1)
    >>> clock.run()
    flow 0 ends at 1.00 s
    flow 1 ends at 1.50 s
    """

    def __init__(self, *, clock: Clock, links: Iterable[Link]) -> None:
        self.clock = clock
        self.links: dict[str, Link] = {}
        for link in links:
            if link.name in self.links:
                raise ParameterError("links", link.name, "is the name of two links; give each link a name of its own")
            self.links[link.name] = link
        self.paths: dict[str, Path] = {}
        """Paths by name."""
        self._on_end: Callable[[int], None] = lambda flow: None
        self.usage: Usage | None = None
        """Account of limits and bytes, if a table needs it."""
        self._ended: dict[int, dict[str, float]] = {}
        """Seconds by limiting link, of flows whose end is being reported."""
        self._sharing = Sharing()
        self._classes: dict[int, PathClass] = {}
        """Class of each flow in progress, by its number."""
        self._number = 0
        """Number that the next flow gets."""
        self._ends: list[tuple[float, int, PathBundle]] = []
        """Heap of (time of the first end of a bundle, number of the entry, bundle)."""
        self._valid_entry: dict[PathBundle, int] = {}
        """Number of the valid entry of each bundle in `_ends`."""
        self._entries = 0
        """Number of entries made in `_ends` so far."""
        self._alarm_s = _NEVER
        """Time of the valid call of `_on_alarm`; inf: none is on the clock."""
        self._solving = False
        """True while a call of `_solve` is on the clock."""

    def listen(self, on_end: Callable[[int], None]) -> None:
        """Call `on_end` with the number of each flow at the time of its end."""
        self._on_end = on_end

    def keep_account(self) -> Usage:
        """Begin to account for limits and bytes; return the account."""
        self.usage = Usage(self.clock.now)
        return self.usage

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, flow: int) -> bool:
        return flow in self._classes

    def path(self, name: str, uses: Sequence[tuple[str, float]], penalty: float = 1.0, bound: float = _NEVER) -> Path:
        """Return the path called `name`, created from these links and weights at the first call.

        A link that is listed twice gets the sum of its weights; a fat pipe gets the greatest. Raises ParameterError for a link
        that does not exist, and as `Path` does.
        """
        known = self.paths.get(name)
        if known is not None:
            return known
        weights: dict[Link, float] = {}
        for link_name, weight in uses:
            if link_name not in self.links:
                raise ParameterError("uses", link_name, f"is no link; there are {', '.join(self.links) or 'none'}")
            link = self.links[link_name]
            before = weights.get(link, 0.0)
            weights[link] = max(before, weight) if link.fat_pipe else before + weight
        path = self.paths[name] = Path(name, tuple(weights.items()), penalty, bound)
        return path

    def start(self, path: Path, size_bytes: float, bound: float = _NEVER) -> int:
        """Begin a flow now, at most `bound` bytes/s; return its number.

        Raises ParameterError for a size that is not > 0 and finite, or a bound that is not > 0.
        """
        if not 0.0 < size_bytes < _NEVER:
            raise ParameterError("size_bytes", size_bytes, "must be > 0 bytes and finite")
        if not bound > 0.0:
            raise ParameterError("bound", bound, "must be > 0 bytes a second")
        number = self._number
        self._number += 1
        flow_class = self._sharing.add(path, bound, size_bytes, number=number, key=number, now_s=self.clock.now)
        self._classes[number] = flow_class
        if self.usage is not None:
            self.usage.begin(number, flow_class, self.clock.now)
        self._on_change()
        return number

    def cancel(self, flow: int) -> None:
        """End a flow early, without calling listeners; raises KeyError for a flow that is not in progress."""
        flow_class = self._classes.pop(flow)
        if self.usage is not None:
            self.usage.end(flow, flow_class, self.clock.now)
        self._sharing.drop(flow_class, flow, self.clock.now)
        if self.usage is not None and not flow_class.count:
            self.usage.forget(flow_class)
        self._on_change()

    def change(self, link: str, capacity: float) -> None:
        """Set the capacity of a link from now on, bytes/s; raises ParameterError for one that is negative or infinite."""
        if self.usage is not None:
            self.usage.change(self.links[link], self.clock.now)
        self._sharing.change(self.links[link], capacity, self.clock.now)
        self._on_change()

    def reprice(self, path: Path, penalty: float, bound: float) -> None:
        """Set the penalty and the bound of a path from now on, for flows under way, too."""
        self._sharing.reprice(path, penalty, bound, self.clock.now)
        self._on_change()

    def is_ending(self, flow: int) -> bool:
        """Return True if a flow ends at this instant, or is in progress no more. Listeners may have been called already."""
        flow_class = self._classes.get(flow)
        if flow_class is None:
            return True
        next_end = self._next_bundle_end()
        if next_end is None:
            return False
        end_s, _ = next_end
        if end_s > self.clock.now:
            return False  # no flow ends now
        assert flow_class.bundle is not None
        return flow_class.bundle.end_s(flow_class, flow) <= self.clock.now

    def rate(self, flow: int) -> float:
        """Return the present rate of a flow, bytes/s, after all rates are brought up to date."""
        self._solve(None)
        flow_class = self._classes[flow]
        assert flow_class.bundle is not None
        return flow_class.bundle.rate if flow_class.free else flow_class.limit

    def load(self, link: str) -> float:
        """Return the weighted sum of the rates of all flows on a link, bytes/s; on a fat pipe their greatest. All rates are
        brought up to date before.
        """
        self._solve(None)
        fat_pipe, rates = self.links[link].fat_pipe, []
        for flow_class, weight in self.links[link].classes.items():
            assert flow_class.bundle is not None
            flow_rate = flow_class.bundle.rate if flow_class.free else flow_class.limit
            rate = weight * flow_rate
            rates.append(rate if fat_pipe else rate * flow_class.count)
        return max(rates, default=0.0) if fat_pipe else sum(rates)

    def left_bytes(self, flow: int) -> float:
        """Return the bytes that a flow still has to carry."""
        flow_class = self._classes[flow]
        assert flow_class.bundle is not None
        served_at_end = next(served for served, number, _ in flow_class.queue if number == flow)
        return max(served_at_end - flow_class.bundle.served_bytes(flow_class, self.clock.now), 0.0)

    def _on_change(self) -> None:
        """Have `_solve` run at the end of this instant, once for all changes of the instant."""
        # LAST: a round that opens begins many flows at one time, and solving after each would cost a square of their number.
        if not self._solving:
            self._solving = True
            self.clock.call_at(self.clock.now, self._solve, None, LAST)

    def _solve(self, payload: None) -> None:
        """Bring rates and ends up to date."""
        self._solving = False
        bundles = self._sharing.solve(self.clock.now)
        for bundle in bundles:
            self._note_end(bundle)
        if self.usage is not None:
            self.usage.settle(bundles, self.clock.now)
        self._call_at_next_end()

    def limited_s(self, flow: int) -> dict[str, float]:
        """Return the seconds for which each link has limited a flow that is in progress or whose end is being reported.

        Needs `usage`.
        """
        assert self.usage is not None
        if flow in self._ended:
            return self._ended[flow]
        return self.usage.limited_s(flow, self._classes[flow], self.clock.now)

    def _note_end(self, bundle: PathBundle) -> None:
        """Put the first end of a bundle on the heap; an earlier entry of the bundle becomes outdated."""
        end_s = bundle.next_end_s()
        if end_s < _NEVER:
            # Numbers of entries also decide ties in the heap, so that bundles are never compared.
            self._entries += 1
            self._valid_entry[bundle] = self._entries
            heappush(self._ends, (end_s, self._entries, bundle))
        else:
            self._valid_entry.pop(bundle, None)

    def _next_bundle_end(self) -> tuple[float, PathBundle] | None:
        """Return (time of the next end, bundle in which it happens), or None. Drops outdated entries from the heap."""
        ends = self._ends
        while ends:
            end_s, entry, bundle = ends[0]
            if self._valid_entry.get(bundle) == entry:
                return end_s, bundle
            heappop(ends)
        return None

    def _call_at_next_end(self) -> None:
        """Put the next end on the clock, unless an earlier time is there."""
        next_end = self._next_bundle_end()
        if next_end is None:
            return
        end_s, _ = next_end
        if end_s < self._alarm_s:
            # Rounding may put an end a little before the present.
            self._alarm_s = max(end_s, self.clock.now)
            self.clock.call_at(self._alarm_s, self._on_alarm, self._alarm_s, FIRST)

    def _on_alarm(self, at_s: float) -> None:
        """Callback at the expected time of the next end: end all flows that are due, in the order in which they began."""
        if at_s != self._alarm_s:
            return  # a call for an earlier time has taken its place
        self._alarm_s = _NEVER
        # Remove all flows that end now before the first listener is called: a listener may begin or cancel flows, and must find
        # those that ended at this instant gone.
        ended: dict[int, PathClass] = {}
        while True:
            next_end = self._next_bundle_end()
            if next_end is None:
                break
            end_s, bundle = next_end
            if end_s > at_s:
                break
            del self._valid_entry[bundle]
            ended_before = len(ended)
            popped = bundle.pop_end(at_s)
            while popped is not None:
                _, flow = popped
                ended[flow] = self._classes.pop(flow)
                popped = bundle.pop_end(at_s)
            if len(ended) == ended_before:
                # Rounding has put its end later. A bundle in which a flow has ended gets new rates, and its end is noted then.
                self._note_end(bundle)
        if not ended:
            self._call_at_next_end()
            return
        if self.usage is not None:
            self._ended = {flow: self.usage.end(flow, flow_class, at_s) for flow, flow_class in ended.items()}
        for flow_class in dict.fromkeys(ended.values()):
            self._sharing.leave(flow_class, at_s)
            if self.usage is not None and not flow_class.count:
                self.usage.forget(flow_class)
        self._on_change()
        # Numbers are given as flows begin, so this is the order in which they began.
        for flow in sorted(ended):
            self._on_end(flow)
        self._ended = {}

    def state_dict(self) -> State:
        """Return capacities, paths, rates and the bytes of every flow in progress."""
        # Changes that wait for `solve` have no place in the state: apply them first.
        self._solve(None)
        paths = []
        for path in self.paths.values():
            uses = [(link.name, weight) for link, weight in path.uses]
            paths.append({"name": path.name, "uses": uses, "penalty": path.penalty, "bound": path.bound})
        return {
            "number": self._number,
            "links": {name: (link.capacity, link.tight) for name, link in self.links.items()},
            "paths": paths,
            "sharing": self._sharing.state(),
            "usage": None if self.usage is None else self.usage.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state at the present time and schedule the next end."""
        self._number = state["number"]
        for name, (capacity, tight) in state["links"].items():
            self.links[name].capacity, self.links[name].tight = capacity, tight
        for saved in state["paths"]:
            path = self.path(saved["name"], saved["uses"])
            path.penalty, path.bound = saved["penalty"], saved["bound"]
        self._sharing.load(state["sharing"], self.links, self.paths, self.clock.now)
        for flow_class in self._sharing.classes.values():
            self._classes |= {number: flow_class for _, number, _ in flow_class.queue}
        if self.usage is not None:
            self.usage.load_state_dict(state["usage"], self._sharing.classes.values())
        for bundle in self._sharing.bundles:
            self._note_end(bundle)
        self._call_at_next_end()
