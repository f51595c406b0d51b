"""Carriers (of the bytes of messages) over a network of links: one for each direction between server and clients, and one between
clients.

`UnusedDirection` takes the place of the carrier of models in training without a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from netsim.network.bandwidth.carriers import SERVER, Key, NoCarrier, Ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netsim.core.protocols import FloatArray, IntArray, State
    from netsim.network.routed.network import RoutedNetwork

Direction = Literal["down", "up", "peers", "edges down", "edges up"]


class RoutedCarrier(Ports):
    """Messages in one direction over the routes of `network`.

    `sizes`: bytes of the messages of each client (K,), unless a port or a message says otherwise. The carrier of models ("down")
    keeps the state of the network and opens its rounds. `ends`: source and target of a message of each client until `redirect`,
    None: between clients, whose messages name their target.
    """

    def __init__(
        self,
        *,
        network: RoutedNetwork,
        direction: Direction,
        sizes: FloatArray,
        ends: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self._direction = direction
        self._sizes = sizes
        self._ends_of = None if ends is None else list(ends)
        """Source and target of messages of each client; None: messages name their target."""
        network.listen(direction, self._end)

    def __contains__(self, key: Key) -> bool:
        return (self._direction, key) in self.network

    def _ends(self, client: int, target: int) -> tuple[int, int]:
        """Return (source, target) of a message of `client`; `target` counts only for messages between clients."""
        return (client, target) if self._ends_of is None else self._ends_of[client]

    def redirect(self, client: int, ends: tuple[int, int]) -> None:
        """Send messages of `client` that begin from now on between the two `ends` (source, target), after the client has moved.
        """
        assert self._ends_of is not None
        self._ends_of[client] = ends

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Send a message over its route."""
        size = float(self._sizes[client]) if size_bytes is None else size_bytes
        self.network.send(self._direction, key, self._ends(client, target), size)

    def leave(self, key: Key) -> None:
        """End a message early."""
        self.network.cancel(self._direction, key)

    def is_cut_off(self, client: int, target: int) -> bool:
        """Return True if every message between these ends is lost from now on (`RoutedNetwork.is_cut_off`)."""
        return self.network.is_cut_off(*self._ends(client, target))

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that messages take if each is alone on the network."""
        ends = [self._ends(client, SERVER) for client in clients.tolist()]
        return self.network.alone_s(ends, np.asarray(self._sizes[clients], np.float64), start_s, round)

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the laws of `round` to the network; only the carrier "down" does, so that it happens once."""
        if self._direction == "down":
            self.network.open_round(round, time_s)

    def renew(self) -> None:
        """Read all bandwidths of the network again."""
        self.network.renew()

    def state_dict(self) -> State:
        """Return the state of the network if this is the carrier "down", so that it is saved once."""
        return self.network.state_dict() if self._direction == "down" else {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the network if this is the carrier "down"."""
        if self._direction == "down":
            self.network.load_state_dict(state, round, time_s)


class UnusedDirection(NoCarrier):
    """Stand-in for the carrier of models in a run without a server: it saves the state of `network` and opens its rounds, as
    "down" does.
    """

    def __init__(self, network: RoutedNetwork) -> None:
        self.network = network

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the laws of `round` to the network."""
        self.network.open_round(round, time_s)

    def renew(self) -> None:
        """Read all bandwidths of the network again."""
        self.network.renew()

    def state_dict(self) -> State:
        """Return the state of the network."""
        return self.network.state_dict()

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the network."""
        self.network.load_state_dict(state, round, time_s)
