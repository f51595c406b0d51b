"""Sub-channels under a server, as one bundle for its composer: access, assignment, and instruments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from netsim.records.sinks import NoRecorder
from netsim.servers.rounds.instruments import Detections, Jamming, Undisturbed
from netsim.servers.sub_channels.assignment import Assignment, NoAssignment, ScheduledAssignment

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.protocols import Learner
    from netsim.core.scheduling import ChannelScheduler
    from netsim.core.streams import Streams
    from netsim.network.access import AssignedAccess
    from netsim.servers.rounds.loop import Instrument
    from netsim.servers.rounds.round_server import Recording


class OwnLinks:
    """Null object: every client has a link of its own, or waits in the one queue of the uplink."""

    access: AssignedAccess[Update] | None = None
    assignment: Assignment = NoAssignment()
    instruments: Sequence[Instrument] = ()
    recording: Sequence[Recording] = ()
    detections: Detections | None = None
    """Instrument of the changes that a scheduler declares, or None."""


class ScheduledChannels(OwnLinks):
    """Sub-channels of `access`, assigned by `scheduler`. `ScheduledAssignment` explains `places` and `refill`."""

    access: AssignedAccess[Update]

    def __init__(
        self,
        *,
        pool: ClientPool,
        access: AssignedAccess[Update],
        scheduler: ChannelScheduler,
        streams: Streams,
        places: int | None = None,
        refill: bool = False,
        learner: Learner,
    ) -> None:
        self.access = access
        self.assignment = ScheduledAssignment(
            pool=pool,
            spectrum=access.spectrum,
            scheduler=scheduler,
            draws=streams["scheduler"],
            places=places,
            refill=refill,
            learner=learner,
        )
        self.detections = Detections(scheduler=scheduler, recorder=NoRecorder(), jammers=bool(access.jammers))
        can_be_disturbed = access.jammers or access.spectrum.contention
        jamming = Jamming(jammers=access.jammers) if can_be_disturbed else Undisturbed()
        self.instruments = [jamming, self.detections]
        self.recording = [self.detections]
