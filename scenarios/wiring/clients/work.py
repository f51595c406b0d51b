"""Work of clients and its time: `[work]` and the speed in `[compute]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from models.fl.learners.eager_work import EagerWork
from models.laws.changes import LazyLaws
from models.laws.delays import Plus
from models.laws.partial_work import PartialWork
from models.laws.work import Mixture, Noise, SecondsPerSample, Times, Work, WorkPlan
from netsim.core.null_objects import NoWork
from netsim.core.protocols import DelayLaw, IntArray, WorkLaw
from scenarios.registry.components import Keywords, name_refusals
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import SPEEDS, Compute
from scenarios.wiring.changes import Step, drawn_steps, written_steps
from scenarios.wiring.clients.population import Context, FloatArray, Population
from scenarios.wiring.laws import Law
from scenarios.wiring.network.payload import LONGEST_S
from scenarios.wiring.piecewise import Joined, join_steps
from scenarios.wiring.script.targets import Overlay

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner
    from scenarios.wiring.cautions.outlook import HasLaws

_LARGEST = 2**31 - 1
"""Largest number of steps, epochs or samples of a batch."""
_CACHED_LAWS = 8


def build_plan(scenario: Scenario, population: Population) -> WorkPlan:
    """Return the amount of work of an update, from `[work]`; raises UserError."""
    section = scenario.work
    if section is None:
        return WorkPlan()
    amounts = {}
    for name, spec in {"epochs": section.epochs, "steps": section.steps, "batch_size": section.batch_size}.items():
        if spec is not None:
            amounts[name] = _whole_numbers(spec, f"work.{name}", population)
    return WorkPlan(**amounts)


def _whole_numbers(spec: object, key: str, population: Population) -> IntArray:
    """Return the numbers of the key, () or (K,), as integers; raises UserError unless all are whole numbers >= 1."""
    values = np.asarray(population.values(spec, key))
    valid = (values >= 1) & (values == np.floor(values)) & (values <= _LARGEST)
    if not valid.all():
        client = f" for client {np.argmin(valid)}" if values.ndim else ""
        raise UserError(f"{key} = {float(values[~valid].flat[0])!r}{client}: must be a whole number >= 1, and at most {_LARGEST}")
    return np.asarray(values, np.int64)


def _partial_work(scenario: Scenario, context: Context, plan: WorkPlan, whole: Work | None) -> PartialWork | None:
    """Return the work of updates that may do a part of the `whole`, by `work.partial_share`; None if all do all of it.

    Raises UserError.
    """
    section = scenario.work
    if whole is None or section is None or not section.partial_share:
        return None
    epochs: int | IntArray = 1
    if plan.epochs is not None:
        epochs = plan.epochs
    elif scenario.learner is not None:
        epochs = scenario.learner.epochs
    keywords: Keywords = {"epochs": epochs, "share": section.partial_share}
    with name_refusals("work", {**keywords, "partial_share": None}, {"data_sizes": "clients.data_sizes"}):
        return PartialWork(work=whole, draws=context.streams["partial-work"], **keywords)


def _eager_work(scenario: Scenario, planned: WorkLaw, learner: FederatedLearner) -> EagerWork:
    """Return the work of a `learner` that trains as an update begins, so that it knows the amount; raises UserError."""
    if any(server.notifies for server in scenario.servers_of_clients.values()):
        problem = "learner.trainer: is eager, so that its clients have trained before a notice could end their training early"
        raise UserError(f"{problem}; leave server.urgent_notices out")
    return EagerWork(planned=planned, learner=learner)


def _whole_work(scenario: Scenario, population: Population, plan: WorkPlan, trained: FederatedLearner | None) -> Work | None:
    """Return the work of complete updates; None if the scenario gives no amount. `trained`: the learner, or None without one."""
    if trained is not None:
        work: Work = trained.work
        return work
    # The samples of clients are unknown if a scenario is checked without building its learner.
    if scenario.work is None or scenario.learner is not None:
        return None
    data_sizes = None
    if scenario.clients.data_sizes is not None:
        # Values between two bounds for the clients of a group are seldom whole numbers: round them up.
        data_sizes = np.ceil(population.values(scenario.clients.data_sizes, "clients.data_sizes"))
    keywords: Keywords = {
        "data_sizes": data_sizes,
        "batch_size": plan.batch_size,
        "epochs": 1 if plan.epochs is None else plan.epochs,
        "steps": plan.steps,
    }
    with name_refusals("work", keywords, {"data_sizes": "clients.data_sizes"}):
        return Work(clients=population.count, **keywords)


def sample_times(scenario: Scenario, context: Context) -> Joined[DelayLaw] | None:
    """Return the timeline of each client's seconds for a sample; None without a speed in `[compute]`. Raises UserError."""
    section = scenario.compute
    # The section has checked that it gives at most one speed.
    name = next((name for name in SPEEDS if getattr(section, name) is not None), None)
    _check_changes(section, name)
    if name is None:
        if section.noise.kind != "constant":
            kind = f"compute.noise.kind = {section.noise.kind!r}"
            raise UserError(f"{kind}: multiplies the time of samples; give one of {', '.join(SPEEDS)} in [compute]")
        return None
    if scenario.work is None and scenario.learner is None and scenario.flower is None:
        raise UserError(f"compute.{name}: nothing says how many samples an update takes; give [work] or [learner]")
    flops: float | FloatArray = 0.0
    if section.flops_per_sample is not None:
        flops = context.population.values(section.flops_per_sample, "compute.flops_per_sample")
        _check_positive(flops, "flops_per_sample")
    law = Law[Noise].from_scenario(section.noise, "noise", "compute.noise", context)
    values = _check_positive(context.population.values(getattr(section, name), f"compute.{name}"), name)
    speed = _Speed(law, name=name, values=values, flops_per_sample=flops, context=context)
    steps = written_steps(section, "noise", "compute", context)
    if section.random_changes is not None:
        steps += drawn_steps(section, law, "noise", "compute.random_changes", context)
    return join_steps(speed, steps, "compute", "speed", context)


