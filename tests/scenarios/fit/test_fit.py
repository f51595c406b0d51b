"""`netsim fit`: a known world is recovered from its own tables, wrong laws are shown to be wrong, bad logs are refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import netsim
from scenarios.fit.amounts import fit_speed
from scenarios.fit.estimate import estimate
from scenarios.fit.log import attempts_log, read_log
from scenarios.fit.prediction import predict
from scenarios.fit.scenario_text import scenario_text
from scenarios.schema.errors import ScenarioError, UserError

WORLD = {
    "name": "world",
    "rounds": 60,
    "clients": {"count": 20, "groups": [{"name": "laptop", "share": 0.4}, {"name": "phone", "share": 0.6}]},
    "server": {"per_round": 8, "deadline_s": 6.0},
    "policy": {"kind": "random"},
    "compute": {
        "delay": {
            "kind": "by-group",
            "groups": {
                "laptop": {"kind": "gamma", "mean_s": 1.0, "shape": 3.0},
                "phone": {"kind": "log-normal", "median_s": 3.0, "sigma": 0.4},
            },
        }
    },
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 0.6},
        "channel": {"kind": "bernoulli", "success": {"by_group": {"laptop": 0.98, "phone": 0.9}}},
    },
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "run"
    netsim.run(WORLD, out=folder)
    return folder


def test_a_world_is_recovered_from_its_own_tables(run_folder: Path, tmp_path: Path) -> None:
    fitted = netsim.fit(run_folder, out=tmp_path / "out", seeds=5)
    phases = fitted.estimates.phases
    assert phases["compute", "laptop"].law.kind == "gamma"
    assert phases["compute", "phone"].law.kind == "log-normal"
    assert phases["upload", "phone"].law.kind == "shifted-exponential"
    median = phases["compute", "phone"].law.parameters["median_s"]
    assert median.low < 3.0 < median.high
    lost = fitted.estimates.losses["upload", "phone"].laws[0].lost
    assert lost.low < 0.1 < lost.high
    assert fitted.estimates.deadline_s == 6.0
    study = netsim.load(fitted.scenario)
    assert study.server.per_round == 8
    assert netsim.run(study, seed=3).summary["rounds"] == 60
    # 9 figures of 95 % bands: more than two outside has a probability below 1 %.
    assert sum(not p.agrees for p in fitted.check) <= 2


def test_durations_that_a_deadline_cut_are_bounds(run_folder: Path) -> None:
    # The same world, where the server cancels what is late: those durations are known to exceed the deadline only.
    clients, rounds = pd.read_parquet(run_folder / "clients.parquet"), pd.read_parquet(run_folder / "rounds.parquet")
    late = (clients["outcome"] == "late").to_numpy()
    start_s = clients["round"].map(rounds.set_index("round")["start_s"])
    close_s = start_s + 6.0
    training = late & (clients["compute_end_s"] > close_s).to_numpy()
    cut = clients.copy()
    cut.loc[late, "outcome_s"] = close_s[late]
    cut.loc[late & ~training, "upload_end_s"] = close_s[late & ~training]
    cut.loc[training, "compute_end_s"] = close_s[training]
    cut.loc[training, ["upload_start_s", "upload_end_s"]] = np.nan
    log = read_log(attempts_log(cut, rounds))
    assert log.rows["cut"].sum() == late.sum() > 10
    naive = log.rows[(log.rows["phase"] == "compute") & (log.rows["group"] == "phone") & ~log.rows["cut"]]["seconds"]
    law = estimate(log).phases["compute", "phone"].law
    mean = law.parameters["median_s"].value * np.exp(0.5 * law.parameters["sigma"].value ** 2)
    true = 3.0 * np.exp(0.08)
    assert abs(mean - true) < abs(naive.mean() - true)
    assert law.parameters["median_s"].low < 3.0 < law.parameters["median_s"].high


def test_a_wrong_law_is_shown_by_the_predictive_check() -> None:
    rng = np.random.default_rng(4)
    # Two kinds of clients taken for one class: no law with one peak predicts the first arrivals.
    clients, rounds = np.tile(np.arange(8), 60), np.repeat(np.arange(1, 61), 8)
    seconds = np.where(clients < 4, 1.0, 10.0) * rng.gamma(50.0, 0.02, 480)
    log = read_log(pd.DataFrame({"client": clients, "round": rounds, "seconds": seconds}))
    wrong = estimate(log, laws={"total": "shifted-exponential"})
    assert any("is off by up to" in caution for caution in wrong.cautions)

    def tables(law: dict[str, object]) -> dict[str, object]:
        head = {"name": "w", "rounds": 60, "clients": {"count": 8}, "server": {"per_round": 8}, "policy": {"kind": "random"}}
        return {**head, "compute": {"delay": law}}

    right = {"kind": "empirical", "values_s": sorted(seconds.tolist())}
    misses = sum(not p.agrees for p in predict(tables(wrong.phases["total", "all"].law.table()), log, deadline_s=None, seeds=5))
    assert misses >= 2
    by_client = estimate(read_log(log.rows.rename(columns={"group": "class"})[["client", "round", "seconds"]], by="client"))
    assert all(fit.law.deviation < 0.2 for fit in by_client.phases.values())
    assert sum(not p.agrees for p in predict(tables(right), log, deadline_s=None, seeds=5)) < misses


def test_losses_and_lateness_are_kept_apart() -> None:
    table = pd.DataFrame(
        {
            "client": [0, 0, 0, 0, 1, 1, 1, 1],
            "round": [1, 2, 3, 4, 1, 2, 3, 4],
            "phase": "upload",
            "seconds": [1.0, 1.5, 2.0, 3.0, 1.1, 1.6, 2.1, 3.0],
            "outcome": ["", "lost", "", "late", "", "", "lost", "late"],
        }
    )
    estimates = estimate(read_log(table))
    loss = estimates.losses["upload", "all"].laws[0]
    assert (loss.number, loss.lost.value) == (6, pytest.approx(1 / 3))
    assert estimates.phases["upload", "all"].durations.complete == 6
    assert estimates.deadline_s == 3.0


def test_speed_and_overhead_are_told_apart_where_amounts_differ() -> None:
    rng = np.random.default_rng(9)
    samples = rng.integers(20, 200, 600).astype(float)
    seconds = 0.5 + samples * 0.01 * np.exp(0.2 * rng.standard_normal(600) - 0.02)
    fitted = fit_speed(np.minimum(seconds, 1.8), seconds > 1.8, samples)
    assert fitted.seconds_per_unit.low < 0.01 < fitted.seconds_per_unit.high
    assert fitted.overhead_s.low < 0.5 < fitted.overhead_s.high
    assert fitted.censored == int((seconds > 1.8).sum())


def test_changes_and_correlation_are_warned_of() -> None:
    rng = np.random.default_rng(6)
    rounds, clients = np.repeat(np.arange(1, 61), 10), np.tile(np.arange(10), 60)
    seconds = np.where(rounds <= 30, 1.0, 2.0) * rng.lognormal(0.0, 0.1, 600)
    cautions = estimate(read_log(pd.DataFrame({"client": clients, "round": rounds, "seconds": seconds}))).cautions
    assert any("change at round 31; the scenario has them as changes" in caution for caution in cautions)
    # Within the parts between changes the durations are independent.
    assert not any("are correlated" in caution for caution in cautions)
    drift = seconds * np.exp(0.5 * np.sin(clients + rounds / 3.0))
    cautions = estimate(read_log(pd.DataFrame({"client": clients, "round": rounds, "seconds": drift}))).cautions
    assert any("are correlated" in caution for caution in cautions)
    assert any("cannot be told apart" in caution for caution in cautions)


@pytest.mark.slow
def test_changes_become_changes_of_the_scenario(tmp_path: Path) -> None:
    world = WORLD | {"rounds": 60, "server": {"per_round": 12}, "uplink": {}}
    delay = WORLD["compute"]["delay"]
    changes = [{"at_round": 31, "clients": "phone", "delay": {"median_s": 6.0, "sigma": 0.2}}]
    netsim.run(world | {"compute": {"delay": delay, "changes": changes}}, out=tmp_path / "run")
    fitted = netsim.fit(tmp_path / "run", out=tmp_path / "out", seeds=5)
    (later,) = fitted.estimates.phases["compute", "phone"].later
    assert not fitted.estimates.phases["compute", "laptop"].later
    assert later.first_round == 31
    first = fitted.estimates.phases["compute", "phone"].law.parameters["median_s"]
    assert first.low < 3.0 < first.high
    assert later.law.parameters["median_s"].low < 6.0 < later.law.parameters["median_s"].high
    (written,) = netsim.load(fitted.scenario).compute.changes
    assert (written.at_round, written.clients) == (31, "phone")
    assert written.delay["median_s"] == pytest.approx(6.0, rel=0.1)
    # The held-out rounds come after the change: a fit to the first rounds predicts them with the law that holds at their end.
    (held_out,) = [p for p in fitted.hold_out if p.name == "mean round (s)"]
    assert held_out.measured == pytest.approx(held_out.simulated, rel=0.15)


def test_a_change_of_speed_is_written_where_amounts_differ() -> None:
    rng = np.random.default_rng(3)
    rounds, clients = np.repeat(np.arange(11, 71), 10), np.tile(np.arange(10), 60)
    samples = rng.integers(50, 400, 600).astype(float)
    seconds = 1.0 + samples * np.where(rounds < 41, 0.01, 0.02) * np.exp(0.1 * rng.standard_normal(600))
    table = {"client": clients, "round": rounds, "seconds": seconds, "samples": samples, "phase": "compute"}
    estimates = estimate(read_log(pd.DataFrame(table)))
    # The log begins at round 11, the scenario at round 1.
    written = tomllib.loads(scenario_text(estimates, "x", Path("out")))["compute"]
    assert written["samples_per_s"] == pytest.approx(100.0, rel=0.05)
    (change,) = written["changes"]
    assert change["at_round"] == 31
    assert change["samples_per_s"] == pytest.approx(50.0, rel=0.05)


def test_presence_becomes_a_trace(tmp_path: Path) -> None:
    places = [(client, round) for client in range(4) for round in range(1, 6)]
    rows = [{"client": c, "round": r, "phase": "total", "seconds": 1.0 + 0.1 * c + 0.01 * r} for c, r in places]
    rows += [{"client": c, "phase": "present", "start_s": 0.0, "end_s": 100.0 + c} for c in range(4)]
    fitted = netsim.fit(pd.DataFrame(rows), out=tmp_path / "out", seeds=0)
    assert netsim.load(fitted.scenario).availability.kind == "trace"
    assert (tmp_path / "out" / "presence.csv").read_text().splitlines()[1] == "0,0.0,100.0"


GOOD = {"client": [0, 0, 1], "round": [1, 2, 1], "seconds": [1.0, 2.0, 1.5]}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": None}, "has no durations; give a column 'seconds'"),
        ({"client": None}, "has no column 'client'"),
        ({"secnds": [1, 2, 3]}, "column 'secnds': unknown; did you mean 'seconds'"),
        ({"seconds": [1.0, "x", 2.0]}, "row 2: seconds = 'x': must be a finite number"),
        ({"seconds": [1.0, -1.0, 2.0]}, r"row 2: seconds = -1.0: must be >= 0"),
        ({"seconds": [1.0, 1e9, 2.0]}, "row 2: seconds = 1000000000.0: is over three years"),
        ({"seconds": None, "start_s": [1.0, 2.0, 3.0], "end_s": [2.0, 1.0, 4.0]}, "row 2: end_s = 1.0: must not be before"),
        ({"start_s": [1.0, 2.0, 3.0], "end_s": [2.0, 7.0, 4.5]}, "row 2: seconds = 2.0: is not end_s - start_s"),
        ({"bytes": [1.0, 1e16, 1.0], "phase": "upload"}, r"row 2: bytes = 1e\+16: is over 10\^15; give bytes"),
        ({"outcome": ["", "gone", ""]}, "row 2: outcome = 'gone': must be empty, or one of"),
        ({"phase": ["upload", "sending", "upload"]}, "row 2: phase = 'sending': must be one of"),
        ({"class": ["phone", "laptop", "phone"]}, "row 2: class = 'laptop': client 0 was of class 'phone' before"),
        ({"client": [0, None, 1]}, "row 2: client = nan: is missing; every row names its client"),
        ({"round": [1, 1.5, 2]}, "row 2: round = 1.5: must be a whole number"),
        ({"outcome": "late"}, "all 3 durations are cut off"),
        ({"client": [0], "round": [1], "seconds": [1.0]}, "at least 2 complete durations, there is 1"),
    ],
)
def test_a_bad_log_is_refused_with_row_and_remedy(change: dict[str, object], message: str, tmp_path: Path) -> None:
    whole = change if len(change.get("client") or GOOD["client"]) == 1 else {**GOOD, **change}
    table = pd.DataFrame({name: values for name, values in whole.items() if values is not None})
    with pytest.raises(UserError, match=message):
        estimate(read_log(table))
    with pytest.raises(ScenarioError, match=message):
        netsim.fit(table, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": [1, 1, 1, 1, 1, 1]}, "row 4: client 0 has a second row of phase total in round 1 \\(3 such rows\\)"),
        ({"start_s": [9.0, 9.0, 9.0, 4.0, 4.0, 4.0]}, "round 2 begins before round 1: the clock goes back"),
        ({"seconds": [0.0, 2.0, 1.5, 1.0, 2.5, 3.0]}, "1 of the durations are 0 s: only a shifted exponential fits"),
        ({"outcome": "lost"}, "total of class all: every transmission was lost"),
    ],
)
def test_what_is_doubtful_is_a_caution(change: dict[str, object], message: str) -> None:
    rows = {"client": [0, 1, 2] * 2, "round": [1] * 3 + [2] * 3, "seconds": [1.0, 2.0, 1.5, 1.2, 2.5, 3.0]}
    cautions = estimate(read_log(pd.DataFrame(rows | change))).cautions
    assert sum(bool(re.search(message, caution)) for caution in cautions) == 1, cautions
    assert not any(re.search(message, caution) for caution in estimate(read_log(pd.DataFrame(rows))).cautions)


def test_one_law_for_all_rounds_on_demand() -> None:
    rng = np.random.default_rng(6)
    rounds, clients = np.repeat(np.arange(1, 61), 10), np.tile(np.arange(10), 60)
    seconds = np.where(rounds <= 30, 1.0, 2.0) * rng.lognormal(0.0, 0.1, 600)
    log = read_log(pd.DataFrame({"client": clients, "round": rounds, "seconds": seconds}))
    assert estimate(log).phases["total", "all"].later
    assert not estimate(log, laws={"changes": "none"}).phases["total", "all"].later
    with pytest.raises(UserError, match=r"laws: changes = 'some': must be 'none'"):
        estimate(log, laws={"changes": "some"})
    with pytest.raises(UserError, match="laws: present: the log has no such phase"):
        estimate(log, laws={"present": "markov"})


def test_files_that_are_no_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="there is no such file"):
        netsim.fit(tmp_path / "none.csv", out=tmp_path / "out")
    (tmp_path / "semicolons.csv").write_text("client;seconds\n0;1.0\n")
    with pytest.raises(ScenarioError, match="separate them by commas"):
        netsim.fit(tmp_path / "semicolons.csv", out=tmp_path / "out")
    (tmp_path / "tabs.csv").write_text("client\tseconds\n0\t1.0\n")
    with pytest.raises(ScenarioError, match="separated by tabs; separate them by commas"):
        netsim.fit(tmp_path / "tabs.csv", out=tmp_path / "out")
    (tmp_path / "ragged.csv").write_text("client,seconds\n0,1.0\n1,2.0,3.0,4.0\n")
    with pytest.raises(ScenarioError, match=r"cannot be read as csv: .* line 3"):
        netsim.fit(tmp_path / "ragged.csv", out=tmp_path / "out")
    (tmp_path / "damaged.csv").write_bytes(b"\x00\x01\xff\xfe client")
    with pytest.raises(ScenarioError, match="cannot be read as csv: 'utf-8' codec can't decode"):
        netsim.fit(tmp_path / "damaged.csv", out=tmp_path / "out")
    (tmp_path / "header.csv").write_text("client,seconds\n")
    with pytest.raises(ScenarioError, match="has no row"):
        netsim.fit(tmp_path / "header.csv", out=tmp_path / "out")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ScenarioError, match="cannot be read as parquet"):
        netsim.fit(tmp_path / "broken.parquet", out=tmp_path / "out")


def test_nothing_of_the_users_is_replaced(tmp_path: Path) -> None:
    table = pd.DataFrame({"client": [0, 1, 2], "seconds": [1.0, 2.0, 1.5]})
    netsim.fit(table, out=tmp_path / "out", seeds=0)
    with pytest.raises(ScenarioError, match="holds an earlier fit"):
        netsim.fit(table, out=tmp_path / "out", seeds=0)
    netsim.fit(table, out=tmp_path / "out", seeds=0, overwrite=True)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ScenarioError, match=r"holds files that no fit wrote \(notes.txt\)"):
        netsim.fit(table, out=tmp_path / "out", seeds=0, overwrite=True)
