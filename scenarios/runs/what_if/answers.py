"""The questions of `netsim what-if` and `netsim stragglers`, asked of a run's folder, and the table of their answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.results.run import Run
from netsim.core.rows import FORMAT
from scenarios.runs.replay import read_finished
from scenarios.runs.what_if.branches import Closed, Replay, rounds_per_unit
from scenarios.runs.what_if.changes import Change
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario

_TIME_FACTOR = 10.0
"""A changed round may take this many times the simulated time of the whole run before it counts as never closed."""
_ROUNDING = 1e-9
"""Relative difference of times that rounding may cause."""
Progress = Callable[[int], None]
"""Callback with the number of rounds that have been simulated again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Close of a round as it was, and as it would have been with a change."""

    change: Change
    was: Closed
    """Close of the round in the run."""
    then: Closed | None
    """Close of the round with the change; None: not within `_TIME_FACTOR` times the time of the whole run."""

    @property
    def saved_s(self) -> float | None:
        """Seconds by which the round would have closed earlier; None if it would not have closed."""
        return None if self.then is None else self.was.end_s - self.then.end_s


def what_if(folder: Path, number: int, changes: Sequence[Change], *, progress: Progress | None = None) -> list[Answer]:
    """Return an answer for each of `changes`: how round `number` of the run in `folder` closed, and how it would have.

    Under a server with slots `number` counts communication rounds.

    Raises UserError: there is no such round, a client takes no part in it, the scenario has nothing that the change could change,
    or this version does not reproduce the run.
    """
    scenario, run, limit_s = _open_finished(folder)
    last = int(run.summary["rounds"]) * rounds_per_unit(scenario)
    if not 1 <= number <= last:
        raise UserError(f"--round {number}: must be in 1..{last}, the rounds of {folder}")
    for change in changes:
        change.check(scenario)  # refused before anything is simulated
    answers: dict[Change, Answer] = {}
    # Changes of bandwidths need transfers timed by events, so they get a replay of their own, for each link.
    groups: dict[tuple[bool, str | None], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.factor is not None, change.link), []).append(change)
    for (multiplied, link), group in groups.items():
        replay = Replay(scenario, multiplied=multiplied, link=link)
        if link is not None and not replay.limits_bandwidth:
            raise UserError(f"--link {link}: the scenario has no cable of that name with a bandwidth (network.links)")
        if multiplied and not replay.limits_bandwidth:
            problem = "limits no bandwidth between server and clients (downlink, uplink)"
            raise UserError(f"--bandwidth {group[0].factor:g}: the scenario {problem}")
        group_answers = _answer_round(replay, run, number, group, folder=folder, limit_s=limit_s, progress=progress)
        answers |= dict(zip(group, group_answers, strict=True))
    return [answers[change] for change in changes]


def _answer_round(
    replay: Replay, run: Run, number: int, changes: Sequence[Change], *, folder: Path, limit_s: float, progress: Progress | None
) -> list[Answer]:
    """Simulate a run again up to round `number`, and return the answer to each of `changes`, in order.

    `run`: the finished run in `folder`, with which each replayed round must agree. `limit_s`: simulated time before which a
    changed round must close. `progress`: callback after each round, or None. Raises UserError for a client that takes no part in
    the round, and if the replay differs from the run.
    """
    ends_s = run.rounds["end_s"].tolist()
    for state, numbers in replay.rounds(number, progress):
        _check_replay(replay, ends_s, folder)
        if number not in numbers:
            continue
        participants = replay.participants(number)
        for change in changes:
            if change.client is not None and change.client not in participants:
                clients = ", ".join(map(str, participants))
                raise UserError(f"--without {change.client}: takes no part in round {number}; {clients} do")
        was = replay.closed_round(number)
        return [Answer(change, was, replay.run_changed(state, number, change, limit_s=limit_s)) for change in changes]
    raise _replay_error(folder)


def every_client(folder: Path, *, first: int = 1, last: int | None = None, progress: Progress | None = None) -> list[Answer]:
    """Return an answer for each client that took part in each of the rounds `first` to `last`: the round without it.

    `last`: None for the last round of the run. Raises the errors of `what_if`.
    """
    scenario, run, limit_s = _open_finished(folder)
    rounds = int(run.summary["rounds"]) * rounds_per_unit(scenario)
    upto = rounds if last is None else last
    if not 1 <= first <= upto <= rounds:
        raise UserError(f"--rounds {first}..{upto}: must lie in 1..{rounds}, the rounds of {folder}")
    ends_s = run.rounds["end_s"].tolist()
    replay, answers = Replay(scenario), list[Answer]()
    for state, numbers in replay.rounds(upto, progress):
        _check_replay(replay, ends_s, folder)
        for number in numbers:
            if first <= number <= upto:
                was = replay.closed_round(number)
                changes = [Change("without", client) for client in replay.participants(number)]
                answers += [Answer(change, was, replay.run_changed(state, number, change, limit_s=limit_s)) for change in changes]
    return answers


def answers_table(answers: Sequence[Answer]) -> object:
    """Return the table `what_ifs` (docs/tables.md) as `pyarrow.Table`."""
    import pyarrow as pa

    kinds = {
        "round": pa.int64(), "change": pa.dictionary(pa.int8(), pa.string()), "client": pa.int64(), "value": pa.float64(),
        "start_s": pa.float64(), "end_s": pa.float64(), "then_end_s": pa.float64(), "saved_s": pa.float64(),
        "delivered": pa.int64(), "then_delivered": pa.int64(), "last": pa.int64(), "then_last": pa.int64(),
    }
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    for answer in answers:
        was, then, change = answer.was, answer.then, answer.change
        row = {
            "round": was.round, "change": change.sort, "client": change.client,
            "value": None if change.sort == "without" else change.value,
            "start_s": was.start_s, "end_s": was.end_s, "saved_s": answer.saved_s,
            "delivered": was.delivered, "last": was.last,
        }
        if then is not None:
            row |= {"then_end_s": then.end_s, "then_delivered": then.delivered, "then_last": then.last}
        for name, column in columns.items():
            column.append(row.get(name))
    schema = pa.schema(list(kinds.items()), metadata={"netsim.table": "what_ifs", "netsim.format": str(FORMAT)})
    return pa.Table.from_arrays([pa.array(columns[name], kind) for name, kind in kinds.items()], schema=schema)


def _open_finished(folder: Path) -> tuple[Scenario, Run, float]:
    """Return the scenario and the tables of a finished run, and the time limit of changed rounds in simulated seconds.

    Raises UserError for a run with rounds that cannot be simulated one by one.
    """
    from analysis import open_run

    scenario = read_finished(folder)
    if scenario.flower is not None:
        message = f"{folder}: a Flower app cannot go on from the beginning of a round, since its state is in its own program"
        raise UserError(f"{message}; compare two runs in a sweep (netsim stragglers says who was waited for)")
    if scenario.edges is not None:
        message = f"{folder}: rounds of edges overlap, and are not simulated again one by one"
        raise UserError(f"{message}; compare two runs in a sweep (netsim stragglers --no-exact says who was waited for)")
    try:
        run = open_run(folder)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    return scenario, run, _TIME_FACTOR * float(run.summary["simulated_s"])


def _check_replay(replay: Replay, ends_s: Sequence[float], folder: Path) -> None:
    """Raise UserError if the round that was just simulated does not close at the time in the table of the run."""
    simulation = replay.built.simulation
    end_s, recorded_s = simulation.clock.now, ends_s[simulation.server.round - 1]
    # A delay and its bytes are one sum in the run, and two where bandwidths are multiplied: the last digit may differ.
    is_equal = math.isclose(end_s, recorded_s, rel_tol=_ROUNDING) if replay.multiplied else end_s == recorded_s
    if not is_equal:
        raise _replay_error(folder)


def _replay_error(folder: Path) -> UserError:
    """Return the error for a run that this version does not reproduce."""
    return UserError(
        f"{folder}: simulated again, its rounds do not come out as they are in the folder, so that nothing can be said of what "
        f"would have been; run it again with this version: netsim run {folder / 'scenario.toml'} --out FOLDER"
    )
