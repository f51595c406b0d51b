"""Change points of a scenario, written out or drawn from the seed, as steps that a law takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from models.laws.changes import draw_change_points, draw_factor
from scenarios.registry.components import name_refusals
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import RandomChanges, Speed, Timed
from scenarios.wiring.clients.population import Context, FloatArray, IntArray

Unit = Literal["rounds", "seconds"]


@dataclass(frozen=True)
class Step:
    """Change of a law for some clients from a time on."""

    unit: Unit
    start: float
    """First round, or time in seconds, by `unit`."""
    clients: IntArray | None
    """Clients whose law changes; None: all."""
    parameters: Mapping[str, object]
    """New parameters of the law, as in the scenario."""
    bandwidth: object
    """New `bandwidth_bytes_per_s`, as in the scenario, or None."""
    path: str
    """Key of the change in the scenario, for error messages."""
    speed: Speed | None = None
    """The new speed of local training, or None."""
    factor: float | None = None
    """Factor of a drawn change, by which the first values of `parameters` are multiplied; None for a written change."""


class _ScaledParameters(Mapping[str, FloatArray]):
    """Parameters times a factor.

    Each access multiplies again, because the products of many changes and clients would take too much memory.
    """

    def __init__(self, first: Mapping[str, FloatArray], factor: float) -> None:
        self._first, self._factor = first, factor

    def __getitem__(self, name: str) -> FloatArray:
        return np.asarray(self._first[name] * self._factor)

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)


class _Law(Protocol):
    """Part of `scenarios.wiring.laws.Law` that drawn changes use."""

    def values(self, name: str, path: str) -> FloatArray:
        """Return the present value (K,) of a parameter."""

    def change(self, parameters: Mapping[str, object], chosen: IntArray | None, path: str) -> _Law:
        """Return the law with new parameters for `chosen` clients (None: all)."""

    def build(self) -> object:
        """Build the engine's law; raises UserError for values that it refuses."""


def written_steps(section: Timed, law_kind: str, path: str, context: Context, *, numbers: bool = False) -> list[Step]:
    """Return the steps of one law that the scenario lists in `changes`; raises UserError.

    `law_kind`: key of the law in the section. `numbers`: True to include changes of `bandwidth_bytes_per_s`.
    """
    steps = []
    latest: dict[Unit, float] = {}
    for i, change in enumerate(section.changes):
        key = f"{path}.changes.{i}"
        unit: Unit = "seconds" if change.at_round is None else "rounds"
        start = float(change.at_s or change.at_round or 0.0)
        if start < latest.get(unit, 0.0):
            raise UserError(f"{key}: comes before the change above it; write changes in order of time")
        latest[unit] = start
        has_channel = "channel" in section.changing
        if not has_channel and (change.channel or change.bandwidth or change.bandwidth_bytes_per_s is not None):
            raise UserError(f"{key}: local training has neither channel nor bandwidth; delay, speed and noise can change")
        if "bandwidth" not in section.changing and change.bandwidth:
            raise UserError(f"{key}.bandwidth: only downlink and uplink have laws of bandwidth; change bandwidth_bytes_per_s")
        if "noise" not in section.changing and change.changes_compute:
            raise UserError(f"{key}: speed and noise are of [compute]; delay, channel and bandwidth can change")
        speed = change.speed if law_kind == "noise" else None
        bandwidth = change.bandwidth_bytes_per_s if numbers else None
        parameters = getattr(change, law_kind)
        if parameters or bandwidth is not None or speed is not None:
            clients = context.population.select(change.clients, f"{key}.clients")
            step = Step(
                unit=unit, start=start, clients=clients, parameters=parameters, bandwidth=bandwidth, path=key, speed=speed
            )
            steps.append(step)
    return steps


