"""Transfers of clients' states between edges: over the links between edges and the nodes above, or over a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.protocols import Stateful
from netsim.network.losses import cause_of_loss

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import State
    from netsim.network.bandwidth.carriers import Key
    from netsim.network.medium import Medium
    from netsim.network.resending import Resending
    from netsim.network.routed.network import RoutedNetwork

_OWNER = _KIND = "states"
Leg = tuple[bool, int]
"""One link on the way of a state: True for the way up, and the edge at the lower end of the link."""


class StateTransfers(Stateful, Protocol):
    """Transfers of states of clients, at most one for each client, from edge to edge."""

    @property
    def bytes(self) -> int:
        """Bytes sent so far, on each link between an edge and the node above, or once over a network."""

    def listen(self, on_end: Callable[[int, str | None], None]) -> None:
        """Call `on_end` with the client of each transfer that ends, and the cause of its loss, None if it arrived."""

    def begin(self, client: int, source: int, target: int) -> None:
        """Send the state of `client` from the edge `source` to the edge `target`."""

    def cancel(self, client: int) -> None:
        """End the transfer of `client` early, without calling listeners."""


class RoutedStates:
    """States of `size_bytes` over the routes of `network` between the `ends` (E,) of edges."""

    def __init__(self, *, network: RoutedNetwork, ends: Sequence[int], size_bytes: int) -> None:
        self._network, self._ends, self._size = network, ends, size_bytes
        self.bytes = 0

    def listen(self, on_end: Callable[[int, str | None], None]) -> None:
        """Set the callback for transfers that end: the client, and the cause of a loss or None."""

        def on_transfer_end(key: Key, cause: str | None) -> None:
            """Pass on the end of a transfer of the network; its key names the client."""
            _, client = key
            on_end(client, cause)

        self._network.listen(_OWNER, on_transfer_end)

    def begin(self, client: int, source: int, target: int) -> None:
        """Send the state over the network."""
        self.bytes += self._size
        self._network.send(_OWNER, (_KIND, client), (self._ends[source], self._ends[target]), self._size)

    def cancel(self, client: int) -> None:
        """End the transfer early."""
        self._network.cancel(_OWNER, (_KIND, client))

    def state_dict(self) -> State:
        """Return the bytes; the network saves what is under way."""
        return {"bytes": self.bytes}

    def load_state_dict(self, state: State) -> None:
        """Restore the bytes; the network restores transfers under way."""
        self.bytes = state["bytes"]


class _Sending:
    """A state that is sent again if it is lost."""

    __slots__ = ("again_s", "source", "target", "tries")

    def __init__(self, source: int, target: int, tries: int = 0, again_s: float | None = None) -> None:
        self.source, self.target = source, target
        """Edges from which and to which the state is sent."""
        self.tries = tries
        """Number of sendings that were lost."""
        self.again_s = again_s
        """Time at which it is sent again; None while it is under way."""


class ResendingStates:
    """States that `inner` transfers and that are sent again by the rule `resending` if they are lost, the whole way from the old
    edge.
    """

    def __init__(self, *, inner: StateTransfers, clock: Clock, resending: Resending) -> None:
        self._inner, self._clock, self._resending = inner, clock, resending
        self._sendings: dict[int, _Sending] = {}
        """States under way or in the pause before they are sent again, by client."""
        self._on_end: Callable[[int, str | None], None] = lambda client, cause: None
        inner.listen(self._on_inner_end)

    @property
    def bytes(self) -> int:
        return self._inner.bytes

    def listen(self, on_end: Callable[[int, str | None], None]) -> None:
        self._on_end = on_end

    def begin(self, client: int, source: int, target: int) -> None:
        self._sendings[client] = _Sending(source, target)
        self._inner.begin(client, source, target)

    def _on_inner_end(self, client: int, cause: str | None) -> None:
        """Callback as a state has arrived or is lost for `cause`: send a lost one again, or pass the end on."""
        sending, rule = self._sendings[client], self._resending
        if cause is None or sending.tries >= rule.max_resends:
            del self._sendings[client]
            self._on_end(client, cause)
        else:
            sending.tries += 1
            sending.again_s = self._clock.now + rule.resend_after_s
            self._schedule(client, sending, sending.again_s)

    def _schedule(self, client: int, sending: _Sending, again_s: float) -> None:
        """Put the end of a pause on the clock."""
        self._clock.call_at(again_s, partial(self._on_due, client), sending)

    def _on_due(self, client: int, sending: _Sending) -> None:
        """Callback at the end of a pause: send the state again, unless it was cancelled."""
        if self._sendings.get(client) is sending:
            sending.again_s = None
            self._inner.begin(client, sending.source, sending.target)

    def cancel(self, client: int) -> None:
        sending = self._sendings.pop(client)
        # In a pause `inner` has nothing to cancel.
        if sending.again_s is None:
            self._inner.cancel(client)

    def state_dict(self) -> State:
        """Return the state of the transfers, and of the states to send again."""
        sendings = {
            client: [sending.source, sending.target, sending.tries, sending.again_s]
            for client, sending in self._sendings.items()
        }
        return {"inner": self._inner.state_dict(), "sendings": sendings}

    def load_state_dict(self, state: State) -> None:
        """Restore the transfers, and schedule the ends of pauses."""
        self._inner.load_state_dict(state["inner"])
        self._sendings = {client: _Sending(*fields) for client, fields in state["sendings"].items()}
        for client, sending in self._sendings.items():
            if sending.again_s is not None:
                self._schedule(client, sending, sending.again_s)


class _Way:
    """A state on its way: the legs (links) to go, the present one first."""

    __slots__ = ("due_s", "legs", "started_s", "survives")

    def __init__(self, legs: list[Leg]) -> None:
        self.legs = legs
        self.started_s = 0.0
        """Time at which the present leg began."""
        self.due_s: float | None = None
        """End of the delay of the present leg; None once its bytes are carried by events."""
        self.survives = True
        """True if the channel of the present leg lets the state through."""


class LinkStates:
    """States over the links of `medium` between edges and the nodes above, one link after the other.

    They go up from the old edge to the first node above both edges, and down from there. `above` (E,): the edge above each, -1:
    the server. `repeat`: called with a count before each leg, so that draws of a round differ. `round`: returns the round of
    the links.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        medium: Medium,
        above: Sequence[int],
        repeat: Callable[[int], None],
        round: Callable[[], int],
    ) -> None:
        self._clock, self._medium, self._above, self._repeat, self._round = clock, medium, above, repeat, round
        self._down, self._up = medium.ports(_KIND)
        sizes = medium.sizes
        self._sizes = {False: int(np.max(sizes.down)), True: int(np.max(sizes.up))}
        """Bytes of a state on a leg down (False) and up (True)."""
        self._under_way: dict[int, _Way] = {}
        """States under way, by client."""
        self._legs_begun = 0
        """Number of legs begun so far, which addresses draws."""
        self._on_end: Callable[[int, str | None], None] = lambda client, cause: None
        self.bytes = 0
        self._down.listen(self._finish)
        self._up.listen(self._finish)

    def listen(self, on_end: Callable[[int, str | None], None]) -> None:
        """Set the callback for transfers that end: the client, and the cause of a loss or None."""
        self._on_end = on_end

    def _legs_between(self, source: int, target: int) -> list[Leg]:
        """Return the legs of the way from the edge `source` to the edge `target`, over the first node above both."""
        # Both ways to the root end with the same nodes: what is left of them meets at the first node above both.
        upwards, downwards = self._with_edges_above(source), self._with_edges_above(target)
        while upwards and downwards and upwards[-1] == downwards[-1]:
            upwards.pop()
            downwards.pop()
        return [*((True, edge) for edge in upwards), *((False, edge) for edge in reversed(downwards))]

    def _with_edges_above(self, edge: int) -> list[int]:
        """Return `edge` and all edges above it, from below."""
        edges = []
        while edge >= 0:
            edges.append(edge)
            edge = self._above[edge]
        return edges

    def begin(self, client: int, source: int, target: int) -> None:
        """Send the state of `client`, leg by leg."""
        self._under_way[client] = _Way(self._legs_between(source, target))
        self._begin_leg(client)

    def _begin_leg(self, client: int) -> None:
        """Begin the next leg of the state of `client`: draw its delay and its loss."""
        way, now, round = self._under_way[client], self._clock.now, max(self._round(), 1)
        up, edge = way.legs[0]
        medium, edges = self._medium, np.array([edge])
        # Draws are addressed by (round, edge), and several states may cross a link in a round: each leg is a use of its own.
        self._repeat(self._legs_begun)
        self._legs_begun += 1
        self.bytes += self._sizes[up]
        delays, survivals = (medium.upload, medium.uplink) if up else (medium.download, medium.downlink)
        way.started_s, way.survives = now, survivals.draw(round, now, edges).at(0, now)
        way.due_s = delays.draw(round, now, edges).ends_at(0, now)
        self._clock.call_at(way.due_s, partial(self._on_due, client), way)

    def _on_due(self, client: int, way: _Way) -> None:
        """Callback at the end of a leg's delay: start its bytes if a carrier has them, else end the leg."""
        # Ignore the call of a transfer that was cancelled.
        if self._under_way.get(client) is not way:
            return
        way.due_s = None
        up, edge = way.legs[0]
        carrier, port = (self._medium.up, self._up) if up else (self._medium.down, self._down)
        if carrier.carries:
            port.join(client, edge, self._sizes[up])
        else:
            self._finish(client, None)

    def _finish(self, client: int, link: str | None) -> None:
        """End the present leg, and begin the next one or report the end of the transfer. `link`: cause of a loss by the link, or
        None.
        """
        way, outages = self._under_way[client], self._medium.outages
        _, edge = way.legs.pop(0)
        outage = None if outages is None else outages.cause(edge, way.started_s, self._clock.now)
        cause = cause_of_loss(outage, access=None, link=link, survives=way.survives)
        if cause is None and way.legs:
            self._begin_leg(client)
            return
        del self._under_way[client]
        self._on_end(client, cause)

    def cancel(self, client: int) -> None:
        """End the transfer early, and take bytes that are left off the carrier."""
        way = self._under_way.pop(client)
        up, _ = way.legs[0]
        port = self._up if up else self._down
        # During the delay of a leg (`due_s`) its bytes are not on the carrier yet.
        if way.due_s is None and client in port:
            port.leave(client)

    def state_dict(self) -> State:
        """Return the bytes, the number of legs begun, and the ways under way."""
        ways = {client: [list(way.legs), way.started_s, way.due_s, way.survives] for client, way in self._under_way.items()}
        return {"bytes": self.bytes, "legs": self._legs_begun, "under_way": ways}

    def load_state_dict(self, state: State) -> None:
        """Restore the ways under way, and schedule the ends of their delays."""
        self.bytes, self._legs_begun = state["bytes"], state["legs"]
        self._under_way = {}
        for client, (legs, started_s, due_s, survives) in state["under_way"].items():
            way = self._under_way[client] = _Way([(up, edge) for up, edge in legs])
            way.started_s, way.due_s, way.survives = started_s, due_s, survives
            if due_s is not None:
                self._clock.call_at(due_s, partial(self._on_due, client), way)
