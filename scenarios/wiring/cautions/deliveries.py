"""Warnings of a finished run: of clients whose updates never arrived, and of long waits for clients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netsim.simulation import BY_TIME
from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outcome
from scenarios.wiring.clients.population import Population

_FLOWER_TIMEOUT_S = 3600.0
"""Timeout of the strategies of Flower unless the app gives another."""
_LONG_WAIT_S = 86400.0
"""Shortest wait for clients with a warning: a day."""
_ENOUGH = 10
"""Mean number of selections of a client. From it on, a group that was never selected gets a warning."""


def no_round(outcome: Outcome) -> Iterator[Caution]:
    """Warn of a run that is over without a complete round."""
    if outcome.over and not outcome.run.rounds:
        limit = f"time_limit_s = {outcome.scenario.time_limit_s!r} came first"
        reason = limit if outcome.ended == BY_TIME else f"it ended by: {outcome.ended}"
        yield Caution("no-round", f"rounds: none was completed, {reason}; the tables are empty")


def waited_for_days(outcome: Outcome) -> Iterator[Caution]:
    """Warn of a round that waited for clients for a day or longer, if clients come and go."""
    scenario, run = outcome.scenario, outcome.run
    comes_and_goes = scenario.availability.kind != "always" or scenario.energy is not None
    if not outcome.over or not run.rounds or not comes_and_goes or run.longest_wait_s < _LONG_WAIT_S:
        return
    days = f"{run.longest_wait_s / 86400.0:.3g} days ({run.longest_wait_s:.10g} s)"
    key = f"availability.kind = {scenario.availability.kind!r}"
    text = f"{key}: round {run.waited_round} waited {days} until enough clients were there"
    yield Caution("long-wait", f"{text}; give other times of presence, or let rounds do with fewer clients")


def long_timeout(outcome: Outcome) -> Iterator[Caution]:
    """Warn of a Flower app that waits for lost messages with the timeout that strategies of Flower have by default."""
    if outcome.waited_for_lost_s < _FLOWER_TIMEOUT_S:
        return
    no_timeout = outcome.waited_for_lost_s == float("inf")
    waits = "without a timeout" if no_timeout else f"with a timeout of {outcome.waited_for_lost_s:g} s"
    text = f'flower.lost = "silent": the app waited {waits} for messages that were lost'
    yield Caution("long-timeout", f'{text}; give the start of its strategy a timeout, or set flower.lost = "error"')


def standstill(outcome: Outcome) -> Iterator[Caution]:
    """Warn of peers that wait for each other for ever: the run ended before its last round."""
    if not outcome.standstill:
        return
    kind = outcome.scenario.server.kind
    text = f"server.kind = {kind!r}: no peer can go on after round {outcome.run.rounds}, and no message can arrive any more"
    remedy = "end the outage, the cut, the jamming or the absence, or give server.protocol.timeout_s where the protocol has it"
    yield Caution("standstill", f"{text} ({outcome.standstill}); {remedy}")


def nothing_delivered(outcome: Outcome) -> Iterator[Caution]:
    """Warn of groups of clients, or of all clients, without a delivered update."""
    if not outcome.over or not outcome.run.rounds:
        return
    scenario, successes = outcome.scenario, np.array(outcome.clients.successes)
    if not successes.any():
        yield Caution("never-delivered", "clients: no update of any client was ever delivered")
        return
    for i, (name, members) in enumerate(Population(scenario.clients).members.items()):
        if successes[members].any():
            continue
        tried = bool(np.array(outcome.clients.selections)[members].any())
        # A short run, such as a trial, leaves some clients out under every policy.
        if tried or outcome.run.counts["selected"] >= _ENOUGH * scenario.clients.count:
            reason = "each was lost, late, aborted or still under way at the end" if tried else "it was never selected"
            text = f'clients.groups.{i}.name = "{name}": no update of this group was ever delivered; {reason}'
            yield Caution("never-delivered", text)
