"""Reports that a server builds as a round closes: for its policy, and losses for the record of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.clients.vectorised.columns import plain
from netsim.core.reports import Reports, RoundOutcome
from netsim.core.rows import CommunicationRow

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray
    from netsim.servers.rounds.loop import ClosedRound

_NAN = float("nan")


def round_outcome(closed: ClosedRound, latency_s: FloatArray, censored: BoolArray, *, phases: bool) -> RoundOutcome:
    """Return the outcome of a round for its policy.

    `latency_s`, `censored`: latencies (n,) of the round's attempts, and True (n,) for those without a delivery. `phases`: True if
    clients report the durations of steps.
    """
    updates = None if closed.content is None else closed.content.updates
    # Reports are built only if the policy reads them.
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
    """Return the reports of a round's delivered updates to the policy (staleness, work, bytes, durations, losses).

    They may be built as late as at their first reading, because a delivered update does not change any more.
    """
    attempts, version = closed.attempts, closed.version
    reports = Reports.nothing(len(attempts))
    places = np.flatnonzero(~np.asarray(attempts.column("censored"), np.bool_))

    def column(name: str) -> Any:
        return np.asarray(attempts.column(name))[places]

    # Staleness counts versions of the model; without training there are none, and rounds take their place.
    reports.staleness[places] = closed.number - column("begun_round") if version is None else version - column("version")
    # -1 stands for an unknown amount.
    for name in ("samples", "steps"):
        amounts = plain(attempts.column(name))
        getattr(reports, name)[places] = [-1 if amounts[place] is None else amounts[place] for place in places.tolist()]
    reports.bytes_down[places] = column("bytes_down")
    reports.bytes_up[places] = column("bytes_up")
    # Times that the server measures itself, by its own clock; those of single steps only if clients report them.
    reports.elapsed_s[places] = column("outcome_s") - column("selected_s")
    if phases:
        reports.download_s[places] = column("download_end_s") - column("download_start_s")
        reports.compute_s[places] = column("compute_end_s") - column("compute_start_s")
        reports.upload_s[places] = column("upload_end_s") - column("upload_start_s")
    content = closed.content
    if content is not None and content.loss is not None and content.loss_rms is not None:
        reports.loss[places], reports.loss_rms[places] = content.loss, content.loss_rms
    return reports


def communication_row(slot: int, closed: ClosedRound) -> CommunicationRow:
    """Return the record of a communication round of `slot`."""
    opened_by, opened_after = closed.opened_by
    closed_by, closed_after = closed.closed_by
    return CommunicationRow(
        round=closed.number,
        slot=slot,
        start_s=closed.start_s,
        end_s=closed.end_s,
        opened_by=opened_by,
        opened_after=opened_after,
        closed_by=closed_by,
        closed_after=closed_after,
        close_rule=closed.close_rule,
    )


def losses_by_update(closed: ClosedRound) -> dict[tuple[int, int], tuple[float, float]]:
    """Return (mean loss, root mean square) of the delivered updates of a round, by (client, round in which it was begun)."""
    content = closed.content
    if content is None or content.loss is None or content.loss_rms is None:
        return {}
    attempts = closed.attempts
    clients, rounds = plain(attempts.column("client")), plain(attempts.column("begun_round"))
    censored = plain(attempts.column("censored"))
    updates = zip(clients, rounds, censored, strict=True)
    delivered = [(client, begun_round) for client, begun_round, is_censored in updates if not is_censored]
    # Losses have an entry for each delivered update, in this order.
    losses = zip(content.loss.tolist(), content.loss_rms.tolist(), strict=True)
    return dict(zip(delivered, losses, strict=True))
