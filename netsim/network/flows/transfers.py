"""Transfers over routes of links: first the delay of the route, then a flow on all its links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from netsim.core.clock import FIRST, Clock
from netsim.core.errors import ParameterError
from netsim.network.flows.corrections import Corrections
from netsim.network.flows.flows import Flows
from netsim.network.flows.sharing import Link, Path

if TYPE_CHECKING:
    from netsim.core.protocols import State

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkData:
    """A link as a network describes it.

    `bytes_per_s`: bandwidth, >= 0. `delay_s`: propagation delay. `fat_pipe`: every flow has the whole bandwidth. A full-duplex
    cable is two links. Raises ParameterError for values that are negative or infinite.
    """

    name: str
    bytes_per_s: float
    delay_s: float = 0.0
    fat_pipe: bool = False

    def __post_init__(self) -> None:
        for name in ("bytes_per_s", "delay_s"):
            if not 0.0 <= getattr(self, name) < _NEVER:
                raise ParameterError(name, getattr(self, name), f"of link {self.name!r} must be >= 0 and finite")


@dataclass(slots=True)
class Route:
    """A route, and the path that its flows use."""

    there: tuple[str, ...]
    """Names of the links that the bytes cross."""
    back: tuple[str, ...]
    """Names of the links of the way back, which acknowledgements cross."""
    path: Path | None = field(default=None, compare=False)
    """Path of the flows; None before the first flow."""


class _Delayed(NamedTuple):
    """A transfer in its delay."""

    begin_s: float
    """End of the delay, at which the flow begins."""
    route: Route
    size_bytes: float
    limit_bytes_per_s: float

    @property
    def needs_flow(self) -> bool:
        """True unless the transfer ends with its delay, because it has no bytes or crosses no link."""
        return bool(self.size_bytes and self.route.there)


class Transfers:
    """Transfers under way: of S bytes over a route, a delay and then a flow.

    A transfer of 0 bytes takes the delay; one over no links takes no time. A delay that changes acts on later transfers, and on
    the penalty and the bound of flows under way.

    >>> from netsim.core.clock import Clock
    >>> clock = Clock()
    >>> transfers = Transfers(clock=clock, links=[LinkData(name="up", bytes_per_s=1000.0, delay_s=0.5)])
    >>> transfers.listen(lambda transfer: print(f"transfer {transfer} ends at {clock.now} s"))
    >>> transfers.send(transfers.route(["up"]), 250.0), transfers.send(transfers.route(["up"]), 250.0)
    (0, 1)
    >>> clock.run()
    transfer 0 ends at 1.0 s
    transfer 1 ends at 1.0 s
    """

    def __init__(self, *, clock: Clock, links: Iterable[LinkData], corrections: Corrections | None = None) -> None:
        self.clock = clock
        self.corrections = corrections or Corrections()
        links = list(links)
        self._delays = {link.name: link.delay_s for link in links}
        """Propagation delay of each link by name, seconds."""
        self.flows = Flows(clock=clock, links=[Link(link.name, link.bytes_per_s, link.fat_pipe) for link in links])
        self.flows.listen(self._flow_ended)
        self._on_end: Callable[[int], None] = lambda transfer: None
        self._routes: dict[tuple[tuple[str, ...], tuple[str, ...]], Route] = {}
        """Routes by (links, links of the way back)."""
        self._used: list[Route] = []
        """Routes that flows have used, in the order of first use."""
        self._routes_over: dict[str, list[Route]] = {}
        """Used routes, by link."""
        self._number = 0
        """Number that the next transfer gets."""
        self._delayed: dict[int, _Delayed] = {}
        """Transfers in their delay, by number."""
        self._flow_of: dict[int, int] = {}
        """Flow of each transfer that is past its delay, by number of the transfer."""
        self._transfer_of: dict[int, int] = {}
        """Transfer of each flow, by number of the flow."""

    def listen(self, on_end: Callable[[int], None]) -> None:
        """Call `on_end` with the number of each transfer at the time of its end."""
        self._on_end = on_end

    def __len__(self) -> int:
        return len(self._delayed) + len(self._flow_of)

    def route(self, there: Sequence[str], back: Sequence[str] = ()) -> Route:
        """Return the route over these links; `back`: links that `reverse_share` loads.

        Raises ParameterError for a link that does not exist.
        """
        key = tuple(there), tuple(back)
        if key not in self._routes:
            for name in (*there, *back):
                if name not in self._delays:
                    raise ParameterError("route", name, f"is no link; there are {', '.join(self._delays) or 'none'}")
            self._routes[key] = Route(*key)
        return self._routes[key]

    def delay_s(self, route: Route, size_bytes: float) -> float:
        """Return the seconds before the bytes flow, for a transfer that begins now: the delay and the start of the connection."""
        delay_s, bandwidths = self._delay_s(route), [self.flows.links[name].capacity for name in route.there]
        return self.corrections.latency_factor * delay_s + self.corrections.start_up_s(size_bytes, delay_s, bandwidths)

    def _delay_s(self, route: Route) -> float:
        """Return the propagation delay of a route, without corrections."""
        return sum(self._delays[name] for name in route.there)

    def send(self, route: Route, size_bytes: float, limit_bytes_per_s: float = _NEVER, wait_s: float = 0.0) -> int:
        """Begin a transfer now, at most at this rate; return its number.

        Its flow begins `wait_s` seconds after the delay of the route.

        Raises ParameterError for a size that is negative or infinite, and a limit that is not > 0.
        """
        if not 0.0 <= size_bytes < _NEVER:
            raise ParameterError("size_bytes", size_bytes, "must be >= 0 bytes and finite")
        if not limit_bytes_per_s > 0.0:
            raise ParameterError("limit_bytes_per_s", limit_bytes_per_s, "must be > 0 bytes a second")
        number = self._number
        self._number += 1
        begin_s = self.clock.now + self.delay_s(route, size_bytes) + wait_s
        self._delayed[number] = _Delayed(
            begin_s=begin_s, route=route, size_bytes=size_bytes, limit_bytes_per_s=limit_bytes_per_s
        )
        self._schedule(number)
        return number

    def _schedule(self, number: int) -> None:
        """Schedule the end of a transfer's delay: its flow begins then, or the transfer ends if it needs no flow."""
        delayed = self._delayed[number]
        if delayed.needs_flow:
            self.clock.call_at(delayed.begin_s, self._begin, number)
        else:
            # FIRST, as ends of flows: a transfer that ends comes before what begins at the same instant.
            self.clock.call_at(delayed.begin_s, self._end, number, FIRST)

    def _begin(self, number: int) -> None:
        """Callback at the end of a delay: begin the flow."""
        if number not in self._delayed:
            return  # the transfer was cancelled
        _, route, size_bytes, limit = self._delayed.pop(number)
        # Bytes pass at `factor` times the share of bandwidth. The same time results from a larger flow at the whole share, whose
        # limit is raised likewise: links are then filled by shares, as in SimGrid.
        factor = self.corrections.bandwidth_factor
        flow = self.flows.start(self._path(route), size_bytes / factor, limit / factor)
        self._flow_of[number], self._transfer_of[flow] = flow, number

    def _path(self, route: Route) -> Path:
        """Return the path of a route, created at its first flow."""
        if route.path is None:
            uses = [(name, 1.0) for name in route.there]
            share = self.corrections.reverse_share
            uses += [(name, share) for name in route.back] if share else []
            name = ">".join(route.there) + ("|" + ">".join(route.back) if route.back else "")
            route.path = self.flows.path(name, uses, *self._penalty_and_bound(route))
            self._used.append(route)
            for link in dict.fromkeys(route.there):
                self._routes_over.setdefault(link, []).append(route)
        return route.path

    def _penalty_and_bound(self, route: Route) -> tuple[float, float]:
        """Return the penalty and the bound of flows on a route."""
        delay_s, bandwidths = self._delay_s(route), [self.flows.links[name].capacity for name in route.there]
        return self.corrections.penalty(delay_s, bandwidths), self.corrections.bound(delay_s, bandwidths)

    def _flow_ended(self, flow: int) -> None:
        """Handle the end of a flow: report the end of its transfer. The transfer is forgotten only afterwards, so that listeners
        may still read `limited_s`.
        """
        number = self._transfer_of.pop(flow)
        self._on_end(number)
        del self._flow_of[number]

    def _end(self, number: int) -> None:
        """Callback at the end of the delay of a transfer without a flow."""
        if self._delayed.pop(number, None) is not None:
            self._on_end(number)

    def limited_s(self, transfer: int) -> dict[str, float]:
        """Return the seconds for which each link has limited a transfer so far; empty without a flow. Needs `flows.usage`."""
        flow = self._flow_of.get(transfer)
        return {} if flow is None else self.flows.limited_s(flow)

    def is_ending(self, transfer: int) -> bool:
        """Return True if a transfer ends at this instant."""
        if transfer in self._delayed:
            delayed = self._delayed[transfer]
            return delayed.begin_s <= self.clock.now and not delayed.needs_flow
        flow = self._flow_of.get(transfer)
        return flow is None or self.flows.is_ending(flow)

    def cancel(self, transfer: int) -> None:
        """End a transfer early, without calling listeners; raises KeyError for a transfer that is not in progress."""
        if transfer in self._delayed:
            del self._delayed[transfer]
            return
        flow = self._flow_of.pop(transfer)
        del self._transfer_of[flow]
        self.flows.cancel(flow)

    def change(self, link: str, *, bytes_per_s: float | None = None, delay_s: float | None = None) -> None:
        """Set the bandwidth or the delay of a link from now on.

        Raises ParameterError as `LinkData` does, and for a link that does not exist.
        """
        if link not in self._delays:
            raise ParameterError("link", link, f"is no link; there are {', '.join(self._delays) or 'none'}")
        present_bytes_per_s = self.flows.links[link].capacity
        bytes_per_s = present_bytes_per_s if bytes_per_s is None else bytes_per_s
        delay_s = self._delays[link] if delay_s is None else delay_s
        LinkData(name=link, bytes_per_s=bytes_per_s, delay_s=delay_s)  # raises for values out of range
        self._delays[link] = delay_s
        if bytes_per_s != present_bytes_per_s:
            self.flows.change(link, bytes_per_s)
        # The bound of a path follows its bandwidths and, with corrections, its delay; so does the penalty.
        for route in self._routes_over.get(link, ()):
            path = self._path(route)
            penalty, bound = self._penalty_and_bound(route)
            if (penalty, bound) != (path.penalty, path.bound):
                self.flows.reprice(path, penalty, bound)

    def state_dict(self) -> State:
        """Return delays, transfers in their delay, and flows."""
        return {
            "number": self._number,
            "delays": dict(self._delays),
            "delayed": [
                (number, begin_s, route.there, route.back, size, limit)
                for number, (begin_s, route, size, limit) in self._delayed.items()
            ],
            "routes": [(route.there, route.back) for route in self._used],
            "flows": self.flows.state_dict(),
            "flow_of": list(self._flow_of.items()),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state at the present time and schedule the next events."""
        self._number, self._delays = state["number"], dict(state["delays"])
        self.flows.load_state_dict(state["flows"])
        for there, back in state["routes"]:
            self._path(self.route(there, back))
        self._flow_of = dict(state["flow_of"])
        self._transfer_of = {flow: transfer for transfer, flow in self._flow_of.items()}
        for number, begin_s, there, back, size, limit in state["delayed"]:
            self._delayed[number] = _Delayed(begin_s, self.route(there, back), size, limit)
            self._schedule(number)
