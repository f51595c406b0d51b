"""Messages about errors that components of the user's own cause, as a run is put together and while it is under way."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from netsim.core.errors import AnswerError
from scenarios.registry.kinds import is_own
from scenarios.schema.errors import DefectError, UserError, first_line, users_line
from scenarios.schema.own_components import OwnComponent, own_components
from scenarios.schema.scenario import Scenario
from scenarios.workers.training import TrainingError, calls_of

_DRIVERS = {
    "server.kind": ("what compose put together", "fix its compose"),
    "server.protocol.kind": ("what it told its host", "fix its calls"),
}
"""End of the key of a class that drives the engine -> what the engine got from it, and the remedy if it cannot use that."""


@dataclass(frozen=True)
class OwnFailure:
    """An error that a component of the user's own caused."""

    path: str
    """Key of the component, or of its table."""
    text: str
    """Message, without the time of the error."""


@contextmanager
def name_own_component(scenario: Scenario) -> Iterator[None]:
    """Turn exceptions of the block that a user's component causes into UserErrors that name the component."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit included
        failure = own_failure(scenario, error)
        if failure is None:
            raise
        raise UserError(failure.text) from error


def own_failure(scenario: Scenario, error: BaseException) -> OwnFailure | None:
    """Return the failure of the user's component that caused `error`; None if no such component is known."""
    if isinstance(error, AnswerError):
        answer_failure = _wrong_answer(scenario, error)
        if answer_failure is not None:
            return answer_failure
    own = _failing_component(scenario, error)
    if own is not None:
        path = re.sub(r"(?<=^learner\.metrics)\.\d+$", "", own.path)  # without the index of a metric
        text = error.failure.text + error.failure.line if isinstance(error, TrainingError) else _error_text(error)
        return OwnFailure(path, f"{path} = {own.kind!r}: {text}")
    if isinstance(error, MemoryError | DefectError):
        return None
    for own in own_components(scenario):
        for end, (product, remedy) in _DRIVERS.items():
            if own.path.endswith(end):
                text = f"the engine cannot go on with {product}: {_error_text(error)}; {remedy}"
                return OwnFailure(own.path, f"{own.path} = {own.kind!r}: {text}")
    return None


def _error_text(error: BaseException) -> str:
    """Return an exception's type and first line, with the line of the user's code, or else of the engine's."""
    line = users_line(error)
    if not line:
        frames = traceback.extract_tb(error.__traceback__)
        line = f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{line}"


def _failing_component(scenario: Scenario, error: BaseException) -> OwnComponent | None:
    """Return the user's component, called by the engine, in whose code `error` was raised; None if there is none."""
    components = own_components(scenario)
    # A worker sends the calls of its traceback with the error.
    calls = error.failure.calls if isinstance(error, TrainingError) else calls_of(error)
    # A failure in netsim's base class is netsim's fault if no line of the user's module was executed.
    executed = {module for module, _ in calls}
    in_executed = [own for own in components if own.place.partition(":")[0] in executed]
    if not in_executed:
        return None
    for _, places in calls:
        for own in components:
            if own.place in places:
                return own
    # If no method of a component was called, the engine called another class of its module, which the component handed over.
    return in_executed[0]


def _wrong_answer(scenario: Scenario, error: AnswerError) -> OwnFailure | None:
    """Return the failure for a wrong answer of a user's class, with the key of the class; None if the class is netsim's."""
    # `error.role` says what the class is in the run. For most roles it is also the key of its table, and its group of classes.
    path, kind, group = error.role, scenario.method.kind, error.role
    trained = scenario.learner.components() if scenario.learner is not None else {}
    sent = {"compression": scenario.payload.compression, "down_compression": scenario.payload.down_compression}
    own = next((own for own in own_components(scenario) if own.place == error.name), None)
    if own is not None and own.path.endswith("kind"):
        return OwnFailure(own.path, f"{own.path} = {own.kind!r}: {error.without_role}; fix its {error.method}")
    if scenario.learner is not None and error.role in ("local_training", "metrics"):
        functions = [place for place in (scenario.learner.local_training, *scenario.learner.metrics) if place is not None]
        function = next((place for place in functions if error.name is None or place.endswith(f":{error.name}")), "")
        path = f"learner.{error.role}"
        return OwnFailure(path, f"{path} = {function!r}: returned {error.returned!r}; {error.reason}")
    if error.role == "server" and scenario.server is not None:
        kind = scenario.server.kind
    if error.role == "scheduler" and scenario.scheduler is not None:
        kind = scenario.scheduler.kind
    if error.role in sent:
        path, kind, group = f"payload.{error.role}", sent[error.role].kind, "compression"
    if error.role in trained:
        path, kind = f"learner.{error.role}", trained[error.role].kind
    for i, jammer in enumerate(scenario.jammers):
        if error.role == "jammer" and error.name == jammer.name:
            path, kind = f"jammers.{i}.law", jammer.law.kind
    if not is_own(group, kind):
        return None
    return OwnFailure(path, f"{path}.kind = {kind!r}: {error.without_role}; fix its {error.method}")
