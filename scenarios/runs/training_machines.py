"""Machines that train the clients of one run, as the commands and functions `run` and `resume` name them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scenarios.runs.folders.own_code import learner_code, refuse_other_code
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.learning.training import samples_reader
from scenarios.wiring.simulation import build
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from scenarios.workers.training_desk import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMachines:
    """Places where the clients of a run train, in place of `learner.workers` and `learner.devices`. No table depends on them.

    Raises UserError where both are given.
    """

    workers: int | None = None
    """Processes of this machine, 0: the process of the run; None: as the scenario says."""
    cluster: str | None = None
    """Address of a Dask scheduler whose workers train, or "local:N", which starts one with N workers; None: none."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.cluster is not None:
            raise UserError(f"--workers {self.workers}: a --cluster has its own workers; give one of the two")

    def build(self, scenario: Scenario, *, strict: bool = False) -> World:
        """Build a scenario whose clients train on these machines, in place of those that it names; raises UserError."""
        if self.workers is None and self.cluster is None:
            return build(scenario, strict=strict)
        learner, option = scenario.learner, "--workers" if self.cluster is None else "--cluster"
        if learner is None:
            raise UserError(f"{option} {self.cluster or self.workers}: the scenario has no [learner] to train; leave it out")
        changes: dict[str, object] = {"workers": self.workers or 0}
        if not self.workers:
            changes |= {"devices": None, "device": learner.options().own_device}
        changed = scenario.model_copy(update={"learner": learner.model_copy(update=changes)})
        return build(changed, strict=strict, cluster=self._cluster(scenario))

    def _cluster(self, scenario: Scenario) -> Cluster | None:
        """Return the cluster whose workers train, or None."""
        if self.cluster is None:
            return None
        from scenarios.workers.training_desk import Cluster

        check = partial(refuse_other_code, learner_code(scenario))
        return Cluster(address=self.cluster, check_code=check, read_samples=samples_reader(scenario))


AS_THE_SCENARIO_SAYS = TrainingMachines()
