"""Scenarios with the asynchronous server: files that come with netsim, refusals, records on disk, a learner."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.schedulers.glr_cucb import alpha_for_segments
from models.schedulers.m_exp3 import tune_gamma
from scenarios.cli.main import main
from scenarios.runs.reading import load, parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 60,
    "clients": {"count": 2},
    "server": {"kind": "asynchronous"},
    "channels": {"count": 4, "states": {"kind": "piecewise-stationary", "breakpoints": 2}},
    "scheduler": {"kind": "glr-cucb"},
}


def refusal(**tables: Any) -> str:
    with pytest.raises(UserError) as caught:
        build(parse(SMALL | tables))
    return str(caught.value)


def states(**parameters: Any) -> dict[str, Any]:
    return {"count": 4, "states": {"kind": "piecewise-stationary", **parameters}}


def test_wrong_keys_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "states.csv"
    path.write_text("1,0,1\n0,1,0\n")
    jammer = {"name": "j", "law": {"kind": "sweep"}}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"channels": {"count": 1}}, "channels.count = 1: must be at least the 2 clients"),
        ({"channels": states(starts=[30, 20])}, "channels.states.starts = [30.0, 20.0]"),
        ({"channels": states(starts=[61])}, "channels.states.starts = [61.0]: 61.0 lies past the horizon of 60 rounds"),
        ({"channels": states(starts=[], means=[[0.1, 0.2, 0.3, 1.5]])}, "channels.states.means = "),
        ({"channels": {"count": 4, "channel": {"kind": "bernoulli", "success": 1.5}}}, "channels.channel.success = 1.5"),
        ({"channels": {"count": 4, "states": {"kind": "file", "path": str(path)}}}, "channels.states.path = "),
        (
            {"channels": {"count": 4, "channel": {"kind": "bernoulli", "success": 0.5}} | states(breakpoints=1)},
            "channels.states =",
        ),
        ({"scheduler": {"kind": "glr-cucb", "alpha": 0.0}}, "scheduler.alpha = 0.0: must be > 0"),
        ({"scheduler": {"kind": "m-exp3", "gamma": 0.0}}, "scheduler.gamma = 0.0"),
        ({"scheduler": {"kind": "m-exp3", "gamma": "tuned", "normalize": False}}, "scheduler.gamma = 'tuned': is for rewards in"),
        ({"scheduler": {"kind": "m-exp3", "credit": "both"}}, "scheduler.credit"),
        ({"scheduler": {"kind": "glr-cucb", "segments": 0}}, "scheduler.segments = 0: must be >= 1"),
        ({"scheduler": {"kind": "glr-cusum"}}, "did you mean 'glr-cucb'?"),
        ({"scheduler": {"kind": "aoi-aware"}}, "scheduler.scheduler is missing"),
        ({"scheduler": {"kind": "aoi-aware", "scheduler": {"kind": "aoi-aware"}}}, "cannot stand within another scheduler"),
        ({"scheduler": {"kind": "glr-cucb", "detector": {"kind": "cusum", "drift": -1.0}}}, "scheduler.detector.drift = -1.0"),
        ({"scheduler": {"kind": "glr-cucb", "matcher": {"kind": "adaptive", "beta": 2.0}}}, "scheduler.matcher.beta = 2.0"),
        ({"jammers": [jammer | {"budget": -1}]}, "jammers.0.budget = -1"),
        ({"jammers": [jammer | {"reach": [0, 4]}]}, "jammers.0.reach = [0, 4]"),
        ({"jammers": [jammer | {"dwell_rounds": 1, "dwell_s": 1.0}]}, "give either dwell_rounds or dwell_s"),
        ({"jammers": [jammer, jammer]}, "jammers.1.name = 'j': is used twice"),
        ({"jammers": [jammer | {"law": {"kind": "sweep", "width": 0}}]}, "jammers.0.law.width = 0"),
        ({"policy": {"kind": "random"}}, "policy = "),
        ({"uplink": {"sub_channels": 3}}, "uplink.sub_channels = 3"),
        ({"server": {"kind": "asynchronous", "round_s": 0.0}}, "server.round_s = 0.0"),
        ({"server": {"kind": "asynchronous", "per_round": 3}}, "server.per_round = 3: unknown key"),
        ({"server": {"per_round": 1}, "policy": {"kind": "random"}, "metrics": {"oracle": "means"}}, "metrics.oracle = "),
    ]
    for tables, expected in cases:
        message = refusal(**tables)
        assert expected in message, message
        assert "\n" not in message
    without = {name: table for name, table in SMALL.items() if name != "scheduler"}
    with pytest.raises(UserError, match="scheduler is missing"):
        parse(without)


def test_a_refusal_ends_with_exit_code_2_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["netsim", "run", "jammed", "--set", "jammers.0.budget=-1", "--out", str(out)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "jammers.0.budget = -1" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    "name",
    [
        "channels_fig2a",
        "channels_fig2a_readings",
        "channels_fig2b",
        "channels_fig2c",
        "channels_fig2c_drawn",
        "jammed",
        "random_access",
    ],
)
def test_scenarios_that_come_with_netsim_leave_the_same_bytes_twice(name: str, tmp_path: Path) -> None:
    # As many rounds as the drawn change points need.
    study = load(name, ["rounds=150"])
    for out in ("one", "two"):
        run(study, tmp_path / out)
    for file in ("rounds.parquet", "clients.parquet", *(["jams.parquet"] if study.jammers else [])):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    rounds = pq.read_table(tmp_path / "one" / "rounds.parquet").to_pydict()
    assert summary["aoi"]["regret"] == sum(rounds["sum_age"]) - sum(rounds["oracle_sum_age"])
    assert summary["aoi"]["oracle"] == "means"
    assert summary["aoi"]["jam_dwells"] == sum(rounds["jam_dwells"])
    if study.jammers:
        jams = pq.read_table(tmp_path / "one" / "jams.parquet").to_pydict()
        clients = pq.read_table(tmp_path / "one" / "clients.parquet").to_pydict()
        assert sum(jams["hit"]) == sum(rounds["jammed"]) == sum(1 for hit in clients["jammed"] if hit)
        assert 0 < len(jams["round"]) == sum(rounds["jam_dwells"])


def test_the_oracle_as_a_scheduler_has_no_regret_against_itself(tmp_path: Path) -> None:
    for kind in ("means", "means-age", "csi"):
        study = parse(SMALL | {"scheduler": {"kind": kind}, "metrics": {"oracle": kind}})
        assert run(study, tmp_path / kind)["aoi"]["regret"] == 0
    none = run(parse(SMALL | {"metrics": {"oracle": "none"}}), tmp_path / "none")
    assert none["aoi"]["regret"] is None


def test_a_summary_says_what_ages_random_deliveries_would_have(tmp_path: Path) -> None:
    aoi = run(parse(SMALL), tmp_path / "some")["aoi"]
    assert aoi["mean_age_at_random_rounds"] == pytest.approx(2 * 60 / sum(aoi["successes"]))
    never = {"count": 4, "channel": {"kind": "bernoulli", "success": 0.0}}
    assert run(parse(SMALL | {"channels": never}), tmp_path / "none")["aoi"]["mean_age_at_random_rounds"] is None


def test_every_scheduler_meets_the_same_channels(tmp_path: Path) -> None:
    seen: dict[tuple[int, int], bool] = {}
    kinds = [{"kind": kind} for kind in ("random", "round-robin", "cucb", "m-exp3", "glr-cucb")]
    kinds += [{"kind": "aoi-aware", "scheduler": {"kind": "m-exp3"}}, {"kind": "glr-cucb", "detector": {"kind": "page-hinkley"}}]
    for i, scheduler in enumerate(kinds):
        study = parse(
            SMALL
            | {
                "scheduler": scheduler,
                "channels": {"count": 4, "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.3}},
            }
        )
        summary = run(study, tmp_path / str(i))
        table = pq.read_table(tmp_path / str(i) / "clients.parquet").to_pydict()
        for where in zip(table["round"], table["channel"], table["good"], strict=True):
            assert seen.setdefault(where[:2], where[2]) == where[2]
        assert summary["policy"] == scheduler["kind"] + (" m-exp3" if "scheduler" in scheduler else "")
    assert len(seen) > 100


def test_states_from_a_file_are_what_the_run_meets(tmp_path: Path) -> None:
    table = np.random.default_rng(1).random((60, 4)) < 0.5
    path = tmp_path / "states.csv"
    np.savetxt(path, table, fmt="%d", delimiter=",")
    study = parse(SMALL | {"channels": {"count": 4, "states": {"kind": "file", "path": str(path)}}})
    run(study, tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "clients.parquet").to_pydict()
    assert all(table[t - 1, k] == good for t, k, good in zip(rows["round"], rows["channel"], rows["good"], strict=True))
    again = build(study).simulation
    again.run(20)
    resumed = build(study).simulation
    resumed.load_state_dict(again.state_dict())
    resumed.run()
    again.run()
    assert resumed.server.clients.last_delivery.tolist() == again.server.clients.last_delivery.tolist()


def test_updates_of_old_versions_are_trained_from_the_model_they_were_sent(tmp_path: Path) -> None:
    study = parse(
        SMALL
        | {
            "rounds": 25,
            "clients": {"count": 3},
            "scheduler": {"kind": "random", "matcher": {"kind": "adaptive"}},
            "channels": {"count": 5, "states": {"kind": "stationary", "low": 0.2, "high": 0.6}},
            "learner": {
                "data": {"kind": "digits", "samples": 300, "validation_samples": 50},
                "network": {"kind": "linear"},
                "optimizer": {"kind": "sgd", "learning_rate": 0.1},
                "max_steps": 5,
                "contribution_samples": 10,
            },
        }
    )
    summary = run(study, tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "clients.parquet").to_pydict()
    rounds = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pydict()
    behind = [rounds["version"][t - 1] - version for t, version in zip(rows["round"], rows["version"], strict=True)]
    assert max(behind) > 2
    assert summary["final"]["accuracy"] > 0.5
    assert summary["learner"]["trained_updates"] == summary["totals"]["delivered"]


LACKING = """
class Bare:
    def __init__(self, *, clients: int):
        self._clients = clients

    def assign(self, view):
        return list(range(self._clients))

    def observe(self, view, channels, good):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass
"""


def test_a_scheduler_within_another_has_what_the_other_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_scheduler.py").write_text(LACKING)
    monkeypatch.syspath_prepend(tmp_path)
    own = {"kind": "bare_scheduler:Bare"}
    build(parse(SMALL | {"scheduler": own}))
    message = refusal(scheduler={"kind": "aoi-aware", "scheduler": own})
    assert "scheduler.scheduler: 'bare_scheduler:Bare' lacks restarts, forgets, means, matcher" in message, message
    assert "see Scheduler in models.schedulers.protocols" in message


def test_the_horizon_and_the_segments_reach_the_schedulers() -> None:
    def scheduler(**parameters: Any) -> Any:
        server: Any = build(parse(SMALL | {"rounds": 500, "scheduler": parameters})).simulation.server
        return server.loop.assignment.scheduler

    assert scheduler(kind="m-exp3", gamma="tuned").gamma == tune_gamma(500, clients=2, channels=4)
    period = math.floor(4 / alpha_for_segments(500, channels=4, segments=3))
    assert scheduler(kind="glr-cucb", segments=3).period == period
