"""Components of safa_accuracy.toml: FedAvg, FedCS and SAFA as SAFA's authors train them, where clients crash, and their shards.

Who crashes is drawn from the same stream for all methods: at one seed the same clients crash in the same rounds. A client that
crashes is not trained. Nothing is timed; speeds say who is too slow, and in which order updates are picked.
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
LIMIT_S, WAY_S = 5600.0, 10e6 / 175e3
"""The longest that a client may take, and a model takes one way."""
SHARE_TRAINED = 6 / 7
"""Of a shard, which the authors count with its images for testing."""
LEAST_BATCHES_PER_S = 0.016
Picked = Annotated[int, Doc("Clients that a round asks for (FedAvg, FedCS), or whose updates make its model first (SAFA).")]
Crash = Annotated[float, Doc("The probability that a client crashes in a round.")]
FirstRound = Annotated[
    Literal["as-later", "everyone"],
    Doc(
        "As later: a client that crashes or is not picked trains nothing, in round 1 as in all rounds (the paper's text). "
        "Everyone: in round 1 all clients train the first epoch (the authors' code)."
    ),
]


def crashes(rng: np.random.Generator, clients: int, probability: float) -> BoolArray:
    """Return True (K,) for clients that crash in a round. `rng`: generator of this round, unused before."""
    return rng.random(clients) < probability


def batches_per_s(streams: Streams, clients: int) -> FloatArray:
    """Return speeds (K,): exponential, all drawn again until the smallest is large enough.

    At one seed they equal those of safa_table.
    """
    rng = streams.generator("safa-speeds")
    while True:
        drawn = rng.exponential(1.0, clients)
        if drawn.min() >= LEAST_BATCHES_PER_S:
            return np.asarray(drawn, np.float64)


def trains_s(data_sizes: FloatArray, speeds: FloatArray) -> FloatArray:
    """Return the seconds (K,) of local training in a round, as the authors count it: of the whole shard."""
    return data_sizes / SHARE_TRAINED / BATCH * EPOCHS / speeds


def _epoch(data_sizes: Any) -> IntArray:
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
        self._epoch = _epoch(data_sizes)

    def select(self, view: RoundView) -> Selection | IntArray:
        able = np.flatnonzero(view.selectable)
        crashed = crashes(view.rng, len(view.selectable), self.crash)
        chosen = np.sort(view.rng.choice(able, self.picked, replace=False))
        works = chosen[~(crashed | self.slow)[chosen]]
        if view.round > 1 or self.first_round == "as-later":
            return Selection(works, EPOCHS * self._epoch[works]) if len(works) else works
        passes = np.where(np.isin(able, works), EPOCHS, 1)
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
            slow = trains_s(world.data_sizes, batches_per_s(world.streams, count)) + WAY_S > self.drops_after_s
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
        crashed = crashes(self._streams["policy"].generator(number), self.pool.count, self.crash)
        if not holders:
            self._ahead[clients] = crashed[clients] & (number == 1 and self.first_round == "everyone")
        works = clients[~crashed[clients]]
        if not len(works):
            return ObjectAttempts()
        steps = (EPOCHS + self._ahead[works]) * self._epoch[works]
        return self.pool.start(number, works, version, steps, holders=frozenset(works.tolist()) & holders)

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
        speeds = batches_per_s(world.streams, count)
        channels, pool = world.channels_and_pool(count, refill=True)
        dispatch = CrashingByVersion(
            pool=pool,
            learner=world.learner,
            lag_tolerance=self.lag_tolerance,
            streams=world.streams,
            crash=self.crash,
            epoch=_epoch(world.data_sizes),
            first_round=self.first_round,
        )
        close = PickedInTime(
            pool=pool,
            dispatch=dispatch,
            per_round=self.picked,
            took_s=trains_s(world.data_sizes, speeds),
            order_s=1.0 / speeds,
        )
        return server_of(dispatch=dispatch, close=close, learner=world.learner, channels=channels)


def _check_trained(world: World) -> None:
    if world.scenario.learner is None:
        raise UserError(f"server.kind = {world.scenario.server.kind!r}: who crashes does not train; give [learner]")


def _probability(crash: float) -> float:
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
    """I.i.d. samples; sizes normal with a standard deviation of 0.3 of the mean, all drawn again while any is below `minimum`."""
    if not 1 <= minimum <= len(labels) / clients / 3:
        reason = f"must be at least 1, and at most a third of the {len(labels) / clients:g} samples of a client on average"
        raise ParameterError("minimum", minimum, reason)
    while True:
        drawn = generator.normal(1.0, 0.3, clients)
        sizes = np.floor(drawn / drawn.sum() * len(labels)).astype(np.int64)
        sizes[: len(labels) - int(sizes.sum())] += 1
        if sizes.min() >= minimum:
            break
    return [np.sort(part) for part in np.split(generator.permutation(len(labels)), np.cumsum(sizes)[:-1])]
