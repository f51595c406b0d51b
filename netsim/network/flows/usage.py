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
"""Relative difference of two rates that counts as rounding: a bound that equals the bandwidth of a link is computed from it."""


class _ClassAccount:
    """Account of a class of flows: rate of a flow, number of flows and limiting link since the last change, and seconds so far.
    """

    __slots__ = ("count", "limit", "limited_s", "rate", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        """Time up to which the account is complete; what follows holds from then on."""
        self.rate = 0.0
        """Rate of one flow, bytes/s."""
        self.count = 0
        """Number of flows."""
        self.limit: str | None = None
        """Link that limits the flows, or OWN_LIMIT; None before the first rates."""
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
        self._accounts: dict[PathClass, _ClassAccount] = {}
        """Account of each class with flows."""
        self._at_begin: dict[int, dict[str, float]] = {}
        """Seconds by limiting link of the class of each flow, as they were when the flow began, by the number of the flow."""

    def begin(self, flow: int, flow_class: PathClass, now_s: float) -> None:
        """Note that a flow of `flow_class` begins: its seconds count from here."""
        self._at_begin[flow] = dict(self._advance(flow_class, now_s).limited_s)

    def end(self, flow: int, flow_class: PathClass, now_s: float) -> dict[str, float]:
        """Note the end of a flow; return the seconds for which each link has limited it."""
        seconds = self.limited_s(flow, flow_class, now_s)
        del self._at_begin[flow]
        return seconds

    def limited_s(self, flow: int, flow_class: PathClass, now_s: float) -> dict[str, float]:
        """Return the seconds for which each link has limited a flow of `flow_class` so far."""
        before, of_class = self._at_begin[flow], self._advance(flow_class, now_s).limited_s
        since_begin = {link: seconds - before.get(link, 0.0) for link, seconds in of_class.items()}
        # Links that limited the class only before the flow began are left out.
        return {link: seconds for link, seconds in since_begin.items() if seconds > 0.0}

    def forget(self, flow_class: PathClass) -> None:
        """Close the account of a class without flows."""
        self._accounts.pop(flow_class, None)

    def change(self, link: Link, now_s: float) -> None:
        """Note that the capacity of `link` is about to change: what it could have carried so far counts for the mean."""
        possible_bytes, since_s = self._changed.get(link.name, (0.0, self._since_s))
        self._changed[link.name] = possible_bytes + link.capacity * (now_s - since_s), now_s

    def mean_capacity(self, link: Link, now_s: float) -> float:
        """Return the mean capacity of a link since the period began, bytes/s."""
        if link.name not in self._changed or now_s <= self._since_s:
            return link.capacity
        possible_bytes, since_s = self._changed[link.name]
        possible_bytes += link.capacity * (now_s - since_s)
        return possible_bytes / (now_s - self._since_s)

    def begin_period(self, now_s: float) -> None:
        """Begin the period over which capacities are averaged."""
        self._since_s, self._changed = now_s, {}

    def settle(self, bundles: Iterable[PathBundle], now_s: float) -> None:
        """Close the accounts at the rates up to now, and note the rates that `solve` has just set."""
        for bundle in bundles:
            for _, _, member in bundle.order:
                flow_class: PathClass = member  # type: ignore[assignment]
                # Add what has passed at the old rate before the new one is noted.
                account = self._advance(flow_class, now_s)
                account.count = flow_class.count
                account.rate = bundle.rate if flow_class.free else flow_class.limit
                # The solver names the link of free members on shared links. Other classes have their own limit: look it up.
                if flow_class.free and bundle.shared:
                    account.limit = bundle.limiting_link
                else:
                    account.limit = _limiting_link(flow_class)

    def advance(self, now_s: float) -> None:
        """Bring `bytes` up to the present time."""
        for flow_class in self._accounts:
            self._advance(flow_class, now_s)

    def _advance(self, flow_class: PathClass, now_s: float) -> _ClassAccount:
        """Add the seconds and bytes of a class since the last call to its account, and return it. Must be called before the rate
        changes.
        """
        account = self._accounts.get(flow_class)
        if account is None:
            account = self._accounts[flow_class] = _ClassAccount(now_s)
        seconds = now_s - account.since_s
        if seconds > 0.0:
            if account.limit is not None:
                account.limited_s[account.limit] = account.limited_s.get(account.limit, 0.0) + seconds
            for link, weight in flow_class.path.uses:
                carried_bytes = seconds * account.rate * account.count * weight
                self.bytes[link.name] = self.bytes.get(link.name, 0.0) + carried_bytes
            account.since_s = now_s
        return account

    def state_dict(self) -> State:
        """Return the accounts of classes, by their numbers, and of flows."""
        accounts = []
        for flow_class, account in self._accounts.items():
            fields = {name: getattr(account, name) for name in ("since_s", "rate", "count", "limit")}
            accounts.append((flow_class.number, fields, dict(account.limited_s)))
        return {
            "bytes": dict(self.bytes),
            "since_s": self._since_s,
            "changed": dict(self._changed),
            "present": accounts,
            "before": [(flow, dict(seconds)) for flow, seconds in self._at_begin.items()],
        }

    def load_state_dict(self, state: State, flow_classes: Iterable[PathClass]) -> None:
        """Go on from a saved state, with the classes under way."""
        by_number = {flow_class.number: flow_class for flow_class in flow_classes}
        self.bytes = dict(state["bytes"])
        self._since_s, self._changed = state["since_s"], dict(state["changed"])
        self._at_begin = {flow: dict(seconds) for flow, seconds in state["before"]}
        for number, fields, limited_s in state["present"]:
            account = self._accounts[by_number[number]] = _ClassAccount(fields["since_s"])
            account.rate, account.count, account.limit = fields["rate"], fields["count"], fields["limit"]
            account.limited_s = dict(limited_s)


def _limiting_link(flow_class: PathClass) -> str:
    """Return the name of the link that holds a class at its limit, or OWN_LIMIT if the bound of its flows or of its path does.

    Where a link and the bound allow the same rate, the link is named.
    """
    lowest_rate, limiting = min(flow_class.bound, flow_class.path.bound), OWN_LIMIT
    for link, weight in flow_class.path.uses:
        is_own = not link.fat_pipe and len(link.classes) == 1
        # A link that only this class crosses is divided among its flows; other links limit by their level.
        flows = max(flow_class.count, 1) if is_own else 1
        rate = link.capacity / (weight * flows)
        if rate * (1.0 - _TOLERANCE) <= lowest_rate:
            lowest_rate, limiting = rate, link.name
    return limiting
