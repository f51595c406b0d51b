"""Use of links by flows, for tables of a run: the link that limits each flow, and the bytes that cross each link."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.network.flows.sharing import Link, PathBundle, PathClass

OWN_LIMIT = "own"
"""Name in place of a link for a flow that its own limit, or the window of its route, limits."""
_TOLERANCE = 1e-12


class _Present:
    """A class of flows since the last change of its rate: rate of a flow, number of flows, limiting link."""

    __slots__ = ("count", "limit", "limited_s", "rate", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        self.rate = 0.0
        self.count = 0
        self.limit: str | None = None
        self.limited_s: dict[str, float] = {}
        """Seconds for which each link has limited the class so far."""


class Usage:
    """Seconds by limiting link of every flow under way, and bytes so far by link.

    Flows of one class always have the same rate and the same limit, so that one account holds for all: a flow's seconds are those
    of its class since the flow began.
    """

    def __init__(self, now_s: float) -> None:
        self.bytes: dict[str, float] = {}
        """Bytes that have crossed each link so far."""
        self._since_s = now_s
        self._changed: dict[str, tuple[float, float]] = {}
        """Links whose capacity changed in this period: bytes that the link could have carried up to the change, and the time of
        the change.
        """
        self._present: dict[PathClass, _Present] = {}
        self._before: dict[int, dict[str, float]] = {}
        """Account of the class at the beginning of each flow, by the number of the flow."""

    def begin(self, flow: int, group: PathClass, now_s: float) -> None:
        """Note that a flow of `group` begins."""
        self._before[flow] = dict(self._advance(group, now_s).limited_s)

    def end(self, flow: int, group: PathClass, now_s: float) -> dict[str, float]:
        """Note the end of a flow; return the seconds for which each link has limited it."""
        seconds = self.limited_s(flow, group, now_s)
        del self._before[flow]
        return seconds

    def limited_s(self, flow: int, group: PathClass, now_s: float) -> dict[str, float]:
        """Return the seconds for which each link has limited a flow of `group` so far."""
        before, total = self._before[flow], self._advance(group, now_s).limited_s
        seconds = {link: total[link] - before.get(link, 0.0) for link in total}
        return {link: each for link, each in seconds.items() if each > 0.0}

    def forget(self, group: PathClass) -> None:
        """Close the account of a class without flows."""
        self._present.pop(group, None)

    def change(self, link: Link, now_s: float) -> None:
        """Note that a capacity is about to change."""
        room_bytes, since_s = self._changed.get(link.name, (0.0, self._since_s))
        self._changed[link.name] = room_bytes + link.capacity * (now_s - since_s), now_s

    def mean_capacity(self, link: Link, now_s: float) -> float:
        """Return the mean capacity of a link since the period began, bytes/s."""
        if link.name not in self._changed or now_s <= self._since_s:
            return link.capacity
        room_bytes, since_s = self._changed[link.name]
        return (room_bytes + link.capacity * (now_s - since_s)) / (now_s - self._since_s)

    def begin_period(self, now_s: float) -> None:
        """Begin the period over which capacities are averaged."""
        self._since_s, self._changed = now_s, {}

    def settle(self, bundles: Iterable[PathBundle], now_s: float) -> None:
        """Close the accounts at the rates up to now, and note the rates that `solve` has just set."""
        for bundle in bundles:
            for _, _, one in bundle.order:
                group: PathClass = one  # type: ignore[assignment]
                present = self._advance(group, now_s)
                present.count = group.count
                present.rate = bundle.rate if group.free else group.limit
                present.limit = bundle.filled if group.free and bundle.shared else _limiting_link(group)

    def advance(self, now_s: float) -> None:
        """Bring `bytes` up to the present time."""
        for group in self._present:
            self._advance(group, now_s)

    def _advance(self, group: PathClass, now_s: float) -> _Present:
        """Add the seconds and bytes since the last call. Must be called before the rate changes."""
        present = self._present.get(group)
        if present is None:
            present = self._present[group] = _Present(now_s)
        seconds = now_s - present.since_s
        if seconds > 0.0:
            if present.limit is not None:
                present.limited_s[present.limit] = present.limited_s.get(present.limit, 0.0) + seconds
            for link, weight in group.path.uses:
                self.bytes[link.name] = self.bytes.get(link.name, 0.0) + seconds * present.rate * present.count * weight
            present.since_s = now_s
        return present

    def state_dict(self) -> State:
        """Return the accounts of classes, by their numbers, and of flows."""
        names = ("since_s", "rate", "count", "limit")
        return {
            "bytes": dict(self.bytes),
            "since_s": self._since_s,
            "changed": dict(self._changed),
            "present": [
                (group.number, {name: getattr(one, name) for name in names}, dict(one.limited_s))
                for group, one in self._present.items()
            ],
            "before": [(flow, dict(account)) for flow, account in self._before.items()],
        }

    def load_state_dict(self, state: State, groups: Iterable[PathClass]) -> None:
        """Go on from a saved state, with the classes under way."""
        by_number = {group.number: group for group in groups}
        self.bytes = dict(state["bytes"])
        self._since_s, self._changed = state["since_s"], dict(state["changed"])
        self._before = {flow: dict(account) for flow, account in state["before"]}
        for number, fields, limited_s in state["present"]:
            present = self._present[by_number[number]] = _Present(fields["since_s"])
            present.rate, present.count, present.limit = fields["rate"], fields["count"], fields["limit"]
            present.limited_s = dict(limited_s)


def _limiting_link(group: PathClass) -> str:
    """Return the link of its path that holds a class at its limit; OWN_LIMIT if it is the bound of its flows or its path.

    Where a link and the bound allow the same rate, the link is named.
    """
    least, name = min(group.bound, group.path.bound), OWN_LIMIT
    for link, weight in group.path.uses:
        alone = not link.fat_pipe and len(link.classes) == 1
        # A link that only this class crosses is divided among its flows; other links limit by their level.
        flows = max(group.count, 1) if alone else 1
        rate = link.capacity / (weight * flows)
        if rate * (1.0 - _TOLERANCE) <= least:
            least, name = rate, link.name
    return name
