"""SAFA's published table: its draw_world, its cells beside a plain reference, and the rule."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.errors import ParameterError
from scenarios.cli.main import main
from scenarios.library.validation.safa_table import Crash
from scenarios.papers.safa import (
    AGREES,
    CELLS,
    DIFFERS,
    LIMIT_S,
    NO_EVIDENCE,
    WAY_S,
    Cell,
    cell_scenario,
    draw_shards,
    draw_speeds,
    draw_world,
    simulate_lengths,
    verdict,
)
from scenarios.runs.reading import parse, read_file
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder

BASE: dict[str, Any] = {key: table for key, table in read_file("safa_table").items() if key != "sweep"} | {"rounds": 12}


def simulated(cell: Cell, seed: int) -> MemoryRecorder:
    records = MemoryRecorder()
    simulation = build(parse(cell_scenario(BASE, cell, seed, draw_world(seed)))).simulation
    simulation.record_to(records)
    simulation.run()
    return records


def times_s(seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(K,) what a client takes in a round, as published: min(T_lim, T_comm + n_k / B E / p_k)."""
    return np.minimum(LIMIT_S, 2 * 10 / 0.175 + draw_shards(seed) / 40 * 5 / draw_speeds(seed))


def test_the_world_is_drawn_as_published() -> None:
    sizes, p = draw_shards(3), draw_speeds(3)
    assert sizes.shape == p.shape == (100,)
    assert sizes.min() >= 40
    assert sizes.sum() == pytest.approx(70_000, abs=50)
    assert p.min() >= 0.016
    spread = np.concatenate([draw_shards(seed) for seed in range(20)])
    # 2,000 draws: the standard error of a standard deviation of 210 is 3.3.
    assert spread.std() == pytest.approx(210, abs=12)
    assert len(CELLS) == 48
    assert Cell("fedcs", 1.0, 0.3).published_s == 5395.5
    assert Cell("safa", 0.1, 0.7).published_s == 241.9


@pytest.mark.parametrize("share", [0.1, 0.7, 1.0])
def test_a_round_of_safa_is_that_of_a_plain_reference(share: float) -> None:
    cell, seed = Cell("safa", share, 0.3), 4
    records, takes_s, p = simulated(cell, seed), times_s(seed), draw_speeds(seed)
    quota, last = math.ceil(100 * share - 1e-9), set[int]()
    held: dict[int, int] = dict.fromkeys(range(100), 0)  # the round after which each client's model was made
    for row in records.rounds:
        crashed = {one.client for one in records.updates if one.round == row.round and one.outcome == "lost"}
        latest = sum(made == row.round - 1 for made in held.values())
        deprecated = [client for client, made in held.items() if row.round - 1 - made > 5]
        assert row.bytes_down == (latest + len(deprecated)) * 10_000_000
        assert row.renewed == len(deprecated)
        held |= dict.fromkeys(deprecated, row.round - 1)
        arrived = [client for client in range(100) if client not in crashed]
        by_speed = sorted(arrived, key=lambda client: -p[client])
        order = [client for client in by_speed if client not in last] + [client for client in by_speed if client in last]
        picked = order[:quota]
        assert row.picked == len(picked)
        assert row.picked_s == pytest.approx(max(takes_s[client] for client in picked), abs=1e-5)
        last = set(picked)
        held |= dict.fromkeys(arrived, row.round)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_round_of_fedavg_is_as_long_as_the_slowest_and_a_crash_costs_the_limit(share: float) -> None:
    seed, records = 5, simulated(Cell("fedavg", share, 0.02), 5)
    takes_s = times_s(seed)
    for row in records.rounds:
        mine = [one for one in records.updates if one.round == row.round]
        assert len(mine) == math.ceil(100 * share)
        crashed = any(one.outcome == "late" and takes_s[one.client] < LIMIT_S - 1e-3 for one in mine)
        expected = LIMIT_S if crashed else max(takes_s[one.client] for one in mine)
        assert row.end_s - row.start_s == pytest.approx(expected, abs=1e-5)


def test_a_round_of_fedcs_leaves_out_who_is_too_slow_and_waits_for_nobody_who_crashed() -> None:
    seed, records = 5, simulated(Cell("fedcs", 1.0, 0.5), 5)
    takes_s = times_s(seed)
    trains_s = draw_shards(seed) / 40 * 5 / draw_speeds(seed)
    fits = {client for client in range(100) if trains_s[client] + WAY_S <= LIMIT_S}
    for row in records.rounds:
        mine = [one for one in records.updates if one.round == row.round]
        assert {one.client for one in mine} == fits
        assert sum(one.outcome == "lost" for one in mine) > 20
        assert row.end_s - row.start_s == pytest.approx(max(takes_s[client] for client in fits), abs=1e-5)


def test_the_distribution_counts_the_models_of_the_run_or_of_the_round() -> None:
    # Everyone is picked and crashes in every round: 12 rounds of the limit, with 100 models of 8 ms each.
    published_s, intended_s = simulate_lengths(cell_scenario(BASE, Cell("fedavg", 1.0, 0.7), 1, draw_world(1)))
    assert intended_s == pytest.approx(5600 + 0.8, abs=1e-6)
    assert published_s == pytest.approx(5600 + 0.8 * 6.5, abs=1e-6)


def test_a_crash_is_a_duration() -> None:
    law = Crash(probability=0.25, lasts_s=8.0)
    everyone = np.arange(4)
    assert law.quantile(np.array([0.0, 0.5, 0.74, 0.75]), everyone).tolist() == [0.0, 0.0, 0.0, 8.0]
    assert law.mean_s(everyone).tolist() == [2.0] * 4
    with pytest.raises(ParameterError, match="probability = 1"):
        Crash(probability=1.5)


@pytest.mark.parametrize(
    ("published_s", "runs_s", "expected"),
    [
        (104.0, [98.0, 102.0], AGREES),  # standard deviation 2.83
        (106.0, [98.0, 102.0], DIFFERS),
        (100.04, [100.0, 100.0], AGREES),
        (100.06, [100.0, 100.0], DIFFERS),
        (100.0, [90.0, 110.0], NO_EVIDENCE),  # 2 x 14.1 > 25
    ],
)
def test_the_rule(published_s: float, runs_s: list[float], expected: str) -> None:
    assert verdict(published_s, np.array(runs_s)) == expected


@pytest.mark.slow
def test_the_command_writes_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["reproduce", "safa_table", "--size", "smoke", "--jobs", "1", "--out", str(tmp_path / "out"), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["netsim", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    text = (tmp_path / "out" / "result.md").read_text(encoding="utf-8")
    assert text.count("| SAFA |") == 16 + 1
    assert "96 runs, seeds 1 to 2" in text