def drawn_steps(section: Timed, law: _Law, law_kind: str, path: str, context: Context) -> list[Step]:
    """Return the steps of one law that `random_changes` draws; raises UserError if the law refuses a factor of the range.

    Each step multiplies the first values of the parameters by a drawn factor, and replaces the step before it. The change points
    are noted in `context.drawn_changes`.
    """
    drawn = section.random_changes
    assert drawn is not None
    names = _drawn_names(drawn, section, law_kind, path)
    if not names:
        return []
    end_of_run = context.rounds if drawn.unit == "rounds" else context.time_limit_s
    horizon = drawn.horizon or end_of_run
    if horizon is None:
        raise UserError(f"{path}.horizon is missing; give it in seconds, or set time_limit_s")
    clients = context.population.select(drawn.clients, f"{path}.clients")
    first_values = {}
    for name in names:
        parameter = f"{law_kind}.{name}"
        first_values[name] = _first_values(law, name, clients, f"{path}.parameter = {parameter!r}")
    for end_name in ("factor_low", "factor_high"):
        factor = getattr(drawn, end_name)
        try:
            # Another seed may draw any factor of the range, so the law must accept both ends.
            law.change(_ScaledParameters(first_values, factor), clients, path).build()
        except UserError as error:
            names_text = ", ".join(f"{law_kind}.{name}" for name in names)
            raise UserError(f"{path}.{end_name} = {factor}: takes {names_text} out of what is allowed ({error})") from error
    # Laws that change together, a delay and a channel, draw the same change points and factors.
    rng = context.streams.generator(f"changes.{path}")
    try:
        with name_refusals(path, ("count", "horizon", "min_spacing")):
            starts = draw_change_points(
                count=drawn.count, horizon=horizon, min_spacing=drawn.min_spacing, rng=rng, unit=drawn.unit
            )
    except UserError as error:
        raise UserError(f"{error}; ask for fewer, or for less space between them") from error
    points = [(path.split(".")[0], str(drawn.unit), start) for start in starts.tolist()]
    # Another law of the section may have drawn and noted the same points before.
    context.drawn_changes.extend(point for point in points if point not in context.drawn_changes)
    factors = draw_factor(low=drawn.factor_low, high=drawn.factor_high, count=drawn.count, rng=rng)
    steps = []
    for start, factor in zip(starts.tolist(), factors.tolist(), strict=True):
        scaled = _ScaledParameters(first_values, factor)
        step = Step(
            unit=drawn.unit, start=start, clients=clients, parameters=scaled, bandwidth=None, path=path, factor=factor
        )
        steps.append(step)
    return steps


def _drawn_names(drawn: RandomChanges, section: Timed, law_kind: str, path: str) -> list[str]:
    """Return the names of the drawn parameters that belong to the law of `law_kind`; raises UserError for an unknown law."""
    names = []
    allowed = [kind for kind in section.changing if getattr(section, kind) is not None]
    for parameter in drawn.parameters:
        kind, _, name = parameter.partition(".")
        if kind not in allowed or not name:
            raise UserError(f"{path}.parameter = {parameter!r}: must be {' or '.join(f'{part}.NAME' for part in allowed)}")
        if drawn.parameters.count(parameter) > 1:
            raise UserError(f"{path}.parameter = {parameter!r}: is named twice; name each once")
        if kind == law_kind:
            names.append(name)
    return names


def _first_values(law: _Law, name: str, clients: IntArray | None, path: str) -> FloatArray:
    """Return the values of a parameter that factors multiply, one for each of `clients` (None: all); raises UserError."""
    all_values = law.values(name, path)
    values = all_values if clients is None else all_values[clients]
    if np.isnan(values).any():
        raise UserError(f"{path}: not every law has it; name in `clients` a group whose law has")
    return values


def changes_after_end(scenario: Scenario) -> list[str]:
    """Return a sentence for each change or outage after the end of the run: harmless in a short trial, a mistake otherwise."""
    notes = []
    slots = scenario.rounds
    rounds = slots * (scenario.slots.rounds if scenario.slots is not None else 1)
    for path in ("downlink", "compute", "uplink", "channels", "opinions", "peers"):
        section = getattr(scenario, path)
        if section is None:
            continue
        # Opinions and messages between clients come once in a slot.
        last = slots if path in ("opinions", "peers") else rounds
        for i, change in enumerate(section.changes):
            if change.at_round is not None and change.at_round > last:
                notes.append(f"{path}.changes.{i}.at_round = {change.at_round}: comes after the last of {last} rounds")
            if change.at_s is not None and scenario.time_limit_s is not None and change.at_s >= scenario.time_limit_s:
                notes.append(f"{path}.changes.{i}.at_s = {change.at_s}: comes after time_limit_s = {scenario.time_limit_s}")
    for i, outage in enumerate(scenario.outages):
        if outage.from_round is not None and outage.from_round > rounds:
            notes.append(f"outages.{i}.from_round = {outage.from_round}: comes after the last of {rounds} rounds")
        if outage.from_s is not None and scenario.time_limit_s is not None and outage.from_s >= scenario.time_limit_s:
            notes.append(f"outages.{i}.from_s = {outage.from_s}: comes after time_limit_s = {scenario.time_limit_s}")
    return notes
