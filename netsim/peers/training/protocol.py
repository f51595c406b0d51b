"""Interface of protocols of training without a server, and of the host that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.network.transport.messages import PeerGraph


class MixingWeights(Protocol):
    """Weights W by which peers combine models; rows sum to 1."""

    @property
    def own(self) -> FloatArray:
        """(K,) weight of each peer's own model."""

    @property
    def edge(self) -> FloatArray:
        """(E,) weight that the target of each edge gives to the model of the source."""


class PeerModels(Protocol):
    """Models of peers, each known by a number. They need not be computed before they are evaluated."""

    def first(self) -> int:
        """Return 0, the model that every peer begins with."""

    def train(self, peer: int, round: int, start: int, steps: int, epsilon: float) -> int:
        """Return the model that `peer` has after its local training in its own `round` from `start`.

        `steps` 0: as planned. `epsilon`: privacy that its step may spend, infinite without a mechanism.
        """

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        """Return the sum of `models`, each times its one of `weights`."""

    def compress(self, peer: int, key: int, model: int) -> int:
        """Return the model that receivers get if `peer` sends `model` with `key`: `model`, unless messages are compressed."""

    def settle(self, present: IntArray, kept: Iterable[int]) -> None:
        """Note the close of a round: only the models `present` (K,) of the peers and the models `kept` will be used later."""


NOTE = -1
"""Placeholder for the model of a message without a model."""


class NoModels:
    """Null object: nothing is trained, and all models are number 0."""

    def first(self) -> int:
        """Return 0, the one model."""
        return 0

    def train(self, peer: int, round: int, start: int, steps: int, epsilon: float) -> int:
        """Return 0, the one model."""
        return 0

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        """Return 0, the one model."""
        return 0

    def compress(self, peer: int, key: int, model: int) -> int:
        """Return 0, the one model."""
        return 0

    def settle(self, present: IntArray, kept: Iterable[int]) -> None:
        """Do nothing: no models are stored."""


class Arrival(NamedTuple):
    """A message that has arrived."""

    peer: int
    """Receiver."""
    sender: int
    edge: int
    key: int
    """Key that the sender gave it, such as its own round."""
    model: int
    """The model that arrives, compressed as it may be, or `NOTE`."""
    attached: float = 0.0
    """Number that the sender attached, such as the age of the model."""


class Host(Protocol):
    """Surroundings of a protocol: the peers, their graph, and what they can do."""

    graph: PeerGraph
    mixing: MixingWeights
    model: IntArray
    """(K,) present model of each peer."""
    round: IntArray
    """(K,) own round of each peer, from 1: the one under way, or the next to begin."""

    @property
    def neighbours(self) -> Sequence[Sequence[int]]:
        """Edges into each peer, in the order of its neighbours' numbers."""

    @property
    def now(self) -> float:
        """The present time, seconds."""

    def uniforms(self, name: str, peer: int, key: int) -> float:
        """Draw a number in [0, 1), addressed by `name`, `peer` and `key`."""

    def train(self, peer: int, start: int | None = None) -> None:
        """Start local training from the model `start` (None: the peer's present model); `on_trained` is called at the end."""

    def send_model(self, peer: int, edges: Sequence[int], key: int, model: int, attached: float = 0.0) -> int:
        """Send `model` from `peer` over `edges`, which leave it, with a number `attached`; return the model that arrives of it.

        The model that arrives differs from `model` if `[payload]` compresses messages. Messages of an edge have different `key`s.
        """

    def send_note(self, peer: int, edges: Sequence[int], key: int, size_bytes: int) -> None:
        """Send a message without a model, of `size_bytes`, from `peer` over `edges`, as `send_model` does."""

    def outgoing(self, peer: int) -> Sequence[int]:
        """Return the edges that leave `peer`, in the order of its neighbours' numbers."""

    def call_in(self, delay_s: float, peer: int, key: int) -> None:
        """Call `on_timer` after `delay_s` seconds, after everything else of that instant."""

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        """Return the sum of `models`, each times its one of `weights`."""

    def finish(self, peer: int, model: int) -> None:
        """End the own round of `peer` with `model`. The next round begins at once if the peer is present."""


class TrainingProtocol(StateFields, ABC):
    """Base of protocols: when a peer trains, to which peers it sends, what it waits for and how it combines.

    A protocol is a state machine without a clock. `begin` is called as an own round of a peer begins, the other callbacks as
    something happens to the peer; it answers by calls of its `host`. What it must remember it names in `state_fields`.
    """

    every_peer = True
    """True if a round closes once every peer present has finished it; otherwise once peers finished one on average."""
    mixes = True
    """True if the protocol combines models by the mixing weights."""
    never_rests = False
    """True if peers go on sending though nothing ever arrives."""
    sends_differences = False
    """True if the protocol sends differences of models, which may be compressed like updates; otherwise it sends whole models."""
    retry_s: float | None = None
    """Seconds after which a lost message is sent again, until it arrives; None: the protocol does not resend."""

    def attach(self, host: Host) -> None:
        """Connect the protocol to its host; called once, before anything else. Create arrays over peers here."""
        self.host: Host = host

    def check(self, *, lossy: bool) -> None:
        """Raise ParameterError for a parameter that does not go with the links: `lossy` ones may lose a message for good."""

    @abstractmethod
    def begin(self, peer: int) -> None:
        """Begin an own round of `peer`."""

    @abstractmethod
    def on_trained(self, peer: int, model: int) -> None:
        """Handle the end of the local training of `peer`, with `model`."""

    def on_message(self, arrival: Arrival) -> None:
        """Handle a model that has arrived at a peer that is present."""

    def on_lost(self, peer: int, edge: int, key: int) -> None:
        """Handle the loss of a message of `peer` that is not sent again, at the time of its arrival if it were not lost."""

    def on_timer(self, peer: int, key: int) -> None:
        """Handle the end of a timer of `peer`."""

    def on_leave(self, peer: int) -> None:
        """Handle the absence of `peer`, or its empty battery: training and timers have ended. `begin` is called at its return."""

    def rests(self, peer: int, round: int) -> bool:
        """Return True if `begin` of `peer`, which returns to its own `round`, would neither train nor send at once."""
        return False

    def awaited(self, peer: int) -> Sequence[int]:
        """Return the edges into `peer` from neighbours for which it waits before it goes on, for messages to the user."""
        return ()

    def foresee(
        self, round: int, begins_s: FloatArray, trained_s: FloatArray, arrivals_s: Callable[[IntArray, FloatArray], FloatArray]
    ) -> FloatArray | None:
        """Return when each peer finishes its own `round`, seconds (K,); None if the callbacks depend on more than is given.

        Array form of the callbacks for peers that are never away. `begins_s`, `trained_s` (K,): when each begins the round, and
        ends its training. `arrivals_s`: to be called once, with the edges (n,) of the round's messages, peer by peer in the order
        of sending, and the times (n,) of sending; returns their arrivals (n,). A peer sends once a round, with the key `round`.
        Only the last message of a round may make its receiver act: `on_message` is called for all of them as the last arrives.
        """
        return None

    def kept(self) -> Iterable[int]:
        """Return the models that the protocol still needs, besides the peers' present models and models in messages."""
        return ()
