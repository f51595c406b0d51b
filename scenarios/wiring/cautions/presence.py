"""Warnings of clients that are never present, and of rounds that never find enough of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from netsim.core.protocols import Availability, Draws
from scenarios.registry.kinds import is_own
from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outlook

_MOST_CHANGES = 5000
"""Largest number of changes of presence to simulate. For many clients it is lower, so that it takes tenths of a second."""


class _Search(NamedTuple):
    """Result of the search for the first time at which enough clients are present at once."""

    together_s: float | None
    """That time, in seconds; if it is at or after the time limit, a lower bound of it. None: not found."""
    searched_s: float
    """Time up to which presence was simulated, in seconds; inf if all changes were, so that "not found" means "never"."""


def absent_clients(outlook: Outlook) -> Iterator[Caution]:
    """Warn of clients that are never present, and of a first round that waits for more clients than are ever present at once.

    The state of presence is restored after the search. Long waits before later rounds are known only after the run
    (`deliveries.waited_for_days`).
    """
    scenario, presence = outlook.scenario, outlook.presence
    if is_own("availability", scenario.availability.kind) or scenario.script is not None:
        return  # what they do is known only in the run
    before = presence.state_dict()
    presence.advance(0.0, outlook.draws)
    never = np.flatnonzero(~presence.on & (presence.next_change_s == np.inf))
    need = min(scenario.server.needed_clients, len(presence.on))
    limit_s = np.inf if scenario.time_limit_s is None else scenario.time_limit_s
    search = _search_together(presence, outlook.draws, need, limit_s)
    presence.load_state_dict(before)
    key = f"availability.kind = {scenario.availability.kind!r}"
    if never.size:
        text = f"{key}: {never.size} of {len(presence.on)} clients are never present, client {never[0]} first among them"
        yield Caution("never-there", f"{text}; give them times of presence, or fewer clients")
    if search.together_s is not None and search.together_s < limit_s:
        return
    if search.together_s is not None:
        earliest = f"at {search.together_s:.10g} s at the earliest"
        when = f"{earliest}, and time_limit_s = {limit_s!r} ends the run before; no round can begin"
    elif search.searched_s == np.inf:
        when = "never; no round can begin"
    else:
        when = f"not before {search.searched_s:.10g} s, as far as was looked ahead; the first round waits at least so long"
    text = f"{key}: {need} clients, which a round waits for, are present {when}"
    yield Caution("nobody-comes", f"{text}: give other times of presence, or more time")


def _search_together(presence: Availability, draws: Draws, need: int, limit_s: float) -> _Search:
    """Simulate `presence`, from its present state at time 0, until `need` clients are present at once.

    The search ends at `limit_s` (the time limit of the run; inf: none), and after a number of changes.
    """
    now_s = 0.0
    most_changes = min(max(10**7 // len(presence.on), 100), _MOST_CHANGES)
    for _ in range(most_changes):
        if np.count_nonzero(presence.on) >= need:
            return _Search(together_s=now_s, searched_s=now_s)
        next_s = float(presence.next_change_s.min())
        if next_s == np.inf:
            return _Search(together_s=None, searched_s=np.inf)
        now_s = next_s
        if now_s >= limit_s:
            break
        presence.advance(now_s, draws)
    else:  # no break: the changes did not suffice
        return _Search(together_s=None, searched_s=now_s)
    # The run ends before `now_s`. If no present client left, enough would be present at the next arrivals: a lower bound.
    arrivals_s = np.sort(np.where(presence.on, 0.0, presence.next_change_s))
    earliest_s = float(arrivals_s[need - 1])
    if earliest_s == np.inf:
        return _Search(together_s=None, searched_s=np.inf)
    return _Search(together_s=earliest_s, searched_s=earliest_s)
