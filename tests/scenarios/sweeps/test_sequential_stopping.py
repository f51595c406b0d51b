"""Seeds are added until differences are known well enough: when that is, and that nothing but the seeds decides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netsim
from analysis import open_sweep
from analysis.metrics.facts import Settings
from analysis.metrics.run_metrics import paired_difference
from analysis.statistics.sequential import always_valid_interval
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import plan
from scenarios.sweeps.sequential_stopping import differences, seeds_to_add
from scenarios.sweeps.sweep import sweep
from tests.helpers.commands import tables
from tests.helpers.result_folders import ROUNDS, write_run
from tests.helpers.small_scenario import small_tables

RULE = {"metric": "mean_round_s", "half_width": 0.1, "at_most": 60}


def wanted(*settings: str, **changes: Any) -> dict[str, Any]:
    found = small_tables(*settings)
    found["sweep"] = {**found["sweep"], "until": RULE | changes}
    return found


def noted(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "sweep.json").read_text())["until"]
    return content


def test_seeds_are_added_until_the_interval_is_small_enough(tmp_path: Path) -> None:
    sweep(plan(wanted(), "small"), tmp_path / "out", machines=Machines(jobs=1))
    done = open_sweep(tmp_path / "out")
    found = noted(tmp_path / "out")
    (entry,) = found["differences"]
    assert found["reached"]
    assert 5 < found["seeds"] < 60
    assert done.seeds == tuple(range(1, found["seeds"] + 1))
    pairs = [(done.run("random", seed), done.run("pause", seed)) for seed in done.seeds]
    values = [paired_difference(mine, theirs, "mean_round_s", Settings()) for mine, theirs in pairs]
    means = [mine.rounds.eval("end_s - start_s").mean() - theirs.rounds.eval("end_s - start_s").mean() for mine, theirs in pairs]
    assert values == pytest.approx(means)
    interval = always_valid_interval(values)
    assert (entry["difference"], entry["half_width"], entry["count"]) == (interval.mean, interval.half_width, found["seeds"])
    assert entry["half_width"] <= 0.1


@pytest.mark.parametrize("reached", [False, True])
def test_targets_that_nobody_reaches_are_never_known_well_enough(reached: bool, tmp_path: Path) -> None:
    found = wanted("sweep.target_accuracy=0.7", "sweep.seeds=[1,2,3,4,5,6]", metric="target_s", half_width=10.0)
    planned = plan(found, "small")
    never = {**ROUNDS, "accuracy": [0.2, None, 0.6, 0.4, 0.5]}
    once = {**ROUNDS, "accuracy": [0.2, None, 0.8, 0.4, 0.5]} if reached else never  # at 6 s of 15
    places = {p.path: write_run(tmp_path / p.path, once if p.path == "random/seed-6" else never) for p in planned.runs}
    (entry,) = differences(planned, planned.runs, places)
    assert entry["count"] == 6
    assert (entry["half_width"] is None) is not reached
    assert seeds_to_add(planned, 6, [entry]) == (0 if reached else 6)


@pytest.mark.slow
def test_workers_and_interruptions_do_not_change_where_it_stops(tmp_path: Path) -> None:
    planned = plan(wanted(half_width=0.2), "small")
    sweep(planned, tmp_path / "one", machines=Machines(jobs=1))
    sweep(planned, tmp_path / "two", machines=Machines(jobs=2))
    # As if interrupted among the seeds that were added.
    sweep(plan(small_tables(), "small"), tmp_path / "cut", machines=Machines(jobs=1))
    sweep(planned, tmp_path / "cut", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    sweep(planned, tmp_path / "cut", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    for other in ("two", "cut"):
        assert tables(tmp_path / other) == tables(tmp_path / "one")
        assert (tmp_path / other / "sweep.json").read_bytes() == (tmp_path / "one" / "sweep.json").read_bytes()


@pytest.mark.slow
def test_on_a_cluster_it_stops_at_the_same_seed(tmp_path: Path) -> None:
    planned = plan(wanted(half_width=0.2), "small")
    sweep(planned, tmp_path / "here", machines=Machines(jobs=1))
    sweep(planned, tmp_path / "there", machines=Machines(cluster="local:2"))
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
    assert (tmp_path / "there" / "sweep.json").read_bytes() == (tmp_path / "here" / "sweep.json").read_bytes()
    assert noted(tmp_path / "there")["seeds"] > 2


def test_it_ends_at_the_most_seeds_that_are_allowed(tmp_path: Path) -> None:
    sweep(plan(wanted(half_width=1e-9, at_most=7), "small"), tmp_path / "out", machines=Machines(jobs=1))
    found = noted(tmp_path / "out")
    assert (found["seeds"], found["reached"]) == (7, False)


def test_a_half_width_falls_with_the_square_root() -> None:
    planned = plan(wanted(half_width=0.06), "small")

    def add(seeds: int, half_width: float | None) -> int:
        return seeds_to_add(planned, seeds, [{"half_width": half_width, "count": seeds}])

    assert add(20, 0.06) == 0
    assert add(20, 0.0601) == 3, "an eighth at least"
    assert add(20, 0.07) == 8  # 20 (7 / 6)^2 = 27.2
    assert add(20, 0.6) == 20, "twice as many at most"
    assert add(2, None) == 2
    assert add(50, 0.6) == 10, "up to those allowed"
    assert add(60, 0.6) == 0
    with pytest.raises(UserError, match=r"sweep.until.metric = 'mean_round_s': no run measures it"):
        seeds_to_add(planned, 2, [{"half_width": None, "count": 0}])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "final_acuracy"}, "sweep.until.metric 'final_acuracy': there is none of this name; did you mean"),
        ({"metric": "target_s"}, "sweep.until.metric = 'target_s': is the cost of a target; set sweep.target_accuracy"),
        ({"against": "randon"}, "sweep.until.against = 'randon': no such variant; did you mean 'random'"),
        ({"at_most": 2, "half_width": -1}, "sweep.until.half_width = -1: must be > 0"),
    ],
)
def test_what_cannot_be_is_refused_as_it_is_planned(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as refusal:
        plan(wanted(**changes), "small")
    assert words in str(refusal.value)


def test_one_variant_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(UserError, match=r"sweep.until: compares variants, and there is one"):
        plan(wanted() | {"sweep": {"until": RULE}}, "small")
    with pytest.raises(UserError, match=r"sweep.until.at_most = 2: must be at least the 3 seeds"):
        plan(wanted() | {"sweep": wanted(at_most=2)["sweep"] | {"seeds": [1, 2, 3]}}, "small")
    with pytest.raises(UserError, match=r"sweep.seeds: 9223372036854775807 leaves no room for the seeds that sweep.until adds"):
        plan(wanted() | {"sweep": wanted()["sweep"] | {"seeds": [1, 2**63 - 1]}}, "small")
    with pytest.raises(ValueError, match=r"sweep.until: adds seeds to a sweep in a folder; give it as out"):
        netsim.sweep(wanted(), jobs=1)
