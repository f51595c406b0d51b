"""Messages for errors of users' components in a run, with the component, the round and the line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from netsim.core.clock import NothingScheduledError
from netsim.core.errors import ParameterError
from netsim.simulation import Simulation
from scenarios.schema.errors import UserError, first_line
from scenarios.schema.scenario import Scenario
from scenarios.wiring.own_failures import own_failure
from scenarios.workers.training import TrainingError

_REFUSED_IN_RUN = {"engine": "slots.engine"}
"""Parameter that only a running engine can refuse -> its key."""

_LEARNER_KEYS = ("device = ", "client_state_bytes = ", "memory_bytes = ")
"""Beginnings of messages of a learner that lacks memory. They name a key of `[learner]` (`models.fl.store.memory`)."""


@contextmanager
def name_own_failures(scenario: Scenario, simulation: Simulation) -> Iterator[None]:
    """Turn exceptions of the block that a user's mistake causes into UserErrors with the component, the round and the line.

    Other exceptions pass, with a note of the server, the round, the time and the attempts in flight.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
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
        failure = own_failure(scenario, error)
        if failure is not None:
            if isinstance(error, TrainingError):
                where = f"{error.where}, {error.failure.worker}, seed {scenario.seed}"
            else:
                where = _moment_text(scenario, simulation, failure.path)
            raise UserError(f"{failure.text} ({where})") from error
        if isinstance(error, MemoryError):
            message = f"this machine has no more memory ({first_line(error) or 'MemoryError'})"
            if str(error).startswith(_LEARNER_KEYS):
                message = f"learner.{error}"
            raise UserError(f"{message} ({_moment_text(scenario, simulation)})") from error
        if isinstance(error, ParameterError) and error.name in _REFUSED_IN_RUN:
            message = str(error.rename(_REFUSED_IN_RUN[error.name]))
            raise UserError(f"{message} ({_moment_text(scenario, simulation)})") from error
        error.add_note(_state_text(scenario, simulation))
        raise


def _moment_text(scenario: Scenario, simulation: Simulation, path: str = "") -> str:
    """Return the round, the time and the seed of an error as text. `path`: key of the failing component, if known."""
    # A model is evaluated when its round is over.
    round = simulation.server.round + (not path.startswith("learner.metrics"))
    return f"round {round}, {simulation.clock.now:g} s, seed {scenario.seed}"


def _state_text(scenario: Scenario, simulation: Simulation) -> str:
    """Return the state of a simulation as text, for an error that the user did not cause."""
    where = _moment_text(scenario, simulation)
    return f"server.kind = {scenario.server.kind!r}, {where}, with {_attempts_text(simulation)}"


def _attempts_text(simulation: Simulation) -> str:
    """Return the number of attempts in flight as text, with their numbers by phase."""
    phases = Counter(update.phase for update in simulation.server.clients.in_flight.values())
    if not phases:
        return "nothing in flight"
    return f"{phases.total()} in flight ({', '.join(f'{phase} {count}' for phase, count in phases.items())})"
