"""Components of safa_accuracy.toml: FedAvg, FedCS and SAFA as SAFA's authors train them, where clients crash, and their shards.

Crashes are drawn from the same stream for all methods: at one seed the same clients crash in the same rounds. A client that
crashes is not trained. Nothing takes time: speeds only decide which clients are too slow, and in which order updates are picked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.clients.served import ServedClients
from netsim.core.protocols import BoolArray, FloatArray, IntArray, Learner, RoundView, Selection, SelectionPolicy, State
from netsim.core.reports import RoundOutcome
from netsim.core.streams import Streams
from netsim.servers.kinds.safa import ByVersion, PickedArrived, server_of
from netsim.servers.kinds.synchronous import synchronous_server
from netsim.servers.rounds.close import WaitRule
from netsim.servers.rounds.dispatch import SelectionRule
from netsim.servers.rounds.loop import Attempt
from scenarios.schema.errors import UserError
from scenarios.wiring.servers.server import Server
from scenarios.wiring.world import World

BATCH, EPOCHS = 40, 5
"""Samples of a batch, and passes over its samples that a client makes in a round."""
LIMIT_S, WAY_S = 5600.0, 10e6 / 175e3
"""The longest time that a client may take, and the time that a model takes one way; seconds."""
SHARE_TRAINED = 6 / 7
"""Share of a client's images that are for training. The authors' times also count its images for testing."""
LEAST_BATCHES_PER_S = 0.016
"""Speed of the slowest client, at least; batches a second."""
Picked = Annotated[int, Doc("Clients that a round asks for (FedAvg, FedCS), or whose updates make its model first (SAFA).")]
Crash = Annotated[float, Doc("The probability that a client crashes in a round.")]
FirstRound = Annotated[
    Literal["as-later", "everyone"],
    Doc(
        "As later: a client that crashes or is not picked trains nothing, in round 1 as in all rounds (the paper's text). "
        "Everyone: in round 1 all clients train the first epoch (the authors' code)."
    ),
]


def draw_crashes(rng: np.random.Generator, clients: int, probability: float) -> BoolArray:
    """Return True (K,) for clients that crash in a round. `rng`: generator of this round, unused before."""
    return rng.random(clients) < probability


def draw_batches_per_s(streams: Streams, clients: int) -> FloatArray:
    """Draw the speed (K,) of each client in batches a second: exponential with mean 1.

    If the slowest client is below `LEAST_BATCHES_PER_S`, all speeds are drawn again. At one seed they are the speeds of the
    reproduction safa_table (`scenarios.papers.safa.draw_speeds`).
    """
    rng = streams.generator("safa-speeds")
    while True:
        speeds = rng.exponential(1.0, clients)
        if speeds.min() >= LEAST_BATCHES_PER_S:
            return np.asarray(speeds, np.float64)


def training_s(data_sizes: FloatArray, batches_per_s: FloatArray) -> FloatArray:
    """Return the seconds (K,) of local training in a round, as the authors count them: over images for testing, too.

    `data_sizes` (K,): each client's images for training.
    """
    return data_sizes / SHARE_TRAINED / BATCH * EPOCHS / batches_per_s


def _batches_per_epoch(data_sizes: Any) -> IntArray:
    """Return the batches (K,) of one pass over `data_sizes` (K,) samples; the last one may be short."""
    return np.ceil(np.asarray(data_sizes) / BATCH).astype(np.int64)


class Crashing(SelectionPolicy):
    """Policy that selects `picked` random clients a round, without those that crash or are `slow` (K,): they deliver nothing.

    With `first_round` "everyone", all clients are selected in round 1: those that deliver in the end for all epochs, the others
    for one. Of 10 clients of one batch an epoch, 2 picked and 1 of these crashed, round 1 has 1 x 5 steps as later, and
    1 x 5 + 9 x 1 = 14 of everyone; all other rounds are equal.
    """

    needs_updates = False
    may_select_nobody = True

    def __init__(
        self, *, data_sizes: Any, picked: int, crash: float, slow: BoolArray, first_round: FirstRound = "as-later"
    ) -> None:
        self.picked, self.crash, self.slow, self.first_round = picked, crash, slow, first_round
        self._epoch = _batches_per_epoch(data_sizes)

    def select(self, view: RoundView) -> Selection | IntArray:
        """Return the picked clients that deliver, with their steps, ascending; crashes are drawn for all, before the picks."""
        able = np.flatnonzero(view.selectable)
        crashed = draw_crashes(view.rng, len(view.selectable), self.crash)
        picked = np.sort(view.rng.choice(able, self.picked, replace=False))
        working = picked[~(crashed | self.slow)[picked]]
        if view.round > 1 or self.first_round == "as-later":
            return Selection(working, EPOCHS * self._epoch[working]) if len(working) else working
        passes = np.where(np.isin(able, working), EPOCHS, 1)
        return Selection(able, passes * self._epoch[able])

    def observe(self, outcome: RoundOutcome) -> None:
        return None

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


class FedAvg:
    """FedAvg where clients crash; with a limit FedCS in the variant of SAFA's authors."""

    selects = False

    def __init__(
        self,
        *,
        picked: Picked,
        crash: Crash,
        first_round: FirstRound = "as-later",
        drops_after_s: Annotated[float | None, Doc("FedCS: drop who is expected to take longer; absent: nobody.")] = None,
    ) -> None:
        self.picked, self.crash, self.drops_after_s = picked, _probability(crash), drops_after_s
        self.first_round: FirstRound = first_round

    def compose(self, world: World) -> Server:
        """Return a synchronous server whose policy draws crashes before anything else."""
        count = world.population.count
        if not 1 <= self.picked <= count:
            raise ParameterError("picked", self.picked, f"must be between 1 and the {count} clients of clients.count")
        _check_trained(world)
        slow = np.zeros(count, np.bool_)
        if self.drops_after_s is not None:
            slow = training_s(world.data_sizes, draw_batches_per_s(world.streams, count)) + WAY_S > self.drops_after_s
        channels, pool = world.channels_and_pool(count)
        return synchronous_server(
            pool=pool,
            selecting=SelectionRule(
                policy=Crashing(
                    data_sizes=world.data_sizes,
                    picked=self.picked,
                    crash=self.crash,
                    slow=slow,
                    first_round=self.first_round,
                ),
                streams=world.streams,
                need=count,
            ),
            learner=world.learner,
            wait=WaitRule(),
            channels=channels,
        )


