"""Runs of the servers with slots: regret, messages in the tables, state, same seed same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.laws.changes import Unchanging
from models.laws.channels import Bernoulli
from models.laws.delays import ShiftedExponential
from models.policies.random import Random
from models.policies.slotted.fixed_set import FixedSet
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import StartRule
from netsim.records.sinks import ParquetRecorder
from netsim.records.wanted import WantedTables
from netsim.servers.rounds.close import WaitRule
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import taken_up
from tests.helpers.slot_world import K, M, Run, Spy, still

JITTER = ShiftedExponential(shift_s=0.01, mean_excess_s=0.02)


def test_random_members_every_slot() -> None:
    class Told(Random):
        def observe_opinions(self, round: int, clients: Any, opinions: Any) -> None:
            return None

    run = Run(kind="fl-fa", slots=30, policy=Told(clients=K, per_round=M)).play()
    assert all(row.members == M for row in run.recorder.rounds)


def test_a_policy_that_names_nobody_is_refused() -> None:
    class Nobody(Spy):
        def select(self, view: Any) -> Any:
            return np.zeros(0, np.int64)

    with pytest.raises(ValueError, match="policy: select returned"):
        Run(kind="fl-fa", slots=1, policy=Nobody()).play()


def test_regret_is_zero_for_the_best_set_and_positive_for_others() -> None:
    best = Run(
        kind="fl-fa", slots=20, policy=FixedSet(clients=K, per_round=M, members=[9, 10, 11]), learner={"memory": 0.5}
    ).play()
    assert all(row.reward == pytest.approx(row.genie_reward, abs=1e-12) for row in best.recorder.rounds)
    worse = Run(
        kind="fl-fa", slots=20, policy=FixedSet(clients=K, per_round=M, members=[0, 1, 2]), learner={"memory": 0.5}
    ).play()
    assert all(row.genie_reward - row.reward > 0.1 for row in worse.recorder.rounds)


def test_a_model_that_is_reset_forgets() -> None:
    keep = {"memory": 0.9, "noise": 0.0, "worth": np.full(K, 0.8), "own": 0.0, "start": 0.0}
    kept = Run(slots=3, learner=keep).play()
    forgot = Run(slots=3, learner=keep, reset=True).play()
    for run in (kept, forgot):
        assert all(row.reward == pytest.approx(row.genie_reward) for row in run.recorder.rounds)
    assert [row.opinion for row in kept.recorder.rounds] == pytest.approx([0.08, 0.152, 0.2168])
    assert [row.opinion for row in forgot.recorder.rounds] == pytest.approx([0.08] * 3)


# Start before agreement.


def test_a_deadline_before_agreement_costs_regret_and_is_recorded() -> None:
    rows = {}
    for deadline_s in (0.05, 0.2, 5.0):
        start = StartRule(start="deadline", deadline_s=deadline_s)
        run = Run(slots=40, delay=JITTER, start=start, belief=BeliefRules(exchanges=2), learner={"own": 0.6}).play()
        rows[deadline_s] = run.recorder.rounds
        assert all(row.consensus_s == pytest.approx(deadline_s) for row in run.recorder.rounds)
    disagreement = {d: np.mean([row.disagreement for row in r]) for d, r in rows.items()}
    regret = {d: sum(row.genie_reward - row.reward for row in r) for d, r in rows.items()}
    members = {d: np.mean([row.members for row in r]) for d, r in rows.items()}
    assert disagreement[5.0] == 0.0 < disagreement[0.2] < disagreement[0.05] == 1.0
    assert regret[5.0] < regret[0.05]
    assert members[5.0] == M < members[0.2] < members[0.05] == K


def test_sums_over_rows_conserve_messages() -> None:
    run = Run(
        slots=25,
        rounds_per_slot=1,
        delay=ShiftedExponential(shift_s=0.0, mean_excess_s=0.5),
        channel=Bernoulli(success=0.8),
        links={"max_resends": 2},
        start=StartRule(start="deadline", deadline_s=2.0),
        belief=BeliefRules(exchanges=1),
        compute=still(0.3),
    ).play()
    sent = arrived = 0
    flying = []
    for row in run.recorder.rounds:
        sent += row.messages or 0
        arrived += (row.messages_delivered or 0) + (row.messages_lost or 0)
        flying.append(row.messages_in_flight)
        assert sent == arrived + (row.messages_in_flight or 0)
    assert max(flying) > 0
    assert sum(row.messages_resent or 0 for row in run.recorder.rounds) > 0


# State.


def lively(kind: str, seed: int = 2, *, recording: bool = False) -> Run:
    return Run(
        kind=kind,
        seed=seed,
        slots=12,
        delay=ShiftedExponential(shift_s=0.0, mean_excess_s=0.3),
        channel=Bernoulli(success=0.8),
        links={"max_resends": 2, "resend_after_s": 0.1, "recording": recording},
        start=StartRule(start="deadline", deadline_s=3.0),
        belief=BeliefRules(exchanges=2),
        compute=Unchanging(JITTER),
        theta=Bernoulli(success=0.7),
        test=Unchanging(JITTER),
        uplink={"channel": Bernoulli(success=0.6), "max_resends": 1},
        wait=WaitRule(deadline_s=0.04),
        whole=False,
    )


@pytest.mark.parametrize("kind", ["fl-fa", "fl-da"])
def test_a_run_that_goes_on_from_a_saved_state_is_the_same_run(kind: str) -> None:
    whole = lively(kind).play()
    first = lively(kind)
    first.simulation.run(until_round=5)
    state = first.simulation.state_dict()
    second = lively(kind)
    second.simulation.load_state_dict(state)
    first.simulation.run(until_round=7)  # what was handed out does not change with later rounds
    second.play()
    assert repr(first.recorder.rounds[:5] + second.recorder.rounds) == repr(whole.recorder.rounds)
    earlier = [row for row in whole.recorder.updates if row.outcome_s <= state["now_s"]]
    assert repr(second.recorder.updates) == repr(whole.recorder.updates[len(earlier) :])
    plain(state)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("jammers", [[], [{"name": "one", "law": {"kind": "random"}, "at_once": 2, "dwell_s": 0.1}]])
def test_what_ends_after_the_last_round_of_a_slot_is_learnt_from_though_the_run_is_resumed(jammers: list[Any]) -> None:
    # Stragglers transmit while the model is tested: the scheduler and the count of jammed ones hear of it in the next slot.
    tables: dict[str, Any] = {
        "name": "stragglers",
        "rounds": 12,
        "seed": 8,
        "clients": {"count": 8},
        "server": {"kind": "fl-fa", "per_round": 3, "deadline_s": 0.7, "when_short": "proceed"},
        "slots": {"rounds": 2},
        "policy": {"kind": "random"},
        "opinions": {"synthetic": {"worth": 0.6}, "test": {"kind": "constant", "value_s": 0.3}},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 0.3}},
        "channels": {"count": 4, "states": {"kind": "stationary", "means": [0.9, 0.6, 0.5, 0.3]}},
        "scheduler": {"kind": "glr-cucb"},
        "jammers": jammers,
    }

    def make() -> tuple[Any, MemoryRecorder]:
        simulation, records = build(parse(tables)).simulation, MemoryRecorder()
        simulation.record_to(records)
        return simulation, records

    pending = ended = 0
    for after in (2, 4, 6, 8, 10):
        _, state = taken_up(make, after)
        loop = state["server"]["training"]
        pending += len(loop["assignment"]["tried"])
        ended += len(loop["ends"])
    assert pending > 0
    assert (ended > 0) == bool(jammers)


def plain(value: Any) -> None:
    """Check that the value is plain data: numbers, strings, None, arrays, and lists, sets and dicts of them."""
    if isinstance(value, dict):
        for entry in value.values():
            plain(entry)
    elif isinstance(value, list | tuple | set):
        for entry in value:
            plain(entry)
    else:
        assert value is None or isinstance(value, int | float | str | np.ndarray | np.generic), type(value)


@pytest.mark.parametrize("kind", ["fl-fa", "fl-da"])
def test_same_seed_same_bytes(kind: str, tmp_path: Path) -> None:
    for name, seed in (("a", 2), ("b", 2), ("c", 3)):
        run = lively(kind, seed, recording=kind == "fl-da")
        (tmp_path / name).mkdir()
        run.simulation.record_to(ParquetRecorder(tmp_path / name, WantedTables(messages=True)))
        run.play()
    files = [path.name for path in sorted((tmp_path / "a").iterdir())]
    assert files == ["clients.parquet", "messages.parquet", "rounds.parquet"]
    for name in files:
        a, b, c = ((tmp_path / run / name).read_bytes() for run in "abc")
        assert a == b
        assert a != c or (kind == "fl-fa" and name == "messages.parquet")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Run(rounds_per_slot=0), r"rounds_per_slot = 0"),
        (lambda: Run(kind="fl-fa", uplink={"max_resends": -1}), r"max_resends = -1"),
        (lambda: Run(kind="fl-fa", uplink={"resend_after_s": -1.0}), r"resend_after_s = -1\.0"),
        (lambda: Run(kind="fl-fa", uplink={"wait_s": -1.0}), r"wait_s = -1\.0"),
        (lambda: Run(learner={"own": 1.5}), r"own = 1\.5"),
        (lambda: Run(learner={"noise": -0.5}), r"noise = -0\.5"),
        (lambda: Run(learner={"worth": 1.5}), r"worth = 1\.5"),
    ],
)
def test_bad_input_is_refused_with_one_message(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"^{match}"):
        make()