def _check_changes(section: Compute, name: str | None) -> None:
    """Raise UserError for a change of speed under another key than `name`, and for changes of noise without a speed.

    `name`: key of the speed; None without one.
    """
    noise_keys: Keywords = {f"changes.{i}.noise": change.noise for i, change in enumerate(section.changes) if change.noise}
    if section.random_changes is not None:
        drawn = [parameter for parameter in section.random_changes.parameters if parameter.startswith("noise.")]
        noise_keys |= {"random_changes.parameter": drawn} if drawn else {}
    if name is None and noise_keys:
        key, value = next(iter(noise_keys.items()))
        raise UserError(f"compute.{key} = {value!r}: noise multiplies the time of samples; give one of {', '.join(SPEEDS)}")
    for i, change in enumerate(section.changes):
        if change.speed is not None and change.speed.key != name:
            problem = "there was none before" if name is None else f"speed is given as {name}; change that"
            raise UserError(f"compute.changes.{i}.{change.speed.key} = {change.speed.value!r}: {problem}")


def _check_positive(values: float | FloatArray, name: str, path: str = "compute") -> float | FloatArray:
    """Return `values` unchanged; raises UserError unless all are finite and > 0 (`seconds_per_sample`: >= 0)."""
    array = np.asarray(values)
    valid = np.isfinite(array) & ((array > 0) | ((array == 0) & (name == "seconds_per_sample")))
    if not valid.all():
        client = f" for client {np.argmin(valid)}" if array.ndim else ""
        allowed = ">= 0" if name == "seconds_per_sample" else "> 0"
        raise UserError(f"{path}.{name} = {float(array[~valid].flat[0])!r}{client}: must be finite and {allowed}")
    return values


@dataclass
class _Speed:
    """Speed of the clients and the law of its noise, as a segment of a timeline of seconds a sample."""

    law: Law[Noise]
    name: str
    values: float | FloatArray
    """Speed in the unit of `name`, a key of SPEEDS."""
    flops_per_sample: float | FloatArray
    context: Context

    def apply(self, step: Step) -> _Speed:
        """Return the speed and its noise as `step` changes them."""
        law = self.law.change(step.parameters, step.clients, f"{step.path}.noise") if step.parameters else self.law
        values = self.values
        if step.speed is not None:
            name, spec = step.speed
            population = self.context.population
            values = np.array(np.broadcast_to(values, (population.count,)), np.float64)
            chosen = slice(None) if step.clients is None else step.clients
            values[chosen] = _check_positive(population.values(spec, f"{step.path}.{name}", step.clients), name, step.path)
        return replace(self, law=law, values=values)

    def apply_overlay(self, overlay: Overlay, path: str) -> _Speed:
        """Return the speed and its noise after a change by a script; raises UserError."""
        noise_parameters = {name: spec for name, spec in overlay.parameters.items() if name != self.name}
        law = self.law
        if noise_parameters:
            change = law.scale_by if overlay.scale else law.change
            law = change(noise_parameters, overlay.entities, path)
        if self.name not in overlay.parameters:
            return replace(self, law=law)
        population = self.context.population
        values = np.array(np.broadcast_to(self.values, (population.count,)), np.float64)
        chosen = slice(None) if overlay.entities is None else overlay.entities
        new = population.values(overlay.parameters[self.name], f"{path}.{self.name}", overlay.entities)
        values[chosen] = values[chosen] * new if overlay.scale else new
        return replace(self, law=law, values=_check_positive(values, self.name, path))

    def value(self, name: str, path: str) -> object:
        """Return the speed, or a parameter of the noise."""
        return self.values if name == self.name else self.law.value(name, path)

    def build_at(self, path: str) -> DelayLaw:
        """Return the engine's law after a script's changes; errors name keys below `path`."""
        return self._build_law(path, path)

    def build(self, step: Step | None = None) -> DelayLaw:
        """Return the engine's law. Errors name the key of `step`, the last change, or `[compute]`."""
        path = step.path if step else "compute"
        return self._build_law(path, f"{path}.noise" if step else None)

    def _build_law(self, path: str, law_path: str | None) -> DelayLaw:
        """Return the law of seconds a sample. Errors name keys below `path`, and `law_path` for the noise."""
        seconds = self.values
        if self.name != "seconds_per_sample":
            work_of_sample = 1.0 if self.name == "samples_per_s" else self.flops_per_sample
            # A slow client may overflow to inf, which is refused below.
            with np.errstate(over="ignore"):
                seconds = np.divide(work_of_sample, self.values)
        if not np.max(seconds) <= LONGEST_S:  # also true for NaN
            raise UserError(f"{path}.{self.name}: a sample takes {np.max(seconds):g} s; must be at most {LONGEST_S:g} s")
        return SecondsPerSample(seconds_per_sample=seconds, noise=self.law.build(law_path))


