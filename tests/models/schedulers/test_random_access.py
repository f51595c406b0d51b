"""Random access over sub-channels that fade: success against the closed forms, with stated confidence; collisions by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.laws.block_fading import BlockFading
from models.schedulers.random_access import RandomAccess
from netsim.core.rows import UpdateRow
from netsim.core.scheduling import SlotView
from scenarios.runs.reading import load, parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.random_worlds import built

ROUNDS = 3000
ALOHA: dict[str, Any] = {
    "name": "aloha",
    "rounds": ROUNDS,
    "clients": {"count": 4},
    "server": {"kind": "asynchronous", "contention": True},
    "channels": {"count": 6},
    "scheduler": {"kind": "random-access"},
}


def played(**tables: Any) -> list[UpdateRow]:
    simulation, records = built(ALOHA | tables)
    simulation.run()
    simulation.close()
    return records.updates


def close(share: float, p: float, n: int) -> bool:
    """Within 4.4 standard deviations of a binomial share: wrongly refused once in 100,000 times."""
    return abs(share - p) < 4.4 * math.sqrt(p * (1 - p) / n)


def test_who_meets_nobody_gets_through() -> None:
    """P(success) = (1 - 1/N)^(K - 1). Rounds are independent; of one round, only one client is looked at."""
    for clients, channels in ((2, 2), (6, 4)):
        rows = played(clients={"count": clients}, channels={"count": channels})
        first = [row for row in rows if row.client == 0]
        p = (1 - 1 / channels) ** (clients - 1)
        assert close(np.mean([row.outcome == "delivered" for row in first]), p, ROUNDS)
        assert {row.cause for row in rows} == {None, "collided"}
        for start in range(0, 100 * clients, clients):
            taken = [row.channel for row in rows[start : start + clients]]
            for row in rows[start : start + clients]:
                assert (row.cause == "collided") == row.collided == (taken.count(row.channel) > 1)


def test_every_sub_channel_is_taken_alike_and_independently() -> None:
    rows = played()
    taken = np.array([row.channel for row in rows]).reshape(ROUNDS, 4)
    for channel in range(6):
        assert all(close(np.mean(taken[:, client] == channel), 1 / 6, ROUNDS) for client in range(4))
    pairs = [(taken[:, a] == taken[:, b]).mean() for a in range(4) for b in range(a)]
    assert all(close(share, 1 / 6, ROUNDS) for share in pairs)


def test_one_more_client_changes_nobodys_choice() -> None:
    for round in range(1, 50):
        few, more = (
            RandomAccess(clients=k, channels=9).assign(
                SlotView(round, np.ones(k, np.int64), np.ones(k), np.random.default_rng([5, round]))
            )
            for k in (7, 8)
        )
        assert few.tolist() == more[:7].tolist()


@pytest.mark.slow
def test_the_age_of_who_contends() -> None:
    """E[age] = 1/mu for independent rounds of success mu (Li et al., eq. 15 as read); as in the test of stationary channels."""
    mu = (1 - 1 / 6) ** 3
    ages = np.array([row.age_after_rounds for row in played() if row.client == 2], float)
    lengths = np.arange(1, 400)
    excess = lengths * (lengths + 1) / 2 - lengths / mu
    variance = float((mu * (1 - mu) ** (lengths - 1)) @ excess**2) * mu / ROUNDS
    assert abs(ages.mean() - 1 / mu) < 4.4 * math.sqrt(variance)


FADING: dict[str, Any] = {
    "kind": "block-fading",
    "distance_km": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "transmit_power_dbm": [20.0, 20.0, 20.0, 20.0, 23.0, 26.0],
    "mean_snr_db": 12.0,
    "threshold_db": [20.0, 14.0, 8.0, 5.0, 5.0, 2.0],
}


def test_fading_of_each_sub_channel_against_its_closed_form() -> None:
    """P(good) = exp(-threshold / mean SNR), both as ratios, worked out here for each sub-channel; 4.4 standard deviations."""
    distance, power, threshold = (np.array(FADING[name]) for name in ("distance_km", "transmit_power_dbm", "threshold_db"))
    received = power - 128.1 - 37.6 * np.log10(distance)
    snr = 10 ** ((received - received.mean() + 12.0) / 10)
    expected = np.exp(-(10 ** (threshold / 10)) / snr)
    assert expected.min() < 0.5 < 0.8 < expected.max()
    # A schedule without contention, so that all loss is fading: each round all sub-channels but two are used.
    rows = played(
        server={"kind": "asynchronous"},
        scheduler={"kind": "round-robin"},
        channels={"count": 6, "channel": FADING, "delay": {"kind": "constant", "value_s": 0.1}},
    )
    assert {row.cause for row in rows} == {None, "sub-channel"}
    for channel, p in enumerate(expected.tolist()):
        seen = [row.outcome == "delivered" for row in rows if row.channel == channel]
        assert len(seen) == ROUNDS * 4 // 6
        assert close(np.mean(seen), p, len(seen))
    law = BlockFading(clients=6, **{k: np.array(v) if isinstance(v, list) else v for k, v in FADING.items() if k != "kind"})
    assert law.success_probability(np.arange(6)) == pytest.approx(expected)


@pytest.mark.slow
def test_fading_and_collisions_together() -> None:
    """Fading and the choice of the others are independent: of the transmissions on a channel p (1 - 1/N)^(K - 1) arrive."""
    rows = [row for row in played(channels={"count": 6, "channel": FADING | {"distance_km": 0.3}}) if row.client == 1]
    received = np.array(FADING["transmit_power_dbm"])
    snr = 10 ** ((received - received.mean() + 12.0) / 10)
    p = np.exp(-(10 ** (np.array(FADING["threshold_db"]) / 10)) / snr).mean() * (5 / 6) ** 3
    assert close(np.mean([row.outcome == "delivered" for row in rows]), p, ROUNDS)
    assert {row.cause for row in rows} == {None, "collided", "sub-channel"}


def test_random_access_without_contention_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r'scheduler.kind = "random-access": lets clients collide; set server.contention = true'):
        parse(ALOHA | {"server": {"kind": "asynchronous"}})
    wrapped = {"kind": "aoi-aware", "scheduler": {"kind": "random-access"}}
    with pytest.raises(UserError, match="'random-access' cannot stand within another scheduler"):
        parse(ALOHA | {"scheduler": wrapped})
    with pytest.raises(UserError, match=r"channels.count = 3: must be at least the 4 .* set scheduler.kind = 'random-access'"):
        build(parse(ALOHA | {"channels": {"count": 3}, "scheduler": {"kind": "cucb"}}))


@pytest.mark.parametrize(
    "server",
    [
        {"kind": "asynchronous"},
        {"per_round": 6},
        {"kind": "semi-synchronous", "per_round": 6, "round_s": 1.0},
        {"kind": "buffered", "concurrency": 6},
        {"kind": "safa", "per_round": 6},
    ],
    ids=lambda server: server.get("kind", "synchronous"),
)
def test_more_clients_than_sub_channels_contend_for_them_under_every_server(server: dict[str, Any]) -> None:
    selects = server.get("kind") not in ("asynchronous", "safa")
    tables = ALOHA | {"clients": {"count": 6}, "server": server | {"contention": True}, "rounds": 200}
    tables["channels"] = {"count": 4, "delay": {"kind": "constant", "value_s": 0.5}}
    if selects:
        tables["policy"] = {"kind": "random"}
    simulation, records = built(tables)
    simulation.run()
    assert {row.outcome for row in records.updates} == {"delivered", "lost"}
    # A round that is not slotted lets uploads meet in part: those that begin together are alike in all.
    for round in {row.round for row in records.updates}:
        rows = [row for row in records.updates if row.round == round]
        for row in rows:
            met = [other for other in rows if other.channel == row.channel and other.upload_start_s == row.upload_start_s]
            assert row.collided or len(met) == 1


def test_ages_have_no_oracle_by_default_where_it_could_not_give_each_client_a_sub_channel(tmp_path: Path) -> None:
    crowded = ALOHA | {"clients": {"count": 6}, "channels": {"count": 4}, "rounds": 50}
    aoi = run(parse(crowded), tmp_path / "run")["aoi"]
    assert (aoi["oracle"], aoi["regret"]) == ("none", None)
    with pytest.raises(UserError, match=r"metrics.oracle = .means.: gives each of 6 clients one of channels.count = 4"):
        parse(crowded | {"metrics": {"oracle": "means"}})


def test_the_scenario_that_comes_along_counts_collisions(tmp_path: Path) -> None:
    run(load("random_access", ["rounds=300"]), tmp_path / "run")
    clients = pq.read_table(tmp_path / "run" / "clients.parquet").to_pydict()
    rounds = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pydict()
    # A collision on a Bad sub-channel is a collision, too; the cause is then the sub-channel.
    assert sum(rounds["collided"]) == sum(clients["collided"]) >= clients["cause"].count("collided") > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["aoi"]["oracle"] == "means"
