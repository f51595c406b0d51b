"""Warnings of changes that no detector can see."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outlook


def unseen_latency(outlook: Outlook) -> Iterator[Caution]:
    """Warn of a detector if changes alter only how long transmissions take.

    A scheduler observes only if an update arrives within the round, not its duration.
    """
    scenario = outlook.scenario
    channels, scheduler = scenario.channels, scenario.scheduler
    # A script may change anything. A round that closes at a time loses a longer transmission, which the detector sees.
    if channels is None or scheduler is None or scenario.script is not None or scenario.server.limit_s is not None:
        return
    # A scheduler may contain another one, which then has the detector.
    watching = scheduler.parameters().get("scheduler") or scheduler
    if "detector" not in watching.parameters() or scenario.jammers or scenario.outages or channels.states is not None:
        return
    detector = watching.parameters()["detector"]
    drawn = channels.random_changes
    changes = [f"channels.changes.{i}" for i, change in enumerate(channels.changes) if not change.channel]
    changes += ["channels.random_changes"] if drawn is not None and "channel." not in str(drawn.parameter) else []
    change_count = len(channels.changes) + (drawn is not None)
    if not changes or len(changes) < change_count or (detector is not None and detector.kind == "no-detection"):
        return
    what = "changes only how long a transmission takes, which no detector of scheduler.kind"
    remedy = "observes: it is told if an update arrived; change channel.success, or close rounds at a time"
    yield Caution("unseen-change", f"{changes[0]}: {what} = {scheduler.kind!r} {remedy}")
