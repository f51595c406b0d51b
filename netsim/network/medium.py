"""The medium between server and clients: both links and local training as laws over time, access to the uplink, shared
bandwidth. Updates and probes read their times and losses from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.null_objects import NoTime, NoWork
from netsim.network.access import OwnLinkAccess, UplinkAccess
from netsim.network.bandwidth.arrival import arrival_s
from netsim.network.bandwidth.carriers import Carrier, NoCarrier, Port
from netsim.network.draws import Durations, Phases, Survivals
from netsim.network.own_link_jamming import MediumJamming, NoMediumJamming
from netsim.network.resending import NEVER_AGAIN, Resending
from netsim.network.sizes import Sizes

if TYPE_CHECKING:
    from netsim.core.protocols import ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline, WorkLaw
    from netsim.core.streams import Streams
    from netsim.network.outages import ClientOutages


@dataclass(frozen=True, kw_only=True, slots=True)
class MediumLaws:
    """Laws of the durations of an update's phases, and of the losses of its links, over time."""

    download: Timeline[DelayLaw]
    compute: Timeline[DelayLaw]
    """Time of local training, without the time for each sample."""
    upload: Timeline[DelayLaw]
    downlink: Timeline[ChannelLaw]
    uplink: Timeline[ChannelLaw]
    work: WorkLaw | None = None
    """Amount of local training; None if unknown."""
    sample: Timeline[DelayLaw] | None = None
    """Time for each sample; None: no time."""
    down_resending: Resending = NEVER_AGAIN
    """Rule by which lost models are sent again."""
    up_resending: Resending = NEVER_AGAIN
    """Rule by which lost updates are sent again."""
    reached_by_outages: bool = True
    """False if the clients are peers: they train without transfers, so outages destroy only messages between them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Carriers:
    """Carriers of the bytes of models, `down`, and of updates, `up`, over links that change or are shared.

    By default the delay of a message includes the time of its bytes.
    """

    down: Carrier = field(default_factory=NoCarrier)
    up: Carrier = field(default_factory=NoCarrier)


class Medium:
    """Everything between selection and delivery: both links and the clients' local training, as laws over time.

    `streams`: addressed random numbers. `jamming`: jammers of sub-channels and of the clients' own links; None: no jammer.
    """

    def __init__(
        self,
        *,
        clients: int,
        laws: MediumLaws,
        streams: Streams,
        access: UplinkAccess[Any] | None = None,
        carriers: Carriers | None = None,
        outages: ClientOutages | None = None,
        sizes: Sizes | None = None,
        jamming: MediumJamming | NoMediumJamming | None = None,
    ) -> None:
        sample, carriers = laws.sample or NoTime(), carriers or Carriers()
        self.clients = clients
        self.down = carriers.down
        """Carrier of the bytes of models once the downlink's delay has passed."""
        self.up = carriers.up
        """Carrier of the bytes of updates once the uplink's delay has passed."""
        self.download = self.down.add_times(Durations(clients=clients, law=laws.download, draws=streams["downlink.delay"]))
        self.compute = Durations(clients=clients, law=laws.compute, draws=streams["compute.delay"])
        self.sample = Durations(clients=clients, law=sample, draws=streams["compute.noise"])
        """Time of local training for each sample, beside `compute`."""
        self.work: WorkLaw = laws.work or NoWork()
        """Amount of local training; None if unknown."""
        self.upload = self.up.add_times(Durations(clients=clients, law=laws.upload, draws=streams["uplink.delay"]))
        self.downlink = Survivals(
            clients=clients, law=laws.downlink, draws=streams["downlink.loss"], state_draws=streams["downlink.state"]
        )
        self.uplink = Survivals(
            clients=clients, law=laws.uplink, draws=streams["uplink.loss"], state_draws=streams["uplink.state"]
        )
        self.down_resending, self.up_resending = laws.down_resending, laws.up_resending
        self.access: UplinkAccess[Any] = access or OwnLinkAccess()
        """Access to the uplink; by default every client has a link of its own."""
        self.reached_by_outages = laws.reached_by_outages
        self.outages = outages or None
        """Outages that destroy transmissions of many clients at once, or None."""
        self.sizes = sizes or Sizes()
        """Sizes of models and updates, bytes; by default 0."""
        self.jamming = jamming or NoMediumJamming()
        """Jammers of sub-channels and of the clients' own links."""

    def probe_links(
        self,
        *,
        download: Timeline[DelayLaw],
        compute: Timeline[DelayLaw],
        sample: Timeline[DelayLaw] | None,
        upload: Timeline[DelayLaw],
        streams: Streams,
        request_bytes: int | None = None,
        answer_bytes: int | None = None,
    ) -> Medium:
        """Return the same links for probes, with random numbers from `streams`. Updates and probes share the states of channels
        and the queues of the uplink.

        `download`, `upload`: durations of messages, without bytes that carriers carry. `compute`: duration of the work, without
        the `sample` times of its samples. `request_bytes`: bytes to each client; None: those of a model. `answer_bytes`: bytes
        back; None: those of an update.
        """
        down_bytes = self.sizes.down if request_bytes is None else request_bytes
        up_bytes = self.sizes.up if answer_bytes is None else answer_bytes
        probes = Medium(
            clients=self.clients,
            laws=MediumLaws(
                download=download,
                compute=compute,
                upload=upload,
                downlink=self.downlink.law,
                uplink=self.uplink.law,
                sample=sample,
                down_resending=self.down_resending,
                up_resending=self.up_resending,
            ),
            streams=streams,
            access=self.access,
            carriers=Carriers(down=self.down.resize(request_bytes), up=self.up.resize(answer_bytes)),
            outages=self.outages,
            sizes=Sizes(down=down_bytes, up=up_bytes, carried=(request_bytes, answer_bytes)),
            jamming=self.jamming,
        )
        # Probes meet the states of the channels that updates meet.
        probes.downlink = self.downlink.share_states(streams["downlink.loss"])
        probes.uplink = self.uplink.share_states(streams["uplink.loss"])
        return probes

    def ports(self, kind: str) -> tuple[Port, Port]:
        """Return the ports (down, up) through which messages of `kind` join the two carriers."""
        down, up = self.sizes.carried
        return self.down.port(kind, down), self.up.port(kind, up)

    def inexact_phases(self) -> set[str]:
        """Return the phases that may not end one second later if they begin one second later: a bandwidth is shared or changes.
        """
        steady = {"download": self.down.steady, "upload": self.up.steady and self.access.steady}
        return {phase for phase, is_steady in steady.items() if not is_steady}

    def open_round(self, round: int, time_s: float) -> None:
        """Advance all parts with a state to `round`."""
        self.jamming.open_round(round)
        self.access.open_round(round, time_s)
        self.down.open_round(round, time_s)
        self.up.open_round(round, time_s)
        self.downlink.open_round(round, time_s)
        self.uplink.open_round(round, time_s)
        if self.outages is not None:
            self.outages.open_round(round, time_s)

    def latency_s(self, round: int, time_s: float, clients: IntArray) -> FloatArray:
        """Return the latency (n,) in seconds of an update of each of `clients` (n,) that begins at `time_s`, selected or not.

        Losses, queues and other messages on a shared link are left out. The update does the work that the work law requests in
        `round`. Bytes pass at the bandwidths in force when they pass.
        """

        def transfer_end_s(begin_s: FloatArray, delays: Phases, carrier: Carrier) -> FloatArray:
            """Return the ends (n,) of transfers that begin at `begin_s` (n,), seconds; both count from `time_s`."""
            delay_s = np.array(delays.delays_s(round, time_s, clients), np.float64)
            bytes_begin_s = time_s + (begin_s + delay_s)
            return arrival_s(begin_s, delay_s, carrier.alone_s(round, bytes_begin_s, clients))

        elapsed_s = transfer_end_s(np.zeros(len(clients)), self.download, self.down)
        elapsed_s += self.compute.delays_s(round, time_s, clients)
        sample_times = self.sample.draw(round, time_s, clients)
        if not sample_times.certain:
            samples, _ = self.work.amounts(clients, self.work.plan_steps(round, clients))
            elapsed_s += np.array(samples, np.float64) * sample_times.values_at(time_s, len(clients))
        return transfer_end_s(elapsed_s, self.upload, self.up)

    def state_dict(self) -> State:
        """Return the state of both links, of access and of carriers.

        Waiting senders and transmissions in flight are saved with the updates.
        """
        state: State = {
            "downlink": self.downlink.state_dict(),
            "uplink": self.uplink.state_dict(),
            "access": self.access.state_dict(),
            "jamming": self.jamming.state_dict(),
            "down": self.down.state_dict(),
            "up": self.up.state_dict(),
        }
        if self.outages is not None:
            state["outages"] = self.outages.state_dict()
        return state

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state at the close of `round`."""
        self.downlink.load_state_dict(state["downlink"], round, time_s)
        self.uplink.load_state_dict(state["uplink"], round, time_s)
        self.access.load_state_dict(state["access"], round, time_s)
        self.jamming.load_state_dict(state["jamming"], round)
        self.down.load_state_dict(state["down"], round, time_s)
        self.up.load_state_dict(state["up"], round, time_s)
        if self.outages is not None:
            self.outages.load_state_dict(state["outages"])
