"""Max-min fair rates of flows on links (Bertsekas and Gallager 1992, Section 6.5.2), exactly, without a clock of its own.

Weighted form: the smallest of penalty x rate is as large as can be, then the second smallest, and so on. The sum of weight x rate
is at most the capacity on every link, and the rate at most the bound for every flow. A change is solved only for the flows that
it can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from netsim.core.errors import ParameterError
from netsim.network.flows.bundle import Bundle, FlowClass

if TYPE_CHECKING:
    from netsim.core.protocols import State

_NEVER = float("inf")
_OVER = 1.0 + 1e-12
"""Relative excess over a capacity that counts as rounding error of a sum of many rates."""


@dataclass(eq=False, slots=True)
class Link:
    """A link in one direction, or in both if they share its capacity.

    `capacity`: bytes/s, >= 0. `fat_pipe`: every flow has all of it. Raises ParameterError for any other capacity.
    """

    name: str
    capacity: float
    fat_pipe: bool = False
    classes: dict[PathClass, float] = field(default_factory=dict, repr=False)
    """Weights of the classes of flows that cross the link."""
    bundles: dict[PathBundle, float] = field(default_factory=dict, repr=False)
    """Weights of the bundles that share the link; empty if it limits one class only."""
    tight: bool = False
    """True if the link decides the rate of a bundle."""

    def __post_init__(self) -> None:
        _check(self.capacity)


def _check(capacity: float) -> None:
    """Raise ParameterError unless `capacity` is >= 0 bytes/s and finite."""
    if not 0.0 <= capacity < _NEVER:
        raise ParameterError("capacity", capacity, "must be >= 0 bytes a second and finite")


@dataclass(eq=False, slots=True)
class Path:
    """A route as flows use it: a weight for each link, one penalty and one bound for all flows on it.

    Raises ParameterError for a path without links, a weight or penalty that is not > 0, and a negative bound.
    """

    name: str
    uses: tuple[tuple[Link, float], ...]
    penalty: float = 1.0
    bound: float = _NEVER

    def __post_init__(self) -> None:
        if not self.uses:
            raise ParameterError("uses", self.uses, "must name at least one link")
        for _, weight in self.uses:
            if not 0.0 < weight < _NEVER:
                raise ParameterError("weight", weight, "must be > 0 and finite")
        if not 0.0 < self.penalty < _NEVER:
            raise ParameterError("penalty", self.penalty, "must be > 0 and finite")
        if not self.bound >= 0.0:
            raise ParameterError("bound", self.bound, "must be >= 0 bytes a second")

    def rate_alone(self) -> float:
        """Return the rate of a flow alone on the path, bytes/s."""
        return min(self.bound, min(link.capacity / weight for link, weight in self.uses))


class PathClass(FlowClass):
    """Flows on one path with one bound of their own, in bytes/s; they always have the same rate."""

    __slots__ = ("bound", "bundle", "path")

    def __init__(self, path: Path, bound: float, number: int) -> None:
        super().__init__(0.0, number)
        self.path = path
        self.bound = bound
        self.bundle: PathBundle | None = None
        """Bundle that the class belongs to; None before it has joined one."""

    def own_limit(self) -> float:
        """Return the largest rate of one of the flows if there is no other class.

        A link that only this class crosses is a limit of the class: it needs no place among the shared links.
        """
        limit = min(self.bound, self.path.rate_alone())
        for link, weight in self.path.uses:
            if not link.fat_pipe and len(link.classes) == 1 and self.count > 1:
                limit = min(limit, link.capacity / (weight * self.count))
        return limit


class PathBundle(Bundle):
    """Classes that share the same links with the same weights, and have one penalty; or one class that shares no link.

    `shared`: (link, weight) of the links that other classes cross, too. The one class of a bundle without shared links has the
    limit inf in it: its own limit is the rate of the bundle. So its flows come and go in virtual time.
    """

    def __init__(self, penalty: float, shared: tuple[tuple[Link, float], ...], now_s: float) -> None:
        super().__init__(now_s)
        self.penalty = penalty
        self.shared = shared
        self.undecided = False
        """True while the solver works and has not decided the rate."""
        self.decided_rate = _NEVER
        """Rate of free members, as decided by the solver."""
        self.limiting_link: str | None = None
        """Name of the link that decides the rate of free members; None if there is none."""
        self.total_rate = 0.0
        """Sum of the rates of all members, as decided by the solver."""

    def decide(self, rate: float) -> None:
        """Set the rate of free members within the solver; `Bundle.settle` applies it later."""
        # Another link may have moved the split since the deciding link was filled: move it to where this rate has it.
        self.aim(rate)
        self.undecided, self.decided_rate = False, rate
        self.total_rate = self.limited_rate + (self.free_count * rate if self.free_count else 0.0)


# The algorithm, progressive filling, in four steps:
# 1. Group the flows. Flows with one path and one bound form a class; classes on the same shared links form a bundle. A link that
#    only one class crosses is divided among equal flows, so it is a limit of that class and no unknown of the solver. Links of
#    single clients are therefore never solved for.
# 2. Collect the bundles that a change can reach: from the changed ones through tight links only (`_add_reached`). The rates of
#    all other bundles stay as they are.
# 3. Raise the rates of these bundles together, until a link is full; freeze its bundles, and go on with the rest (`_fill`).
# 4. Look for links that were not tight before and that the new rates would overload. If there are any, add them and repeat from
#    step 2. Each repetition adds at least one link, so it ends.


class Sharing:
    """Rates of all flows. Changes are collected, and `solve` brings the rates up to date.

    Classes of equal flows whose path shares the same links form a bundle with one virtual time. So the cost of a change is that
    of the bundles that it reaches, not that of the flows.
    """

    def __init__(self) -> None:
        self.classes: dict[tuple[Path, float], PathClass] = {}
        """Classes with flows, by path and bound."""
        self._bundles: dict[tuple[Any, ...], PathBundle] = {}
        """Bundles by penalty and shared links, or by penalty and class if no link is shared."""
        self._changed_bundles: dict[PathBundle, None] = {}
        """Bundles with changed members, in the order of their changes."""
        self._changed_links: dict[Link, None] = {}
        """Links whose capacity or flows changed."""
        self._numbers = 0
        """Number that the next class gets."""

    # Changes.

    def add(self, path: Path, bound: float, size: float, number: int, key: object, now_s: float) -> PathClass:
        """Begin a flow of `size` bytes on `path`, at most `bound` bytes/s, at `now_s`; return its class.

        The rates change by the next `solve`. `number` orders ends at one time; `key` is the caller's name of the flow, which its
        end returns.
        """
        # Flows on one path with one bound always have the same rate, so they share a class.
        flow_class = self.classes.get((path, bound))
        if flow_class is None:
            flow_class = self.classes[path, bound] = PathClass(path, bound, self._numbers)
            self._numbers += 1
            self._enter(flow_class, now_s)
        assert flow_class.bundle is not None
        flow_class.bundle.add(flow_class, size, number, key, now_s)
        self._count_flows(flow_class, now_s)
        return flow_class

    def drop(self, flow_class: PathClass, number: int, now_s: float) -> None:
        """End a flow early."""
        assert flow_class.bundle is not None
        flow_class.bundle.drop(flow_class, number, now_s)
        self.leave(flow_class, now_s)

    def leave(self, flow_class: PathClass, now_s: float) -> None:
        """Handle that a flow of `flow_class` has ended. A class without flows is removed from its bundle and its links."""
        if flow_class.count:
            self._count_flows(flow_class, now_s)
            return
        del self.classes[flow_class.path, flow_class.bound]
        self._withdraw(flow_class, now_s)
        for link, _ in flow_class.path.uses:
            del link.classes[flow_class]
            self._rehome_last(link, now_s)

    def change(self, link: Link, capacity: float, now_s: float) -> None:
        """Set the capacity of a link, whose flows get their new rates by the next `solve`; raises ParameterError as `Link` does.

        Each class on the link looks for its bundle again: a link limits a bundle together, or one class by itself.
        """
        _check(capacity)
        link.capacity = capacity
        self._changed_links[link] = None
        for flow_class in list(link.classes):
            self._rehome(flow_class, now_s)

    def reprice(self, path: Path, penalty: float, bound: float, now_s: float) -> None:
        """Set the penalty and the bound of a path, also for flows already on it."""
        path.penalty, path.bound = penalty, bound
        # Every class of the path crosses its first link. A list, because rehoming changes the classes of links.
        first_link, _ = path.uses[0]
        for flow_class in [candidate for candidate in first_link.classes if candidate.path is path]:
            self._rehome(flow_class, now_s)

    def _enter(self, flow_class: PathClass, now_s: float) -> None:
        """Add a new class to its links, and to a bundle.

        A link that had one class is shared from now on, so that class may need another bundle.
        """
        for link, weight in flow_class.path.uses:
            sole_class = list(link.classes) if len(link.classes) == 1 else []
            # Add the new class first: rehoming looks at how many classes cross the link.
            link.classes[flow_class] = weight
            for other in sole_class:
                self._rehome(other, now_s)
        self._join(flow_class, now_s)

    def _rehome_last(self, link: Link, now_s: float) -> None:
        """Move the last class on a link, which no longer shares it, to another bundle."""
        if len(link.classes) == 1:
            self._rehome(next(iter(link.classes)), now_s)

    def _rehome(self, flow_class: PathClass, now_s: float) -> None:
        """Move a class to the bundle of its present shared links and penalty; if that is the same bundle, update its limit."""
        bundle = flow_class.bundle
        assert bundle is not None
        if bundle.penalty == flow_class.path.penalty and bundle.shared == _shared_links(flow_class.path):
            self._count_flows(flow_class, now_s)
        else:
            self._withdraw(flow_class, now_s)
            self._join(flow_class, now_s)

    def _count_flows(self, flow_class: PathClass, now_s: float) -> None:
        """Handle that the number of flows of a class changed: its bundle needs new rates, and perhaps the class a new limit."""
        assert flow_class.bundle is not None
        self._changed_bundles[flow_class.bundle] = None
        # A class that shares no link keeps the limit inf: `solve` gives it its own limit as the rate of its bundle.
        if flow_class.bundle.shared:
            limit = flow_class.own_limit()
            if limit != flow_class.limit:
                flow_class.bundle.relimit(flow_class, limit, now_s)

    def _join(self, flow_class: PathClass, now_s: float) -> None:
        """Add a class to the bundle of its shared links and penalty."""
        bundle = self._bundle(flow_class, _shared_links(flow_class.path), now_s)
        flow_class.bundle = bundle
        # Without shared links its own limit becomes the rate of the bundle (`solve`).
        flow_class.limit = flow_class.own_limit() if bundle.shared else _NEVER
        bundle.insert(flow_class, now_s)
        self._changed_bundles[bundle] = None

    def _bundle(self, flow_class: PathClass, shared: tuple[tuple[Link, float], ...], now_s: float) -> PathBundle:
        """Return the bundle that a class on these shared links belongs to, a new one if there is none."""
        # A class that shares no link has a bundle of its own.
        key = (flow_class.path.penalty, shared or flow_class)
        bundle = self._bundles.get(key)
        if bundle is None:
            bundle = self._bundles[key] = PathBundle(flow_class.path.penalty, shared, now_s)
            for link, weight in shared:
                link.bundles[bundle] = weight
        return bundle

    def _withdraw(self, flow_class: PathClass, now_s: float) -> None:
        """Remove a class from its bundle, and the bundle if it was its last class."""
        bundle = flow_class.bundle
        assert bundle is not None
        bundle.remove(flow_class, now_s)
        self._changed_bundles[bundle] = None
        if not bundle:
            del self._bundles[bundle.penalty, bundle.shared or flow_class]
            del self._changed_bundles[bundle]
            # No bundle is left that could say which rates change now, so the links say it.
            for link, _ in bundle.shared:
                del link.bundles[bundle]
                self._changed_links[link] = None

    # Rates.

    def solve(self, now_s: float) -> list[PathBundle]:
        """Compute the rates from `now_s` on, and return the bundles whose rates or members changed.

        Only links that bound rates before are considered at first. Other links are added if the rates exceed their capacity.
        This is exact: rates that are max-min fair on some links and feasible on all links are max-min fair on all.
        """
        if not self._changed_bundles and not self._changed_links:
            return []
        # A class that shares no link has the largest rate it can have.
        unshared = [bundle for bundle in self._changed_bundles if not bundle.shared]
        for bundle in unshared:
            flow_class: Any = bundle.order[0][2]
            bundle.decide(flow_class.own_limit())
            bundle.settle(bundle.decided_rate, now_s)
        bundles = {bundle: None for bundle in self._changed_bundles if bundle.shared}
        # A changed link that was not tight limits no bundle; if it is too small now, `_find_overloaded` finds it.
        binding = dict.fromkeys(link for link in self._changed_links if link.tight)
        self._changed_bundles, self._changed_links = {}, {}
        if not bundles and not binding:
            return unshared
        _add_reached(bundles, binding)
        while True:
            _fill(list(bundles), list(binding))
            overloaded = _find_overloaded(bundles, binding)
            if not overloaded:
                break
            binding |= overloaded
            _add_reached(bundles, binding)
        for bundle in bundles:
            bundle.settle(bundle.decided_rate, now_s)
        return [*unshared, *bundles]

    # Saved state.

    def state(self) -> State:
        """Return the fields to save once the rates are up to date."""
        classes = [
            {"path": flow_class.path.name, "bound": flow_class.bound, "number": flow_class.number}
            for flow_class in self.classes.values()
        ]
        bundles = []
        for bundle in self._bundles.values():
            shared = [(link.name, weight) for link, weight in bundle.shared]
            bundles.append({"penalty": bundle.penalty, "shared": shared, "fields": bundle.state()})
        return {"numbers": self._numbers, "classes": classes, "bundles": bundles}

    def load(self, state: State, links: Mapping[str, Link], paths: Mapping[str, Path], now_s: float) -> None:
        """Set the fields of a saved state, on `links` and `paths` by their names."""
        # Put all classes on their links first: which links are shared, and so the bundle of a class, depends on all of them.
        self._numbers = state["numbers"]
        by_number = {}
        for saved in state["classes"]:
            path = paths[saved["path"]]
            flow_class = by_number[saved["number"]] = PathClass(path, saved["bound"], saved["number"])
            self.classes[path, saved["bound"]] = flow_class
            for link, weight in path.uses:
                link.classes[flow_class] = weight
        for saved in state["bundles"]:
            shared = tuple((links[name], weight) for name, weight in saved["shared"])
            members = [by_number[fields["number"]] for fields in saved["fields"]["classes"]]
            bundle = self._bundle(members[0], shared, now_s)
            for flow_class, fields in zip(members, saved["fields"]["classes"], strict=True):
                flow_class.load(fields)
                flow_class.bundle = bundle
            bundle.load(saved["fields"], members)
            bundle.total_rate = bundle.limited_rate + bundle.free_count * bundle.rate

    @property
    def bundles(self) -> Iterable[PathBundle]:
        """All bundles with flows."""
        return self._bundles.values()


def _shared_links(path: Path) -> tuple[tuple[Link, float], ...]:
    """Return the links of a path that limit several classes together."""
    return tuple((link, weight) for link, weight in path.uses if not link.fat_pipe and len(link.classes) > 1)


def _add_reached(bundles: dict[PathBundle, None], binding: dict[Link, None]) -> None:
    """Add to `bundles` all bundles that cross a `binding` link, and to `binding` all tight links that these cross, until none is
    missing: a change can reach all of them.
    """
    to_visit = list(binding)
    for bundle in bundles:
        to_visit += [link for link, _ in bundle.shared if link.tight and link not in binding]
    while to_visit:
        link = to_visit.pop()
        binding[link] = None
        for bundle in link.bundles:
            if bundle not in bundles:
                bundles[bundle] = None
                to_visit += [crossed for crossed, _ in bundle.shared if crossed.tight and crossed not in binding]


def _find_overloaded(bundles: Iterable[PathBundle], binding: Mapping[Link, None]) -> dict[Link, None]:
    """Return the links of `bundles`, other than `binding` ones, whose load would exceed their capacity."""
    checked = set(binding)
    overloaded: dict[Link, None] = {}
    for bundle in bundles:
        for link, _ in bundle.shared:
            if link not in checked:
                checked.add(link)
                load = 0.0
                for crossing, weight in link.bundles.items():
                    load += weight * crossing.total_rate
                if load > link.capacity * _OVER:
                    overloaded[link] = None
    return overloaded


def _fill(bundles: Iterable[PathBundle], binding: Sequence[Link]) -> None:
    """Decide the rates of `bundles`, which only the `binding` links limit, by progressive filling.

    The link that is full at the lowest level decides the rates of its bundles; other links go on with what is left.
    """
    for bundle in bundles:
        bundle.undecided = True
    queue = [(_fill_link(link), place) for place, link in enumerate(binding)]
    heapify(queue)
    for link in binding:
        link.tight = False
    nothing_decided = True
    while queue:
        level, place = heappop(queue)
        if level == _NEVER:
            break
        link = binding[place]
        # Levels are brought up to date only when they are popped. A queued level can only be too low: a bundle of this link that
        # was decided on another link took less than its share here, which leaves more to the rest. So a link whose level has
        # risen goes back into the heap, and the link whose level has not is the next to be full.
        present_level = level if nothing_decided else _fill_link(link)
        nothing_decided = False
        if present_level > level * _OVER:
            heappush(queue, (present_level, place))
            continue
        for bundle in link.bundles:
            if bundle.undecided:
                bundle.decide(level / bundle.penalty)
                bundle.limiting_link = link.name
                link.tight = True
    for bundle in bundles:
        if bundle.undecided:
            bundle.decide(_NEVER)


def _fill_link(link: Link) -> float:
    """Raise the rates of the undecided bundles of `link` until it is full.

    Each bundle is split into classes at their limit and classes below. Return the level (penalty x rate of the classes below
    their limits) at which the link is full; inf if no class needs more than its limit.
    """
    # Subtract the load of decided bundles from the capacity.
    left_capacity, rising = link.capacity, []
    for bundle, weight in link.bundles.items():
        if bundle.undecided:
            rising.append((bundle, weight))
        else:
            left_capacity -= weight * bundle.total_rate
    left_capacity = max(left_capacity, 0.0)
    if len(rising) == 1:
        # A single bundle finds its level by a search; several depend on each other and need the iteration below.
        bundle, weight = rising[0]
        return bundle.fill(left_capacity / weight) * bundle.penalty
    down = True  # the first step may free classes; later steps only rise, else rounding could move a class to and fro for ever
    while rising:
        # Load of the classes at their limits, and load that one unit of the level adds by the others.
        limited_load = slope = 0.0
        for bundle, weight in rising:
            limited_load += weight * bundle.limited_rate
            slope += weight * bundle.free_count / bundle.penalty
        if not slope:
            # All classes are at their limits. If that exceeds the capacity, free the classes with the highest limit.
            if limited_load <= left_capacity * _OVER:
                return _NEVER
            _release(rising)
            continue
        # The load of the link is concave and piecewise linear in the level. Each step solves the piece of the present splits
        # (Newton's method), so that after the first step the levels only rise, and classes only move to their limits.
        level = max(left_capacity - limited_load, 0.0) / slope
        has_moved = [bundle.aim(level / bundle.penalty, down=down) for bundle, _ in rising]
        if not any(has_moved):
            return level
        down = False
    return _NEVER


def _release(rising: Sequence[tuple[PathBundle, float]]) -> None:
    """Free the classes whose limit is at the highest level of all `rising` (bundle, weight): move the split of their bundles
    before them.
    """
    top_level = max(bundle.penalty * bundle.order[bundle.split - 1][0] for bundle, _ in rising if bundle.split)
    for bundle, _ in rising:
        if bundle.split and bundle.penalty * bundle.order[bundle.split - 1][0] == top_level:
            bundle.free_last()
