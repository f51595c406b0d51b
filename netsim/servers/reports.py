"""What a server puts together of a round that is over: reports for its policy, losses for the record of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.reports import Reports, RoundOutcome

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray
    from netsim.servers.loop import ClosedRound

_NAN = float("nan")


def told(closed: ClosedRound, latency_s: FloatArray, *, phases: bool) -> RoundOutcome:
    """What a policy is told of a round; `latency_s` (n,) of its attempts, `phases`: clients report how long each step took."""
    censored = np.array([attempt.censored for attempt in closed.attempts], np.bool_)
    updates = None if closed.content is None else closed.content.updates
    return RoundOutcome(
        closed.number,
        closed.start_s,
        closed.end_s,
        closed.clients,
        latency_s,
        censored,
        updates,
        lambda: reports_of(closed, phases=phases),
    )


def reports_of(closed: ClosedRound, *, phases: bool) -> Reports:
    """What came with the updates of a round; `phases` as of `told`. An update that was delivered does not change any more."""
    attempts, version = closed.attempts, closed.version
    reports = Reports.nothing(len(attempts))
    places = [place for place, attempt in enumerate(attempts) if not attempt.censored]
    arrived = [attempts[place] for place in places]
    if version is None:
        reports.staleness[places] = [closed.number - attempt.begun_round for attempt in arrived]
    else:
        reports.staleness[places] = [version - attempt.version for attempt in arrived]
    reports.samples[places] = [-1 if attempt.samples is None else attempt.samples for attempt in arrived]
    reports.steps[places] = [-1 if attempt.steps is None else attempt.steps for attempt in arrived]
    reports.bytes_down[places] = [attempt.bytes_down for attempt in arrived]
    reports.bytes_up[places] = [attempt.bytes_up for attempt in arrived]
    reports.elapsed_s[places] = [attempt.outcome_s - attempt.selected_s for attempt in arrived]
    if phases:
        reports.download_s[places] = [attempt.download_end_s - attempt.download_start_s for attempt in arrived]
        reports.compute_s[places] = [attempt.compute_end_s - attempt.compute_start_s for attempt in arrived]
        reports.upload_s[places] = [attempt.upload_end_s - attempt.upload_start_s for attempt in arrived]
    content = closed.content
    if content is not None and content.loss is not None and content.loss_rms is not None:
        reports.loss[places], reports.loss_rms[places] = content.loss, content.loss_rms
    return reports


def losses_by_update(closed: ClosedRound) -> dict[tuple[int, int], tuple[float, float]]:
    """The losses of the updates of a round that arrived, by client and the round each was begun in."""
    content = closed.content
    if content is None or content.loss is None or content.loss_rms is None:
        return {}
    keys = [(attempt.client, attempt.begun_round) for attempt in closed.attempts if not attempt.censored]
    return dict(zip(keys, zip(content.loss.tolist(), content.loss_rms.tolist(), strict=True), strict=True))
