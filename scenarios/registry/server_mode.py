"""The Protocol of a user's server, and of the world from which it is composed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.protocols import FloatArray, Learner, RewardMeter, SelectionPolicy
    from netsim.core.streams import Streams
    from netsim.servers.kinds.slotted import SlotServer
    from netsim.servers.rounds.dispatch import SelectionRule
    from netsim.servers.rounds.probing import Probing
    from netsim.servers.rounds.round_server import RoundServer
    from netsim.servers.sub_channels.channels import OwnLinks


class ServerWorld(Protocol):
    """Factory of the parts of a server, as implemented by `scenarios.wiring.world.World`. Each call makes a new part."""

    @property
    def clients(self) -> int:
        """The number of clients, K."""

    @property
    def streams(self) -> Streams:
        """The random numbers of the run, by their address."""

    @property
    def learner(self) -> Learner:
        """Trains and aggregates; does nothing without a `[learner]`."""

    @property
    def data_sizes(self) -> FloatArray:
        """Samples (K,) that each client holds."""

    def channels_and_pool(self, places: int, *, refill: bool = False) -> tuple[OwnLinks, ServedClients]:
        """Return the sub-channels of `[channels]`, if any, and the clients that transmit over them.

        `places`: number of clients of a round. `refill`: a sub-channel that becomes free is assigned again at once.
        """

    def policy(self, per_round: int, per_model: int | None = None) -> SelectionPolicy:
        """Return the policy of `[policy]`, which selects `per_round` clients at a time, for a model of `per_model` updates."""

    def selection(self, pool: ServedClients, per_round: int, *, need: int = 0, reselect_busy: bool = False) -> SelectionRule:
        """Return the rule by which the policy selects `per_round` clients of `pool`.

        A round waits for `need` selectable clients. `reselect_busy`: busy clients may be selected, too.
        """

    def probing(self, pool: ServedClients) -> Probing | None:
        """Return the probing of clients before a policy selects, or None if the policy does not probe."""

    def meter(self, per_round: int) -> RewardMeter | None:
        """Return the meter of `metrics.reward`, or None without one."""


class ServerMode(Protocol):
    """A user's server: its parameters, and `compose`, which builds it from the engine's rules."""

    selects: bool = True
    """True if a policy selects clients: `[policy]` is then required, otherwise it is refused."""
    contends: bool = False
    """True if two clients may use one of the sub-channels of `[channels]` at once."""

    caches: bool = False
    """True if the model is the mean of a cache with an entry for every client, as in SAFA."""

    def compose(self, world: ServerWorld) -> RoundServer | SlotServer:
        """Return the server. See `scenarios.wiring.servers.kinds` for the servers of netsim."""
