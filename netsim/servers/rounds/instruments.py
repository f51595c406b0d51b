"""Instruments: they measure rounds from outside, in columns of their records: rewards, jamming, detections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from netsim.core.rows import ColumnValues, DetectionRow
from netsim.servers.rounds.loop import ClosedRound, Dispatch, Instrument

if TYPE_CHECKING:
    from netsim.core.protocols import RewardMeter
    from netsim.core.scheduling import ChannelScheduler
    from netsim.network.jammable import JammedRoutes
    from netsim.network.jamming import Jammers
    from netsim.records.sinks import Recorder
    from netsim.servers.rounds.dispatch import PolicyDispatch


class Reward(Instrument):
    """Instrument for the rewards of the policy and of the genie (PAUSE eq. 9, 10, 15)."""

    state_fields = ("meter",)
    round_columns = ("reward", "genie_reward")

    def __init__(self, *, dispatch: PolicyDispatch, meter: RewardMeter) -> None:
        self.dispatch = dispatch
        self.meter = meter

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `reward` and `genie_reward`."""
        dispatch, medium = self.dispatch, self.dispatch.pool.pool.medium
        reward, genie = self.meter.measure(
            dispatch.outcome, dispatch.view, lambda clients: medium.latency_s(closed.number, closed.start_s, clients)
        )
        return {"reward": reward, "genie_reward": genie}


class Jamming(Instrument):
    """Instrument for the effect of jammers and collisions on a round's transmissions, and for the cost of jamming."""

    state_fields = ("_spent_before",)
    round_columns = ("jammed", "collided", "jam_dwells")
    reads_ends = True

    def __init__(self, *, jammers: Jammers) -> None:
        self.jammers = jammers
        self._spent_before = 0
        """Dwells of all jammers up to the last close."""

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `jammed`, `collided` and `jam_dwells`."""
        spent = self.jammers.spent
        values = {
            "jammed": sum(update.jammed is True for update in closed.ended),
            "collided": sum(update.collided is True for update in closed.ended),
            "jam_dwells": spent - self._spent_before,
        }
        self._spent_before = spent
        return values

    def counts(self) -> dict[str, int]:
        """Return `jam_dwells` since the start of the run."""
        return {"jam_dwells": self.jammers.spent}


class LinkJamming(Instrument):
    """Instrument for the effect of jammers on the transfers over `links`: cables, or clients' own links; and for their cost."""

    state_fields = ("_before",)
    round_columns = ("jammed", "jam_dwells")

    def __init__(self, *, links: Sequence[JammedRoutes[Any]], jammers: Jammers) -> None:
        self._links = links
        self._jammers = jammers
        self._before = (0, 0)
        """(transfers hit, dwells) up to the last close."""

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `jammed` (hit transfers of all kinds) and `jam_dwells`."""
        hit_before, spent_before = self._before
        hit, spent = sum(links.hit for links in self._links), self._jammers.spent
        self._before = hit, spent
        return {"jammed": hit - hit_before, "jam_dwells": spent - spent_before}

    def counts(self) -> dict[str, int]:
        """Return `jam_dwells` since the start of the run."""
        return {"jam_dwells": self._jammers.spent}


class Undisturbed(Instrument):
    """Null object of `Jamming`, for runs without jammers in which no two transmissions can meet."""

    round_columns = Jamming.round_columns

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return zeros, as `Jamming` would count them."""
        return {"jammed": 0, "collided": 0, "jam_dwells": 0}

    def counts(self) -> dict[str, int]:
        """Return `jam_dwells`, 0."""
        return {"jam_dwells": 0}


class Restarts(Instrument):
    """Instrument for the changes of clients' latencies that a policy declares. It fills no column, and calls `on_declared`."""

    state_fields = ("_reported",)

    def __init__(self, *, dispatch: Dispatch, on_declared: Callable[[int, list[int]], None]) -> None:
        self.dispatch = dispatch
        self.on_declared = on_declared
        self._reported = 0
        """Number of changes that were passed to `on_declared`."""

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return no column. Call `on_declared` with the round and the clients of new changes."""
        restarts = self.dispatch.restarts
        if len(restarts) > self._reported:
            clients = {client for _, client in restarts[self._reported :]}
            self.on_declared(closed.number, sorted(clients))
            self._reported = len(restarts)
        return {}


class Detections(Instrument):
    """Instrument for the changes that a scheduler declares, which have a table. `jammers`: True if the run has jammers."""

    state_fields = ("_hits",)

    def __init__(self, *, scheduler: ChannelScheduler, recorder: Recorder, jammers: bool = True) -> None:
        self.scheduler = scheduler
        self.reads_ends = jammers
        self.recorder = recorder
        self._on_declared: Callable[[int, list[int]], None] = lambda round, channels: None
        self._hits: dict[int, int] = {}
        """Number of transmissions hit by a jammer since the scheduler last declared a change, by sub-channel."""

    @property
    def detections(self) -> Detections:
        """This instrument, which has the scheduler's changes."""
        return self

    def detects(self) -> bool:
        """Return True if the scheduler watches for changes."""
        return self.scheduler.detects()

    def listen(self, on_declared: Callable[[int, list[int]], None]) -> None:
        """Set the callback for declared changes: the round and the sub-channels."""
        self._on_declared = on_declared

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return no column. Record the changes declared in the round in their own table, and call the listener if there are any.
        """
        for update in closed.ended:
            if update.jammed and update.channel is not None:
                self._hits[update.channel] = self._hits.get(update.channel, 0) + 1
        declared = self.scheduler.declared
        for channel, detector, observations in declared:
            row = DetectionRow(
                round=closed.number,
                time_s=closed.end_s,
                channel=channel,
                detector=detector,
                observations=observations,
                jammed=self._hits.get(channel, 0),
            )
            self.recorder.detection(row)
        if declared:
            self._hits.clear()
            self._on_declared(closed.number, sorted({channel for channel, _, _ in declared}))
        return {}
