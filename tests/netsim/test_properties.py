"""What must hold for everything registered: same seed, same bytes; conservation; common random numbers; state that goes on.

A kind that is registered and has no example here fails a test: whoever adds one adds an example.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from netsim.clients.update import OUTCOMES
from netsim.core.rows import UpdateRow
from scenarios.registry.components import component_model
from scenarios.registry.kinds import BUILT_IN, known_names
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built, copied, taken_up, watch
from tests.helpers.rough_scenarios import EXAMPLES, FLOORED, OTHERS, other, rough
from tests.helpers.suites import each_nth

# One key of each kind with a value that must be refused; None: the kind has no key with a limit.
REFUSED: dict[str, dict[str, dict[str, Any] | None]] = {
    "policy": {
        "pause": {"alpha": -1.0},
        "pause-brute": {"beta": 1.0},
        "sa-pause": {"kappa": 0.0},
        "vanilla-sa-pause": {"steps": 0},
        "genie": {"gamma": -1.0},
        "random": None,
        "all": None,
        "fastest": None,
        "clustered-by-size": None,
        "clustered-by-similarity": {"similarity": "angle"},
        "bsfl": {"beta": 1.0},
        "active-fl": {"alpha1": 2.0},
        "oort": {"decay": 2.0},
        "pisces": {"discount": -1.0},
        "power-of-choice": {"candidates": 3},
        "fedcs": {"round_s": 0.0},
        "refl": {"memory": 2.0},
        "tifl": {"tiers": 0},
    },
    "delay": {
        "constant": {"value_s": -1.0},
        "gaussian": {"std_s": -0.1},
        "shifted-exponential": {"shift_s": -0.1},
        "log-normal": {"sigma": -1.0},
        "gamma": {"mean_s": -1.0},
        "weibull": {"shape": 0.0},
        "uniform": {"high_s": -1.0},
        "empirical": {"path": "nowhere.csv"},
    },
    "noise": {"constant": None, "log-normal": {"sigma": -0.5}, "gamma": {"shape": 0.0}},
    "bandwidth": {
        "constant": {"bytes_per_s": 0.0},
        "trace": {"path": "nowhere.csv"},
        "packet-trace": {"packet_bytes": 0.0},
        "gauss-markov": {"memory": 1.0},
        "markov-levels": {"mean_stay_s": [1.0]},
    },
    "channel": {
        "perfect": None,
        "bernoulli": {"success": 1.5},
        "gilbert-elliott": {"to_bad": -0.1},
        "block-fading": {"distance_km": -1.0},
    },
    "availability": {
        "always": None,
        "markov": {"mean_off_s": 0.0},
        "trace": {"path": "nowhere.csv"},
        "toggles": {"repeat_s": 0.0},
        "fedscale": {"path": "presence.csv"},
        "diurnal": {"mean_session_s": 0.0},
    },
    "schedule": {"geometric": {"eta": 0.0}, "explicit": {"epsilons": [1.0, -1.0]}},
    "reward": {"pause-reward": {"tau_min_s": 0.0}},
}
ALL = [(group, kind) for group in EXAMPLES for kind in known_names(group) if kind not in OTHERS.get(group, {})]
# Of training: tested in tests/models/fl, partitions for completeness, disjointness and their seed.
ELSEWHERE = {"partition", "network", "optimizer", "aggregation", "staleness", "server_optimizer", "compression"}
DELAYS = [("uplink", "upload"), ("compute", "compute"), ("downlink", "download")]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "durations.csv").write_text("duration_s\n0.2\n0.5\n0.9\n2.0\n")
    rows = [f"{client},{start},{start + 6}" for client in range(12) for start in range(client % 3, 60, 9)]
    (tmp_path / "presence.csv").write_text("client,on_s,off_s\n" + "\n".join(rows) + "\n")
    (tmp_path / "toggles.json").write_text("[[0, 6, 9, 15], [4, 20], null, [3, 12, 13], [0, 20], [1, 2, 5, 19]]")
    phones = {str(k): {"active": [k, k + 9], "inactive": [k + 6, k + 14], "finish_time": 24} for k in range(5)}
    (tmp_path / "phones.json").write_text(json.dumps(phones))
    steps = "\n".join(f"{time},{200 * (time % 3)}" for time in range(40))
    (tmp_path / "bandwidth.csv").write_text(f"time_s,bytes_per_s\n{steps}\n")
    (tmp_path / "packets.trace").write_text("".join(f"{time}\n" for time in range(50, 4000, 90)))
    (tmp_path / "ring.txt").write_text("".join(f"{k} {(k + 1) % 12}\n" for k in range(12)))
    (tmp_path / "ring.csv").write_text("a,b,km\n" + "".join(f"{k},{(k + 1) % 12},{k + 1}\n" for k in range(12)))
    states = np.random.default_rng(3).integers(0, 2, (30, 5))
    np.savetxt(tmp_path / "states.csv", states, fmt="%d", delimiter=",")
    (tmp_path / "jams.csv").write_text("".join(f"{dwell % 5}\n" for dwell in range(40)))


def played(tables: dict[str, Any]) -> MemoryRecorder:
    simulation, records = built(tables)
    simulation.run()
    simulation.close()
    return records


def test_every_kind_has_an_example() -> None:
    shown = {group: {*EXAMPLES.get(group, {}), *OTHERS.get(group, {})} for group in BUILT_IN.keys() - ELSEWHERE}
    assert shown == {group: set(known_names(group)) for group in BUILT_IN.keys() - ELSEWHERE}
    assert {group: set(kinds) for group, kinds in REFUSED.items()} == {group: set(EXAMPLES[group]) for group in EXAMPLES}


@pytest.mark.parametrize(("group", "kind"), each_nth(5, ALL))
def test_the_same_seed_gives_the_same_bytes_in_sound_tables(group: str, kind: str, tmp_path: Path) -> None:
    scenario = parse(rough(group, kind, rounds=12))
    for name in ("first", "second"):
        run(scenario, tmp_path / name)
    other = scenario.model_copy(update={"seed": 2})
    run(other, tmp_path / "other")
    for table in ("rounds.parquet", "clients.parquet"):
        first, second, third = ((tmp_path / name / table).read_bytes() for name in ("first", "second", "other"))
        assert first == second
        assert first != third
    check_tables(tmp_path / "first")


def check_tables(folder: Path) -> None:
    """Check that times are finite and ascend, and that each selected client has one attempt, at one place at a time."""
    for name in ("rounds", "clients"):
        table = pq.read_table(folder / f"{name}.parquet")
        for column in table.column_names:
            values = table[column].drop_null()
            if str(values.type) == "double":
                assert np.isfinite(values.to_numpy()).all(), column
    rounds = pq.read_table(folder / "rounds.parquet").to_pandas()
    ended = rounds[list(OUTCOMES)].sum(axis=1).cumsum()
    assert (rounds["selected"].cumsum() == ended + rounds["in_flight"]).all()
    assert (rounds["start_s"].to_numpy()[1:] >= rounds["end_s"].to_numpy()[:-1]).all()
    clients = pq.read_table(folder / "clients.parquet").to_pandas()
    assert len(clients) == rounds["selected"].sum()
    assert not clients.duplicated(["round", "client"]).any()
    times = clients[["selected_s", "download_end_s", "compute_end_s", "upload_start_s", "upload_end_s", "outcome_s"]]
    assert (times.diff(axis=1).iloc[:, 1:].fillna(0.0) >= 0).all(axis=None)
    # A client is in one place at a time.
    for _, parts in clients.sort_values("selected_s").groupby("client"):
        assert (parts["selected_s"].to_numpy()[1:] >= parts["outcome_s"].to_numpy()[:-1]).all()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("group", "kind"), ALL)
def test_conservation_at_every_event(group: str, kind: str) -> None:
    simulation, _ = built(rough(group, kind, rounds=8))
    events = watch(simulation)
    simulation.run()
    assert simulation.server.clients.medium.access.count == 3
    assert events[0] > 50


@pytest.mark.parametrize(("group", "kind"), ALL)
def test_refusals(group: str, kind: str) -> None:
    bad = REFUSED[group][kind]
    if bad is None:
        assert list(component_model(group, kind).model_fields) == ["kind"]
        bad = {"speed": 3.0}
    tables = rough(group, kind)
    above = {"noise": "compute", **dict.fromkeys(("delay", "bandwidth", "channel"), "uplink")}
    outer = {"schedule": "privacy", "reward": "metrics", **above}.get(group)
    table = tables[group] if outer is None else tables[outer][group]
    table.update(bad)
    (key,) = bad
    with pytest.raises(UserError, match=rf"\.{key}( = |\.|: |\[)"):
        build(parse(tables))


def durations(rows: list[UpdateRow], phase: str) -> dict[tuple[int, int], float]:
    """Length of a phase for each (round, client) that completed it."""
    following = {"download": "compute_start_s", "compute": "compute_end_s", "upload": "upload_end_s"}[phase]
    complete = [row for row in rows if np.isfinite(getattr(row, following))]
    if phase == "upload":
        complete = [row for row in complete if row.outcome in ("delivered", "lost", "late")]
    if phase == "compute":
        complete = [row for row in complete if np.isfinite(row.upload_start_s)]
    return {(row.round, row.client): getattr(row, f"{phase}_end_s") - getattr(row, f"{phase}_start_s") for row in complete}


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("kind", sorted(EXAMPLES["policy"]))
def test_another_policy_changes_nobodys_latency(kind: str) -> None:
    calm: dict[str, Any] = {
        "availability": {"kind": "always"},
        "server": {"per_round": 6, "when_short": "proceed"},
        "uplink": {"delay": FLOORED, "channel": {"kind": "bernoulli", "success": 0.9}},
    }
    # Who was probed and has the model is not sent it again, unless the scenario says so.
    asked: dict[str, Any] = {"probe": {"reuse_model": False}} if kind in ("power-of-choice", "tifl") else {}
    if kind == "fedcs":  # it may find nobody
        asked["server"] = calm["server"] | {"deadline_s": 100.0}
    reference, other = played(rough(**calm)), played(rough("policy", kind, **calm | asked))
    for phase in ("download", "compute", "upload"):
        first, second = durations(reference.updates, phase), durations(other.updates, phase)
        shared = first.keys() & second.keys()
        assert len(shared) > 20
        # Equal draws; the ends are sums with different starts, so they agree to rounding.
        assert max(abs(first[key] - second[key]) for key in shared) < 1e-9
    lost = [{(row.round, row.client): row.outcome == "lost" for row in records.updates} for records in (reference, other)]
    assert all(lost[0][key] == lost[1][key] for key in lost[0].keys() & lost[1].keys())


def test_another_client_at_the_end_changes_nobodys_draws() -> None:
    small, large = rough("policy", "all"), rough("policy", "all")
    for tables in (small, large):
        tables["server"] = {"per_round": 4, "when_short": "proceed"}
        tables["availability"] = {"kind": "always"}
        tables["clients"] = {"count": 12}
        del tables["uplink"]["sub_channels"]
    large["clients"] = {"count": 13}
    first, second = played(small).updates, played(large).updates
    for phase in ("download", "compute", "upload"):
        before, after = durations(first, phase), durations(second, phase)
        assert len(before) > 100
        assert all(abs(after[key] - value) < 1e-9 for key, value in before.items())


AFTER = (1, 7, 16)
"""Rounds after which states are taken: one of them for each kind, in turn."""


@pytest.mark.each_nth(4)
@pytest.mark.parametrize(("group", "kind", "after"), [(*case, AFTER[i % len(AFTER)]) for i, case in enumerate(ALL)])
def test_state_taken_out_in_mid_run_goes_on(group: str, kind: str, after: int) -> None:
    tables = rough(group, kind, rounds=18)
    tables["server"]["deadline_s"] = 1.5
    first, whole = built(tables)
    first.run(until_round=after)
    # Through bytes and back: what is handed out is plain data, and nothing else connects the two simulations.
    state = copied(first.state_dict())
    first.run()
    first.close()
    uninterrupted = played(tables)
    assert repr(whole.rounds) == repr(uninterrupted.rounds)
    assert repr(whole.updates) == repr(uninterrupted.updates)
    second, second_records = built(tables)
    second.load_state_dict(state)
    second.run()
    second.close()
    assert repr(second_records.rounds) == repr(whole.rounds[after:])
    taken = len(whole.updates) - len(second_records.updates)
    assert repr(second_records.updates) == repr(whole.updates[taken:])


def test_states_are_taken_with_updates_under_way() -> None:
    # The test above is worth something only if clients compute, wait and send across the boundary.
    phases = set()
    tables = rough()
    tables["server"]["deadline_s"] = 1.5
    simulation, _ = built(tables)
    simulation.run(
        after_round=lambda s: phases.update(update.phase for update in s.server.clients.in_flight.values())  # type: ignore[attr-defined]
    )
    assert {"compute", "wait", "upload"} <= phases


ALL_OTHERS = [(group, kind) for group in OTHERS for kind in OTHERS[group]]


@pytest.mark.parametrize(("group", "kind"), each_nth(7, ALL_OTHERS))
def test_other_servers_same_seed_same_bytes(group: str, kind: str, tmp_path: Path) -> None:
    scenario = parse(other(group, kind) | {"rounds": 12})
    for name in ("first", "second"):
        run(scenario, tmp_path / name)
    for table in ("rounds.parquet", "clients.parquet"):
        assert (tmp_path / "first" / table).read_bytes() == (tmp_path / "second" / table).read_bytes()
    rounds = pq.read_table(tmp_path / "first" / "rounds.parquet").to_pandas()
    ended = rounds[list(OUTCOMES)].sum(axis=1).cumsum()
    assert (rounds["selected"].cumsum() == ended + rounds["in_flight"]).all()


@pytest.mark.parametrize(("group", "kind"), each_nth(7, ALL_OTHERS, first=1))
def test_state_of_other_servers_goes_on(group: str, kind: str) -> None:
    tables = other(group, kind) | {"rounds": 18}
    whole = played(tables)
    first, _ = built(tables)
    first.run(until_round=10)
    second, records = built(tables)
    second.load_state_dict(copied(first.state_dict()))
    second.run()
    assert repr(records.rounds) == repr(whole.rounds[10:])


@pytest.mark.parametrize("kind", sorted(OTHERS["policy"]))
def test_policies_that_learn_from_opinions_are_refused_by_a_server_without_any(kind: str) -> None:
    with pytest.raises(UserError, match="learns from opinions"):
        build(parse(rough(policy={"kind": kind} | OTHERS["policy"][kind])))


def test_a_policy_that_needs_updates_is_refused_where_nothing_is_trained() -> None:
    with pytest.raises(UserError, match=r"policy.kind = 'clustered-by-similarity'.*\[learner\]"):
        build(parse(rough(policy={"kind": "clustered-by-similarity"})))


def test_nothing_undelivered_is_trained() -> None:
    tables = rough(
        rounds=6,
        learner={
            "data": {"kind": "digits"},
            "network": {"kind": "linear"},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "max_steps": 2,
        },
    )
    simulation, records = built(tables)
    simulation.run()
    delivered = sum(row.delivered for row in records.rounds)
    assert 0 < delivered < sum(row.selected for row in records.rounds)
    assert simulation.server.learner.trained_updates == delivered  # type: ignore[attr-defined]


def test_state_of_a_study_that_trains() -> None:
    tables = rough(
        "policy",
        "clustered-by-similarity",
        rounds=5,
        learner={
            "data": {"kind": "digits", "samples": 300},
            "network": {"kind": "mlp", "hidden": [8]},
            "optimizer": {"kind": "adam", "learning_rate": 0.01},
            "max_steps": 3,
        },
    )
    taken_up(lambda: built(tables), after=2)
