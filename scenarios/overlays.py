"""Overlays on an underlay: exact and simulated cycle times, and the graph between clients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.overlays.complete import Complete
from models.overlays.delta_mbst import DeltaMbst
from models.overlays.exponential import Exponential, OnePeerExponential
from models.overlays.matcha import ROUNDS, Matcha, MatchaPlus
from models.overlays.mst import Mst
from models.overlays.ring import Ring
from models.overlays.silos import Arc, Silos
from models.overlays.star import Star
from models.peers.graph import PeerGraph
from netsim.core.clock import Clock
from netsim.network.flows.transfers import LinkData, Transfers
from netsim.peers.overlay_rounds import Carry, OverlayRounds, mean_round_s
from scenarios.networks import read_network
from scenarios.schema.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.overlays.overlay import Overlay

OVERLAYS: dict[str, Callable[[Silos], Overlay]] = {
    "star": Star,
    "star-direct": partial(Star, direct=True),
    "matcha": Matcha,
    "matcha+": MatchaPlus,
    "mst": Mst,
    "delta-mbst": DeltaMbst,
    "ring": Ring,
    "exponential": Exponential,
    "one-peer": OnePeerExponential,
    "complete": Complete,
}
"""Overlays by name."""
USUAL = ("star", "mst", "delta-mbst", "ring", "matcha", "matcha+")
FLUID_ROUNDS = 40
"""Number of simulated rounds with flows if rounds never repeat; the mean is over the second half."""


@dataclass(frozen=True, slots=True)
class CycleTime:
    """Mean time of a round of an overlay, in milliseconds."""

    name: str
    cycle_ms: float
    """Exact, at fixed shares of the links."""
    simulated_ms: float
    """Simulated, at fixed shares of the links."""
    arcs: Sequence[tuple[str, str]]
    """Names of the source and the target of each arc."""
    fluid_ms: float | None = None
    """Simulated, with flows that share all cables; None: not requested."""

    @property
    def best_ms(self) -> float:
        """Time by which overlays are compared: that with flows if it was requested, else the exact one."""
        return self.cycle_ms if self.fluid_ms is None else self.fluid_ms

    def to_json(self) -> dict[str, Any]:
        """Return the times and the arcs as plain data."""
        fluid = {} if self.fluid_ms is None else {"fluid_ms": self.fluid_ms}
        return {"cycle_ms": self.cycle_ms, "simulated_ms": self.simulated_ms, **fluid, "arcs": [list(arc) for arc in self.arcs]}


def cycle_times(silos: Silos, names: Sequence[str], *, fluid: bool = False) -> list[CycleTime]:
    """Return the cycle times of overlays by their names in `OVERLAYS`. `fluid`: also with flows that share all cables."""
    times = []
    for name in names:
        overlay = OVERLAYS[name](silos)
        pairs = [(silos.underlay.sites[arc.source], silos.underlay.sites[arc.target]) for arc in overlay.arcs]
        fluid_ms = simulated_ms(silos, overlay, fluid=True) if fluid else None
        times.append(CycleTime(name, overlay.cycle_ms(), simulated_ms(silos, overlay), pairs, fluid_ms))
    return times


def overlay(
    *,
    clients: int,
    generator: np.random.Generator,
    network: Annotated[str, Doc("Network of the silos: the name of one that comes along, or a file as of `network.source`.")],
    overlay: Annotated[
        str,
        Doc(
            "Overlay: star, mst, delta-mbst, ring, exponential or complete; with the protocol of peers that chooses the links of "
            "each round also matcha, matcha+ and one-peer. All links carry messages in both directions."
        ),
    ] = "mst",
    model_bits: Annotated[float, Doc("Size of the model for which the overlay is made, bits.")] = 44_961_717.0,
    compute_ms: Annotated[float, Doc("Time of a local step for which the overlay is made, ms.")] = 25.4,
    steps: Annotated[int, Doc("Local steps of a round.")] = 1,
) -> PeerGraph:
    """Return the graph of an overlay of silos; client i is node i of the network, in the order of the file.

    Where the links change from round to round, the graph holds those of all rounds.

    Raises:
        ParameterError: `clients` is not the number of nodes, no overlay, or no network.

    Example:
        >>> import numpy as np
        >>> graph = overlay(clients=11, generator=np.random.default_rng(1), network="gaia", overlay="star")
        >>> graph.degree
        array([10,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1])
    """
    try:
        underlay = read_network(network)
    except UserError as error:
        raise ParameterError("network", network, f"{error}") from None
    if len(underlay.sites) != clients:
        raise ParameterError("network", network, f"has {len(underlay.sites)} nodes: must have {clients}, one a client")
    if overlay not in OVERLAYS:
        raise ParameterError("overlay", overlay, f"is no overlay; {did_you_mean(overlay, OVERLAYS)}")
    arcs = OVERLAYS[overlay](Silos(underlay, model_bits, compute_ms, steps)).arcs
    pairs = {(min(arc.source, arc.target), max(arc.source, arc.target)) for arc in arcs}
    links = np.array(sorted(pairs), np.int64)
    # A file with delays in place of km has no distances: they are 0 here, and the cables of [network] have the delays.
    lengths = [sum(underlay.cables[cable].km or 0.0 for cable in underlay.ways[a][b].cables) for a, b in links.tolist()]
    return PeerGraph.from_links(clients=clients, links=links, distance_km=np.array(lengths))


def simulated_ms(silos: Silos, overlay: Overlay, *, fluid: bool = False) -> float:
    """Return the mean time of a round in milliseconds, simulated by events. `fluid`: True if messages share links as flows.

    If rounds repeat, the mean is over one period of the repeating rounds. If arcs are drawn at random, it is over all rounds. If
    rounds with flows never repeat, it is over the second half of `FLUID_ROUNDS`.
    """
    clock = Clock()
    carry = _carry_as_flows(silos, overlay, clock) if fluid else _carry_at_fixed_shares(silos, overlay, clock)
    rounds = OverlayRounds(
        clock=clock,
        count=silos.count,
        work_s=silos.work_ms / 1e3,
        arcs_of=lambda round: [(arc.source, arc.target) for arc in overlay.round_arcs(round)],
        carry=carry,
        waiting=overlay.waiting,
    )
    if not overlay.period:  # the arcs of each round are drawn
        count = FLUID_ROUNDS if fluid else ROUNDS
        rounds.run(count + 1)
        return float(rounds.begins[count].max()) / count * 1e3
    most = FLUID_ROUNDS if fluid else 20 * silos.count * overlay.period
    mean_s: float | None = None

    def repeats() -> bool:
        """Return True, which ends the simulation, once the rounds repeat; their mean is then in `mean_s`."""
        nonlocal mean_s
        mean_s = mean_round_s(rounds.begins, overlay.period)
        return mean_s is not None

    rounds.run(most + 1, repeats)
    if mean_s is not None:
        return mean_s * 1e3
    half = len(rounds.begins) // 2
    return float((rounds.begins[-1] - rounds.begins[half]).mean()) / (len(rounds.begins) - 1 - half) * 1e3


def _carry_at_fixed_shares(silos: Silos, overlay: Overlay, clock: Clock) -> Carry:
    """Return the function that carries messages at fixed shares of the links: each takes the time of `Silos.message_ms`.

    Counterpart of `_carry_as_flows`, in which messages share the links as they come and go.
    """

    @lru_cache(maxsize=max(overlay.period, 1))
    def message_times_s(round: int) -> list[float]:
        times_s: list[float] = (silos.message_ms(overlay.round_arcs(round)) / 1e3).tolist()
        return times_s

    def carry(round: int, places: Sequence[int], on_arrival: Callable[[], None]) -> None:
        # The last of the messages calls: all begin together, so that one event serves for all.
        times_s = message_times_s(round % overlay.period if overlay.period else round)
        clock.call_in(max(times_s[place] for place in places), lambda _: on_arrival())

    return carry


def _carry_as_flows(silos: Silos, overlay: Overlay, clock: Clock) -> Carry:
    """Return the function that carries messages as flows, which share links by max-min fairness.

    A message first waits for the latency of its route. Then its flow crosses the links of `_route_links`.
    """
    transfers = Transfers(clock=clock, links=_flow_links(silos))
    callbacks: dict[int, Callable[[], None]] = {}  # by transfer in progress
    transfers.listen(lambda transfer: callbacks.pop(transfer)())
    model_bytes = silos.model_bits / 8
    # Overlays repeat after a period: compute the arcs of its rounds once.
    arcs_of = lru_cache(maxsize=max(overlay.period, 1))(overlay.round_arcs)

    def carry(round: int, places: Sequence[int], on_arrival: Callable[[], None]) -> None:
        """Send the messages of the arcs at `places` of a round; call `on_arrival` once all have arrived."""
        arcs = arcs_of(round % overlay.period if overlay.period else round)
        in_flight = len(places)

        def count_arrival() -> None:
            nonlocal in_flight
            in_flight -= 1
            if not in_flight:
                on_arrival()

        for place in places:
            send(arcs[place], count_arrival)

    def send(arc: Arc, on_arrival: Callable[[], None]) -> None:
        """Send the message of one arc; call `on_arrival` once it has arrived."""
        names, latency_s = _route_links(silos, arc)
        route = transfers.route(names)

        def begin(_: None) -> None:
            callbacks[transfers.send(route, model_bytes)] = on_arrival

        clock.call_in(latency_s, begin)

    return carry


def _flow_links(silos: Silos) -> list[LinkData]:
    """Return the links that flows share: the uplink and the downlink of each silo, and each cable once for each direction."""
    links = [LinkData(name=f"up {silo}", bytes_per_s=silos.up_bits_per_s / 8) for silo in range(silos.count)]
    links += [LinkData(name=f"down {silo}", bytes_per_s=silos.down_bits_per_s / 8) for silo in range(silos.count)]
    for cable in silos.underlay.cables:
        capacity = (cable.bits_per_s or silos.core_bits_per_s) / 8
        links += [LinkData(name=f"{a}>{b}", bytes_per_s=capacity) for a, b in ((cable.a, cable.b), (cable.b, cable.a))]
    return links


def _route_links(silos: Silos, arc: Arc) -> tuple[list[str], float]:
    """Return (names of the links that a message of `arc` crosses, latency of its route in seconds).

    The links are the uplink of its source, the cables of its route in its direction, and the downlink of its target.
    """
    sites, latency_ms = [arc.source], 0.0
    for a, b in itertools.pairwise(arc.stops):
        way = silos.underlay.ways[a][b]
        sites += way.sites[1:]
        latency_ms += way.latency_ms
    cables = [f"{a}>{b}" for a, b in itertools.pairwise(sites)]
    return [f"up {arc.source}", *cables, f"down {arc.target}"], latency_ms / 1e3
