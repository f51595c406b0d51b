"""A learner whose model all clients test at the end of every slot (client analytics, Tong et al. 2024)."""

from __future__ import annotations

import math

from models.errors import ParameterError
from models.fl.evaluation.quality import LocalTest, Quality
from models.fl.learners.learner import Content, Delivered, FederatedLearner, FloatArray
from netsim.core.state import State


class SlotLearner:
    """Learner with opinions: `learner`, whose model all clients test.

    `local`: i.i.d. test samples, or samples of the clients' own labels.
    """

    aggregates = True
    """True: deliveries change the model."""

    def __init__(self, *, learner: FederatedLearner, local: LocalTest = "iid") -> None:
        if local not in ("iid", "own"):
            raise ParameterError("local", local, "must be 'iid' or 'own'")
        try:
            learner.tests.local_tests(local)
        except ValueError as error:
            raise ParameterError("local", local, f"among the test samples, {error}") from error
        self._learner, self._local = learner, local
        self._first = learner.state_dict()
        """State before slot 1, for `reset`."""
        self.records_losses, self.round_columns = learner.records_losses, learner.round_columns

    @property
    def version(self) -> int:
        """Number of aggregations that changed the model."""
        return self._learner.version

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Aggregate the deliveries of a communication round into the model."""
        return self._learner.aggregate(deliveries, want_updates, want_losses)

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Evaluate the model; `round` is a slot."""
        return self._learner.evaluate(round, time_s, last)

    def opinions(self, slot: int) -> FloatArray:
        """Return the accuracy (K,) of the present model on every client's local test set."""
        return self._learner.tests.opinions(self._local)

    def retain(self, versions: list[int]) -> None:
        """Keep the versions from which updates in flight started."""
        self._learner.retain(versions)

    def contribution(self) -> FloatArray:
        """Return the contributions (K,) of the clients."""
        return self._learner.contribution()

    def best_opinion(self, slot: int) -> float:
        """Return NaN: the opinion of the best set could only be measured by a run of its own."""
        return math.nan

    def reset(self) -> None:
        """Reset the model and the server optimizer to the state before slot 1. Counters and version numbers go on."""
        present = self._learner.state_dict()
        counters = {name: present[name] for name in ("trained_updates", "refused_updates", "due_s")}
        # A version number never stands for two models: measurements and the store know models by it.
        next_version = present["versions"][-1] + 1
        self._learner.load_state_dict(self._first | counters | {"versions": [next_version]})

    def state_dict(self) -> State:
        """Return the state of the inner learner; that before slot 1 follows from the seed."""
        return self._learner.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore the state of the inner learner."""
        self._learner.load_state_dict(state)