class CrashingByVersion(ByVersion):
    """Dispatch of SAFA with clients that crash: they hold the model that they received and do not train.

    With `first_round` "everyone" they train one epoch in round 1 before they crash. It is not lost: they go on from it as long as
    their version allows, so that their next update has 6 epochs in place of 5.
    """

    def __init__(
        self,
        *,
        pool: ServedClients,
        learner: Learner,
        lag_tolerance: int,
        streams: Streams,
        crash: float,
        epoch: IntArray,
        first_round: FirstRound,
    ) -> None:
        super().__init__(pool=pool, learner=learner, lag_tolerance=lag_tolerance)
        self._streams, self.crash, self._epoch, self.first_round = streams, crash, epoch, first_round
        self._ahead = np.zeros(pool.count, np.bool_)
        """True (K,) for clients that have trained one epoch of the model of round 1 and not delivered since."""

    def begin(self, number: int, clients: IntArray, version: int, holders: frozenset[int] = frozenset()) -> Attempts:
        """Start those of `clients` that do not crash. `holders`: clients that have the model already; `_ahead` stays for them.

        Crashes are drawn for all clients, so that each round draws the same whoever is asked.
        """
        crashed = draw_crashes(self._streams["policy"].generator(number), self.pool.count, self.crash)
        if not holders:
            self._ahead[clients] = crashed[clients] & (number == 1 and self.first_round == "everyone")
        working = clients[~crashed[clients]]
        if not len(working):
            return ObjectAttempts()
        steps = (EPOCHS + self._ahead[working]) * self._epoch[working]
        return self.pool.start(number, working, version, steps, holders=frozenset(working.tolist()) & holders)

    def state_dict(self) -> State:
        """Return the state, with `_ahead`."""
        return {**super().state_dict(), "ahead": self._ahead.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._ahead = np.array(state["ahead"], np.bool_)


class PickedInTime(PickedArrived):
    """Close rule of SAFA after all have arrived, in which clients that train for longer than the limit are not picked."""

    def __init__(
        self, *, pool: ServedClients, dispatch: ByVersion, per_round: int, took_s: FloatArray, order_s: FloatArray
    ) -> None:
        super().__init__(
            pool=pool, dispatch=dispatch, per_round=per_round, selection="after-all", speed_s=lambda number: order_s
        )
        self._took_s = took_s

    def may_be_picked(self, end: Attempt) -> bool:
        """Return True if the base class allows it and the training is within the limit."""
        return super().may_be_picked(end) and bool(self._took_s[end.client] <= LIMIT_S)


class Safa:
    """Server of SAFA with clients that crash: all others train, and the fastest of those not picked last time are picked first.
    """

    selects = False
    caches = True

    def __init__(
        self,
        *,
        picked: Picked,
        crash: Crash,
        first_round: FirstRound = "as-later",
        lag_tolerance: Annotated[int, Doc("Rounds that a model may be behind for its client to go on with it.")] = 5,
    ) -> None:
        self.picked, self.crash, self.lag_tolerance = picked, _probability(crash), lag_tolerance
        self.first_round: FirstRound = first_round

    def compose(self, world: World) -> Server:
        """Return a server like `netsim.servers.kinds.safa.safa_server`, with the dispatch and the close rule above."""
        _check_trained(world)
        count = world.population.count
        batches_per_s = draw_batches_per_s(world.streams, count)
        channels, pool = world.channels_and_pool(count, refill=True)
        dispatch = CrashingByVersion(
            pool=pool,
            learner=world.learner,
            lag_tolerance=self.lag_tolerance,
            streams=world.streams,
            crash=self.crash,
            epoch=_batches_per_epoch(world.data_sizes),
            first_round=self.first_round,
        )
        close = PickedInTime(
            pool=pool,
            dispatch=dispatch,
            per_round=self.picked,
            took_s=training_s(world.data_sizes, batches_per_s),
            order_s=1.0 / batches_per_s,
        )
        return server_of(dispatch=dispatch, close=close, learner=world.learner, channels=channels)


def _check_trained(world: World) -> None:
    """Raise UserError for a scenario without a learner."""
    if world.scenario.learner is None:
        raise UserError(f"server.kind = {world.scenario.server.kind!r}: who crashes does not train; give [learner]")


def _probability(crash: float) -> float:
    """Return `crash`; raises ParameterError unless it is in [0, 1]."""
    if not 0.0 <= crash <= 1.0:
        raise ParameterError("crash", crash, "must be in [0, 1]")
    return crash


def normal_sizes(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    minimum: Annotated[int, Doc("The fewest samples a client may hold; at most a third of the mean.")] = BATCH,
) -> list[IntArray]:
    """Return a shard of i.i.d. samples for each client, ascending numbers of samples.

    Sizes are normal with a standard deviation of 0.3 of the mean. If one is below `minimum`, all are drawn again.
    """
    if not 1 <= minimum <= len(labels) / clients / 3:
        reason = f"must be at least 1, and at most a third of the {len(labels) / clients:g} samples of a client on average"
        raise ParameterError("minimum", minimum, reason)
    while True:
        drawn = generator.normal(1.0, 0.3, clients)
        sizes = np.floor(drawn / drawn.sum() * len(labels)).astype(np.int64)
        sizes[: len(labels) - int(sizes.sum())] += 1  # samples that are left over by rounding down go to the first clients
        if sizes.min() >= minimum:
            break
    return [np.sort(part) for part in np.split(generator.permutation(len(labels)), np.cumsum(sizes)[:-1])]
