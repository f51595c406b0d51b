"""Warnings of clients that are never present, and of rounds that never find enough of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netsim.core.protocols import Availability, Draws
from scenarios.registry.kinds import is_own
from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outlook

_MOST_CHANGES = 5000
"""Largest number of changes of presence to simulate. For many clients it is lower, so that it takes tenths of a second."""


def absent_clients(outlook: Outlook) -> Iterator[Caution]:
    """Warn of clients that are never present, and of a first round that never finds enough at once.

    The state of presence is restored afterwards. Waits of later rounds show only in the run: `deliveries.waited_for_days`.
    """
    scenario, presence = outlook.scenario, outlook.presence
    if is_own("availability", scenario.availability.kind) or scenario.script is not None:
        return  # only the run shows their effect
    before = presence.state_dict()
    presence.advance(0.0, outlook.draws)
    never = np.flatnonzero(~presence.on & (presence.next_change_s == np.inf))
    need = min(scenario.server.needed_clients, len(presence.on))
    limit_s = np.inf if scenario.time_limit_s is None else scenario.time_limit_s
    first_s, simulated_s = _first_together(presence, outlook.draws, need, limit_s)
    presence.load_state_dict(before)
    key = f"availability.kind = {scenario.availability.kind!r}"
    if never.size:
        text = f"{key}: {never.size} of {len(presence.on)} clients are never present, client {never[0]} first among them"
        yield Caution("never-there", f"{text}; give them times of presence, or fewer clients")
    if first_s is None or (first_s and first_s >= limit_s):
        if first_s is not None:
            when = f"at {first_s:.10g} s at the earliest, and time_limit_s = {limit_s!r} ends the run before; no round can begin"
        elif simulated_s == np.inf:
            when = "never; no round can begin"
        else:
            when = f"not before {simulated_s:.10g} s, as far as was looked ahead; the first round waits at least so long"
        text = f"{key}: {need} clients, which a round waits for, are present {when}"
        yield Caution("nobody-comes", f"{text}: give other times of presence, or more time")


def _first_together(presence: Availability, draws: Draws, need: int, limit_s: float) -> tuple[float | None, float]:
    """Return the time at which `need` clients are first present at once, and the time up to which presence was simulated.

    (None, inf): never. (None, a time): not before that time.
    """
    now_s = 0.0
    for _ in range(min(max(10**7 // len(presence.on), 100), _MOST_CHANGES)):
        if np.count_nonzero(presence.on) >= need:
            return now_s, now_s
        next_s = float(presence.next_change_s.min())
        if next_s == np.inf:
            return None, np.inf
        now_s = next_s
        if now_s >= limit_s:
            break
        presence.advance(now_s, draws)
    else:
        return None, now_s
    # The run ends before. The next arrivals give the earliest possible time.
    arrivals_s = np.sort(np.where(presence.on, 0.0, presence.next_change_s))
    first_s = float(arrivals_s[need - 1])
    return (None, np.inf) if first_s == np.inf else (first_s, first_s)