class TimeOfWork:
    """Timeline of the time of all samples of an update, from the timeline of the time of one sample.

    `samples`: number of samples (K,). `each`: timeline of the time of one. `besides_s`: added seconds, () or (K,). `partial`:
    law of different amounts of work, used in place of `samples`.
    """

    def __init__(
        self,
        samples: IntArray | FloatArray,
        each: HasLaws,
        besides_s: FloatArray | float = 0.0,
        partial: PartialWork | None = None,
    ) -> None:
        self._each = each
        self._samples = samples
        self._besides_s = besides_s
        self._partial = partial
        self.fixed: bool = each.fixed
        """True if the law never changes."""
        # Keep the law itself, so that its id is not reused for another law.
        self._cached: dict[int, tuple[DelayLaw, DelayLaw]] = {}
        laws = each.laws
        self.laws: Sequence[DelayLaw] = LazyLaws(count=len(laws), make=lambda index: self._work_time(laws[index]))
        """All laws of the timeline, in order, without the changes of a script."""

    def at(self, round: int, time_s: float) -> tuple[DelayLaw, float]:
        """Return the law in force in `round` at `time_s`, and the time when it ends."""
        law, until_s = self._each.at(round, time_s)
        return self._work_time(law), until_s

    def _work_time(self, law: DelayLaw) -> DelayLaw:
        """Return the law of the time of all samples for the law of one sample. The same law gives the same object."""
        cached = self._cached.get(id(law))
        if cached is None:
            if len(self._cached) >= _CACHED_LAWS:
                del self._cached[next(iter(self._cached))]
            times: DelayLaw = Times(counts=self._samples, law=law)
            if self._partial is not None:
                times = _partial_times(self._partial, law)
            if np.any(self._besides_s):
                times = Plus(fixed_s=self._besides_s, delay=times)
            cached = self._cached[id(law)] = law, times
        return cached[1]


def _partial_times(work: PartialWork, law: DelayLaw) -> Mixture:
    """Return the law of an update's training time if its amount of work is drawn: a mixture with a part for each amount.

    `law`: time of one sample. Parts are built when they are used: for a million clients all together take too much memory.
    """

    def part(index: int) -> tuple[FloatArray, DelayLaw]:
        """Return the probability (K,) that an update does `index` + 1 passes, and the law of its time."""
        probabilities, samples = work.likely_amount(passes=index + 1)
        return probabilities, Times(counts=samples, law=law)

    return Mixture(parts=LazyLaws(count=work.amounts_asked, make=part))


@dataclass(frozen=True)
class Training:
    """Local training for the engine."""

    work: WorkLaw
    """Amount of work of an update."""
    sample: Joined[DelayLaw] | None
    """Timeline of the seconds of one sample; None: samples take no time."""
    partial: PartialWork | None = None
    """Work of different amounts, for the expected time of an update; None: all updates do `work.samples`."""
    longer: FloatArray | None = None
    """Factor (K,) by which an additional pass lengthens the time of each sample of an update; None without such a pass."""

    def update_sample(self) -> Joined[DelayLaw] | TimeOfWork | None:
        """Return the timeline of seconds a sample, with the time of an additional pass over the data if there is one."""
        if self.sample is None or self.longer is None:
            return self.sample
        # A sample takes `longer` times as long, as if it were that many samples.
        return TimeOfWork(self.longer, self.sample)

    def times(self) -> list[TimeOfWork]:
        """Return the timeline of the duration of an update's work, as a list of one; empty if it takes no time or is unknown."""
        samples, each = self.work.samples, self.update_sample()
        if samples is None or each is None:
            return []
        return [TimeOfWork(samples, each, partial=self.partial)]


def build_training(scenario: Scenario, context: Context, plan: WorkPlan, trained: FederatedLearner | None) -> Training:
    """Return the training that `[work]` and the speed in `[compute]` describe; raises UserError."""
    whole = _whole_work(scenario, context.population, plan, trained)
    partial = _partial_work(scenario, context, plan, whole)
    # `partial` is the work of different amounts, `whole` the same for every update; neither is falsy.
    planned: WorkLaw = partial or whole or NoWork()
    work = _eager_work(scenario, planned, trained) if trained is not None and trained.eager else planned
    return Training(work=work, sample=sample_times(scenario, context), partial=partial)
