"""Messages for errors of users' components in a run, with the component, the round and the line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from netsim.core.clock import NothingScheduledError
from netsim.core.errors import AnswerError, ParameterError
from netsim.simulation import Simulation
from scenarios.registry.kinds import is_own
from scenarios.runs.folders.own_code import OwnComponent, own_components
from scenarios.schema.errors import UserError, first_line, users_line
from scenarios.schema.scenario import Scenario
from scenarios.workers.training import TrainingError, calls_of

_REFUSED_IN_RUN = {"engine": "slots.engine"}
"""Parameters that only a running engine can refuse, and their keys."""

_LEARNER_KEYS = ("device = ", "client_state_bytes = ", "memory_bytes = ")
"""Beginnings of the messages of a learner without memory, which name its key (`models.fl.store.memory`)."""


@contextmanager
def refusing(scenario: Scenario, simulation: Simulation) -> Iterator[None]:
    """Context manager: turn exceptions that a user's mistake causes into UserErrors.

    Other exceptions pass, with a note of the server, the round, the time and the attempts in flight.
    """
    try:
        yield
    except UserError:
        raise
    except AnswerError as error:
        problem = _own_class_problem(scenario, error)
        if problem is None:
            error.add_note(_state_text(scenario, simulation))
            raise
        raise UserError(f"{problem} ({_moment_text(scenario, simulation, f'learner.{error.role}')})") from error
    except KeyboardInterrupt:
        raise
    except NothingScheduledError as error:
        if not scenario.server.own:
            error.add_note(_state_text(scenario, simulation))
            raise
        message = f"server.kind = {scenario.server.kind!r}: round {simulation.server.round + 1} never closes"
        state = f"nothing is left to happen at {simulation.clock.now:g} s, "
        state += f"with {_attempts_text(simulation)} (seed {scenario.seed})"
        raise UserError(f"{message}: {state}; fix its close rule") from error
    except BaseException as error:  # sys.exit included
        own = _failing_component(scenario, error)
        if own is None and isinstance(error, MemoryError):
            names_key = str(error).startswith(_LEARNER_KEYS)
            message = (
                f"learner.{error}" if names_key else f"this machine has no more memory ({first_line(error) or 'MemoryError'})"
            )
            raise UserError(f"{message} ({_moment_text(scenario, simulation)})") from error
        if own is None and isinstance(error, ParameterError) and error.name in _REFUSED_IN_RUN:
            message = str(error.rename(_REFUSED_IN_RUN[error.name]))
            raise UserError(f"{message} ({_moment_text(scenario, simulation)})") from error
        if own is None:
            error.add_note(_state_text(scenario, simulation))
            raise
        path = re.sub(r"(?<=^learner\.metrics)\.\d+$", "", own.path)
        if isinstance(error, TrainingError):
            message = f"{error.failure.text}{error.failure.line}"
            where = f"{error.where}, {error.failure.worker}, seed {scenario.seed}"
        else:
            message = f"{type(error).__name__}: {first_line(error)}{users_line(error)}"
            where = _moment_text(scenario, simulation, own.path)
        raise UserError(f"{path} = {own.kind!r}: {message} ({where})") from error


def _moment_text(scenario: Scenario, simulation: Simulation, path: str = "") -> str:
    """Return the round, the time and the seed of an error. `path`: key of the failing component."""
    # A model is evaluated when its round is over.
    round = simulation.server.round + (not path.startswith("learner.metrics"))
    return f"round {round}, {simulation.clock.now:g} s, seed {scenario.seed}"


def _state_text(scenario: Scenario, simulation: Simulation) -> str:
    """Describe the state of a simulation, for an error that the user did not cause."""
    where = _moment_text(scenario, simulation)
    return f"server.kind = {scenario.server.kind!r}, {where}, with {_attempts_text(simulation)}"


def _attempts_text(simulation: Simulation) -> str:
    """Return the attempts in flight, by the phases that they are in, in a few words."""
    phases = Counter(update.phase for update in simulation.server.clients.in_flight.values())
    if not phases:
        return "nothing in flight"
    return f"{phases.total()} in flight ({', '.join(f'{phase} {count}' for phase, count in phases.items())})"


def _failing_component(scenario: Scenario, error: BaseException) -> OwnComponent | None:
    """Return the user's component, called by the engine, in whose code `error` was raised; None if there is none."""
    components = own_components(scenario)
    # A worker sends the calls of its traceback with the error.
    calls = error.failure.calls if isinstance(error, TrainingError) else calls_of(error)
    # A failure in netsim's base class is netsim's fault if no line of the user's module was executed.
    executed = {module for module, _ in calls}
    if not any(own.place.partition(":")[0] in executed for own in components):
        return None
    for _, called in calls:
        for own in components:
            if own.place in called:
                return own
    return None


def _own_class_problem(scenario: Scenario, error: Any) -> str | None:
    """Return the engine's error about the answer of a user's class as an error about its key; None if the class is netsim's."""
    path, kind = error.role, scenario.method.kind
    trained = scenario.learner.components() if scenario.learner is not None else {}
    sent = {"compression": scenario.payload.compression, "down_compression": scenario.payload.down_compression}
    group = error.role
    if scenario.learner is not None and error.role in ("local_training", "metrics"):
        functions = [place for place in (scenario.learner.local_training, *scenario.learner.metrics) if place is not None]
        function = next((place for place in functions if error.name is None or place.endswith(f":{error.name}")), "")
        return f"learner.{error.role} = {function!r}: returned {error.returned!r}; {error.reason}"
    if error.role == "scheduler" and scenario.scheduler is not None:
        kind = scenario.scheduler.kind
    if error.role in sent:
        path, kind, group = f"payload.{error.role}", sent[error.role].kind, "compression"
    if error.role in trained:
        path, kind = f"learner.{error.role}", trained[error.role].kind
    for i, jammer in enumerate(scenario.jammers):
        if error.role == "jammer" and error.name == jammer.name:
            path, kind = f"jammers.{i}.law", jammer.law.kind
    return f"{path}.kind = {kind!r}: {error.without_role}; fix its {error.method}" if is_own(group, kind) else None
