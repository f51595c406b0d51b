"""The media between server and clients: both links and the clients' local training as laws over time, access to the uplink, and
what clients share.

A medium knows nothing of models, a client nothing of laws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.null_objects import NoTime, NoWork
from netsim.network.access import OwnLinkAccess, UplinkAccess
from netsim.network.carriers import Carrier, NoCarrier, Port
from netsim.network.draws import Durations, Survivals
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
    """Local training, but for what it takes for each sample."""
    upload: Timeline[DelayLaw]
    downlink: Timeline[ChannelLaw]
    uplink: Timeline[ChannelLaw]
    work: WorkLaw | None = None
    """Amount of local training; None if unknown."""
    sample: Timeline[DelayLaw] | None = None
    """Time of each sample; None: no time."""
    reached_by_outages: bool = True
    """False where the clients are peers: they train without transfers, and outages destroy only the messages between them."""


class Medium:
    """Everything between selection and delivery: both links and the clients' local training, as laws over time."""

    def __init__(
        self,
        *,
        clients: int,
        laws: MediumLaws,
        streams: Streams,
        access: UplinkAccess[Any] | None = None,
        down: Carrier | None = None,
        up: Carrier | None = None,
        outages: ClientOutages | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        sample = laws.sample or NoTime()
        self.clients = clients
        self.down: Carrier = NoCarrier() if down is None else down
        """Carrier of the bytes of models once the downlink's delay has passed."""
        self.up: Carrier = NoCarrier() if up is None else up
        """Carrier of the bytes of updates once the uplink's delay has passed."""
        self.download = self.down.add_times(Durations(clients=clients, law=laws.download, draws=streams["downlink.delay"]))
        self.compute = Durations(clients=clients, law=laws.compute, draws=streams["compute.delay"])
        self.sample = Durations(clients=clients, law=sample, draws=streams["compute.noise"])
        """Time of local training for each sample, beside `compute`."""
        self.work: WorkLaw = laws.work or NoWork()
        """Number of those samples."""
        self.upload = self.up.add_times(Durations(clients=clients, law=laws.upload, draws=streams["uplink.delay"]))
        self.downlink = Survivals(
            clients=clients, law=laws.downlink, draws=streams["downlink.loss"], state_draws=streams["downlink.state"]
        )
        self.uplink = Survivals(
            clients=clients, law=laws.uplink, draws=streams["uplink.loss"], state_draws=streams["uplink.state"]
        )
        self.access: UplinkAccess[Any] = access or OwnLinkAccess()
        """Access to the uplink; by default every client has a link of its own."""
        self.reached_by_outages = laws.reached_by_outages
        self.outages = outages or None
        """Outages that destroy transmissions of many clients at once, or None."""
        self.sizes = sizes or Sizes()
        """Bytes of what is sent; by default none."""

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
        """The same links for probes, with draws from `streams`: what has a state, or a place for one at a time, is shared.

        `download`, `upload`: how long messages take, but for what carriers carry; `compute`: how long a client works, beside the
        `sample` times of its samples. `request_bytes` go to each client (None: the model), `answer_bytes` come back (None: as of
        an update).
        """
        sizes = self.sizes
        probes = Medium(
            clients=self.clients,
            laws=MediumLaws(
                download=download,
                compute=compute,
                upload=upload,
                downlink=self.downlink.law,
                uplink=self.uplink.law,
                sample=sample,
            ),
            streams=streams,
            access=self.access,
            down=self.down.resize(request_bytes),
            up=self.up.resize(answer_bytes),
            outages=self.outages,
            sizes=Sizes(
                down=sizes.down if request_bytes is None else request_bytes,
                up=sizes.up if answer_bytes is None else answer_bytes,
                carried=(request_bytes, answer_bytes),
            ),
        )
        probes.downlink = self.downlink.share_states(streams["downlink.loss"])
        probes.uplink = self.uplink.share_states(streams["uplink.loss"])
        return probes

    def ports(self, kind: str) -> tuple[Port, Port]:
        """Return the ports of both carriers for messages of `kind`: down, up."""
        down, up = self.sizes.carried
        return self.down.port(kind, down), self.up.port(kind, up)

    def inexact_phases(self) -> set[str]:
        """Return the phases that do not end later by as much as they begin later, because a bandwidth is shared or changes."""
        steady = {"download": self.down.steady, "upload": self.up.steady and self.access.steady}
        return {phase for phase, is_steady in steady.items() if not is_steady}

    def open_round(self, round: int, time_s: float) -> None:
        """Let everything that has a memory move on to `round`."""
        self.access.open_round(round, time_s)
        self.down.open_round(round, time_s)
        self.up.open_round(round, time_s)
        self.downlink.open_round(round, time_s)
        self.uplink.open_round(round, time_s)
        if self.outages is not None:
            self.outages.open_round(round, time_s)

    def latency_s(self, round: int, time_s: float, clients: IntArray) -> FloatArray:
        """The latency of any clients in `round`, selected or not, if nothing is lost and nobody waits or shares; seconds (n,).

        Of an update that begins at `time_s` and does the work that the work law asks for in the round: its bytes pass at the
        bandwidths of the times at which they are then sent.
        """
        total = np.array(self.download.delays_s(round, time_s, clients), np.float64)
        total += self.down.alone_s(round, time_s + total, clients)
        for phase in (self.compute, self.upload):
            total += phase.delays_s(round, time_s, clients)
        each = self.sample.draw(round, time_s, clients)
        if not each.certain:
            samples, _ = self.work.amounts(clients, self.work.plan_steps(round, clients))
            total += np.array(samples, np.float64) * each.values_at(time_s, len(clients))
        return total + self.up.alone_s(round, time_s + total, clients)

    def state_dict(self) -> State:
        """State of both links, of access and of what carries bytes; who waits or is under way is kept with the updates."""
        state: State = {
            "downlink": self.downlink.state_dict(),
            "uplink": self.uplink.state_dict(),
            "access": self.access.state_dict(),
            "down": self.down.state_dict(),
            "up": self.up.state_dict(),
        }
        if self.outages is not None:
            state["outages"] = self.outages.state_dict()
        return state

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Take the state at the close of `round`."""
        self.downlink.load_state_dict(state["downlink"], round, time_s)
        self.uplink.load_state_dict(state["uplink"], round, time_s)
        self.access.load_state_dict(state["access"], round, time_s)
        self.down.load_state_dict(state["down"], round, time_s)
        self.up.load_state_dict(state["up"], round, time_s)
        if self.outages is not None:
            self.outages.load_state_dict(state["outages"])
