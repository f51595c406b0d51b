"""Runs in which clients are asked: losses, books, energy, state, and requests, profiles and further asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import open_run
from models.policies.fedcs import FedCs
from netsim.core.errors import AnswerError
from netsim.servers.rounds.checks import check_selection
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.probe_world import LEARNER, ROUGH, played, probes, with_policy, world
from tests.helpers.random_worlds import copied, same

SEMI = {"server": {"kind": "semi-synchronous", "per_round": 1, "round_s": 2.0}}


def test_an_answer_before_a_run_ends_in_the_midst_of_asking_is_recorded() -> None:
    losses = []
    for limit in ({}, {"time_limit_s": 1.9}):
        tables = world([[0, 1, 2]], [[0]], learner=LEARNER, **limit)
        del tables["payload"]
        _, records = played(tables)
        losses.append({row.client: row.loss for row in records.probes})
    whole, cut = losses
    assert cut[0] == whole[0] > 0
    assert np.isnan([cut[1], cut[2]]).all()
    assert not np.isnan(list(whole.values())).any()


def test_the_losses_are_the_present_models_of_those_that_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, records = build(parse(ROUGH)).simulation, MemoryRecorder()
    simulation.record_to(records)
    learner = simulation.server.learner
    losses_of, seen = learner.losses_of, []

    def noting(clients: Any, round: int, samples: int | None) -> Any:
        losses = losses_of(clients, round, samples)
        seen.append((round, learner.version, samples, dict(zip(clients.tolist(), losses.tolist(), strict=True))))
        return losses

    monkeypatch.setattr(learner, "losses_of", noting)
    simulation.run()
    by_round = {round: told for round, _, _, told in seen}
    assert all(samples == 5 for _, _, samples, _ in seen)
    answered = [row for row in records.probes if row.outcome == "delivered"]
    assert all(row.loss == by_round[row.round][row.client] for row in answered)
    assert sum(len(told) for told in by_round.values()) == len(answered) < len(records.probes)
    assert all(np.isnan(row.loss) for row in records.probes if row.outcome != "delivered")
    # The one that told the higher loss was selected.
    for told, row in zip(simulation.server.loop.dispatch.policy.told, records.rounds, strict=True):
        there = by_round.get(row.round, {})
        chosen = [update.client for update in records.updates if update.round == row.round]
        if len(there) == 2 and told.answered.all() and chosen and chosen[0] in there:
            assert there[chosen[0]] == max(there.values())
    assert {row.outcome for row in records.probes} >= {"delivered", "late", "lost"}


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("kind", ["synchronous", "semi-synchronous"])
def test_books_balance_and_a_run_goes_on_from_a_saved_state(kind: str) -> None:
    tables = override(ROUGH, {}) | (SEMI if kind == "semi-synchronous" else {})
    simulation, expected = played(tables)
    counts = simulation.server.counts()
    assert counts["bytes_down"] == sum(row.bytes_down for row in [*expected.updates, *expected.probes])
    assert counts["bytes_up"] == sum(row.bytes_up for row in [*expected.updates, *expected.probes])
    assert counts["bytes_down"] == sum(row.bytes_down for row in expected.rounds)
    assert counts["probes"] == len(expected.probes) == sum(row.probes for row in expected.rounds)
    for after in (1, 3, 6):
        first, before = build(parse(tables)).simulation, MemoryRecorder()
        first.record_to(before)
        first.run(until_round=after)
        second, rest = build(parse(tables)).simulation, MemoryRecorder()
        second.record_to(rest)
        second.load_state_dict(copied(first.state_dict()))
        second.run()
        second.close()
        for table in ("rounds", "updates", "probes"):
            assert same(getattr(before, table) + getattr(rest, table), getattr(expected, table)), table


ENERGY = {"idle_w": 0.5, "compute_w": 5.0, "send_w": 2.0, "receive_w": 1.0}


def test_a_probe_draws_power_in_every_phase() -> None:
    _, records = played(world([[0, 2]], [[0]], probe={"deadline_s": 2.0}, energy=ENERGY))
    # Client 0 receives for 0.25 s, evaluates for 1 s and sends for 0.5 s; client 2 is told to stop 1.75 s into its evaluation.
    assert probes(records, "client", "receive_j", "compute_j", "send_j") == [(0, 0.25, 5.0, 1.0), (2, 0.25, 8.75, 0.0)]
    (update,) = records.updates
    assert (update.receive_j, update.compute_j, update.send_j) == (0.0, 15.0, 1.0)


def test_a_probe_that_a_battery_aborts_is_no_attempt() -> None:
    # Client 2 has 3 J: a quarter is drawn by the download, the rest lasts for 0.55 s of its evaluation.
    battery = {"battery": {"capacity_j": [100.0, 100.0, 3.0], "threshold": 0.01}}
    simulation, records = played(world([[0, 2]], [[0]], energy=ENERGY | battery))
    assert probes(records, "client", "outcome", "cause") == [(2, "aborted", "battery"), (0, "delivered", None)]
    assert [row.outcome for row in records.updates] == ["delivered"]
    assert simulation.server.clients.energy.aborted == 0
    assert simulation.server.clients.energy.batteries.ran_empty == 1


@pytest.mark.parametrize("battery", [{}, {"battery": {"capacity_j": 40.0, "threshold": 0.2}}])
@pytest.mark.parametrize("ending", [{}, {"time_limit_s": 11.0}])
def test_the_books_of_a_run_on_disk_balance(battery: dict[str, Any], ending: dict[str, Any], tmp_path: Path) -> None:
    # It would end with an error if they did not.
    summary = run(parse(ROUGH | {"energy": ENERGY | battery} | ending), tmp_path / "out")
    assert summary["books"]["tables"] == ["rounds", "clients", "probes"]
    opened = open_run(tmp_path / "out")
    assert summary["energy"]["probes_j"] == pytest.approx(opened.probes[["compute_j", "send_j", "receive_j"]].to_numpy().sum())
    assert summary["energy"]["probes_j"] > 0
    assert summary["totals"]["probes"] == len(opened.probes)


def test_asking_changes_no_draw_of_any_update() -> None:
    """Updates take what they would take unasked: common random numbers across policies."""
    plain = world([[], []], [[0], [1]], compute={"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 2.0}})
    asking = override(plain, {"policy.asked": [[0, 1], [2]], "probe.reuse_model": False})
    _, without = played(plain)
    _, along = played(asking)
    assert [row.compute_end_s - row.compute_start_s for row in along.updates] == pytest.approx(
        [row.compute_end_s - row.compute_start_s for row in without.updates]
    )
    assert all(row.compute_end_s > row.compute_start_s for row in along.probes)


def test_asking_leaves_the_states_of_the_links_as_they_are() -> None:
    # A change point brings another law, which goes on from the states of the old one: whoever notices it first.
    channel = {"kind": "gilbert-elliott", "to_bad": 0.5, "to_good": 0.5}
    link = {"delay": {"kind": "constant", "value_s": 0.1}, "channel": channel}
    link |= {"changes": [{"at_round": 2, "channel": {"to_bad": 0.4}}]}
    tables = world([[], [], []], [[0], [1], [2]], clients=20, uplink=link, downlink=link)
    tables["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    plain, _ = played(tables)
    asking, records = played(override(tables, {"policy.asked": [[0, 1], [2], [3]]}))
    assert len(records.probes) == 4
    for link_name in ("uplink", "downlink"):
        states = [one.server.clients.medium.state_dict()[link_name] for one in (plain, asking)]
        assert same(*states)


def test_a_run_that_ends_while_clients_are_asked_leaves_the_probes(tmp_path: Path) -> None:
    tables = world([[0, 1, 2]], [[0]], time_limit_s=1.9)
    simulation, records = played(tables)
    counts = simulation.server.counts()
    assert (counts["probes"], counts["probes_answered"]) == (3, 1)
    assert run(parse(tables), tmp_path / "out")["books"]["balanced"]
    assert probes(records, "client", "outcome", "outcome_s") == [
        (0, "delivered", 1.75),
        (1, "in_flight", 1.9),
        (2, "in_flight", 1.9),
    ]
    assert (records.rounds, records.updates) == ([], [])


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"policy": {"kind": "random"}, "probe": {"deadline_s": 1.0}}, "probe = .*'random' does not ask for losses"),
        ({"server": {"kind": "buffered", "concurrency": 2}}, "policy.kind = .*the buffered server selects one client at a time"),
        ({"probe": {"timed": False, "deadline_s": 1.0}}, "probe.deadline_s = 1.0: leave it out: with timed = false"),
        ({"probe": {"deadline_s": 0.0}}, "probe.deadline_s = 0.0"),
        ({"probe": {"answer_bytes": 0}}, "probe.answer_bytes = 0"),
        (SEMI, "probe.deadline_s.*less than server.round_s = 2.0"),
        (
            {"channels": {"count": 3}, "scheduler": {"kind": "random"}},
            "probe.timed = true: a probe has no sub-channel",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], fragment: str) -> None:
    with pytest.raises(UserError, match=fragment):
        parse(world([[0]], [[0]]) | changes)


def test_a_request_is_two_small_messages_and_nothing_is_computed() -> None:
    tables = with_policy({"kind": "refl", "round_s": 5.0}, 2, server={"per_round": 3})
    tables["downlink"] = {"delay": {"kind": "constant", "value_s": 0.25}, "bandwidth_bytes_per_s": 100.0}
    _, records = played(tables)
    # 10 bytes each way: 0.25 + 0.1 s, and half a second back.
    ends = probes(records, "download_end_s", "compute_end_s", "upload_end_s")
    assert ends[:3] == [(0.35, 0.35, 0.85)] * 3
    assert probes(records, "bytes_down", "bytes_up") == [(10, 10)] * 6
    assert all(np.isnan(row.loss) for row in records.probes)
    # Who has answered does not hold the model.
    assert {row.bytes_down for row in records.updates} == {1002}
    assert records.rounds[0].probe_s == pytest.approx(0.85)


def test_fedcs_leaves_out_who_is_slow_until_its_speed_changes() -> None:
    # A pass of 100 samples takes 1 s, at client 3 100 s; uploads take 1 s each on one sub-channel; the limit is 6 s.
    tables: dict[str, Any] = {
        "name": "slow",
        "rounds": 7,
        "clients": {"count": 4, "data_sizes": 100.0},
        "server": {"per_round": 4, "deadline_s": 6.0},
        "policy": {"kind": "fedcs", "round_s": 6.0, "asked": 1.0},
        "probe": {"timed": False},
        "work": {"batch_size": 10, "epochs": 1},
        "compute": {
            "seconds_per_sample": [0.01, 0.01, 0.01, 1.0],
            # Client 3 takes 2 s from round 4 on, client 0 7 s from round 6 on.
            "changes": [
                {"at_round": 4, "clients": [3], "seconds_per_sample": 0.02},
                {"at_round": 6, "clients": [0], "seconds_per_sample": 0.07},
            ],
        },
        "uplink": {"sub_channels": 1, "delay": {"kind": "constant", "value_s": 1.0}},
    }
    _, records = played(tables)
    who = [sorted(row.client for row in records.updates if row.round == number) for number in range(1, 8)]
    assert who == [[0, 1, 2]] * 3 + [[0, 1, 2, 3]] * 2 + [[1, 2, 3]] * 2
    # Training of 1 s, then an upload after the other: the rounds last as long as they were expected to.
    assert [row.end_s - row.start_s for row in records.rounds] == pytest.approx([4, 4, 4, 5, 5, 4, 4])
    assert {row.outcome for row in records.updates} == {"delivered"}
    # Whoever selects everyone waits for client 3 in vain, up to the deadline.
    _, records = played({name: table for name, table in tables.items() if name != "probe"} | {"policy": {"kind": "all"}})
    assert (records.rounds[0].end_s, records.rounds[0].selected, records.rounds[0].delivered) == (6.0, 4, 3)


def test_an_adaptive_target_leaves_room_for_updates_that_are_expected() -> None:
    # Updates take 3 s, rounds 2 s. 0 s: three begin. 2 s: they are expected by 4 s, as nothing is known: one begins. 4 s: it is
    # expected at 5 s: two begin; 6 s: both are expected at 7 s: one begins; and so on.
    tables: dict[str, Any] = {
        "name": "late",
        "rounds": 6,
        "clients": {"count": 8},
        "server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 2.0},
        "policy": {"kind": "refl", "round_s": 2.0, "adaptive": True},
        "probe": {"timed": False},
        "compute": {"delay": {"kind": "constant", "value_s": 3.0}},
    }
    _, records = played(tables)
    assert [row.selected for row in records.rounds] == [3, 1, 2, 1, 2, 1]
    _, records = played(tables | {"policy": {"kind": "refl", "round_s": 2.0}})
    assert [row.selected for row in records.rounds] == [3] * 6
    with pytest.raises(UserError, match=r"policy.adaptive = true: counts on late updates, which .*'synchronous' drops"):
        parse(tables | {"server": {"per_round": 3, "deadline_s": 2.0}})


def test_a_profile_takes_as_long_as_an_update_and_is_thrown_away() -> None:
    tables = with_policy({"kind": "tifl", "timeout_s": 7.0, "tiers": 2, "sync_rounds": 2}, 2)
    simulation, records = played(tables)
    # Latencies are 3.75, 4 and 6.75 s; both profiling rounds come before the first round.
    assert probes(records, "client", "round", "sent_s", "outcome_s") == [
        (0, 1, 0.0, 3.75),
        (1, 1, 0.0, 4.0),
        (2, 1, 0.0, 6.75),
        (0, 1, 6.75, 10.5),
        (1, 1, 6.75, 10.75),
        (2, 1, 6.75, 13.5),
    ]
    assert probes(records, "bytes_down", "bytes_up") == [(1002, 502)] * 6
    assert simulation.server.loop.dispatch.policy.tier_of.tolist() == [0, 1, 1]
    assert [row.probes for row in records.rounds] == [6, 0]
    # No update of a round, no release, and whoever is selected first holds the model.
    assert sum(row.selected for row in records.rounds) == 2
    assert records.updates[0].bytes_down == 0
    assert records.updates[0].selected_s == 13.5


def test_clients_that_are_asked_again_draw_again() -> None:
    tables = with_policy({"kind": "tifl", "timeout_s": 90.0, "tiers": 2, "sync_rounds": 3}, 1)
    tables["uplink"] = {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}}
    _, records = played(tables)
    by_client = sorted(records.probes, key=lambda row: (row.client, row.sent_s))
    took_s = np.array([row.upload_end_s - row.upload_start_s for row in by_client])
    assert len(set(took_s.round(9))) == 9
    _, once = played(tables | {"policy": tables["policy"] | {"sync_rounds": 1}})
    first = {row.client: row.upload_end_s - row.upload_start_s for row in once.probes}
    assert [first[client] for client in range(3)] == pytest.approx(took_s[::3].tolist())


def test_a_round_in_which_nobody_fits_lasts_to_its_deadline() -> None:
    fits = {"kind": "fedcs", "round_s": 4.0, "asked": 1.0, "uploads": "parallel"}
    tables = with_policy(fits, 3, server={"per_round": 3, "deadline_s": 10.0})
    tables["compute"]["changes"] = [{"at_round": 2, "delay": {"value_s": 9.0}}, {"at_round": 3, "delay": {"value_s": 1.0}}]
    _, records = played(tables)
    # Expected 3.75, 4 and 6.75 s: the first two fit. In round 2 nobody does, in round 3 everybody.
    assert [row.selected for row in records.rounds] == [2, 0, 3]
    request_s = 0.5 + 0.5
    lengths_s = [row.end_s - row.start_s - request_s for row in records.rounds]
    assert lengths_s == pytest.approx([4.0, 10.0, 2.0])
    with pytest.raises(UserError, match=r"server\.deadline_s = null: policy\.kind = 'fedcs' may find nobody, and the round"):
        build(parse(tables | {"server": {"per_round": 3}}))


def test_a_free_profile_is_refused() -> None:
    tables = with_policy({"kind": "tifl", "timeout_s": 9.0, "tiers": 2}, 1, probe={"timed": False})
    with pytest.raises(UserError, match=r"probe\.timed = false: policy\.kind = .tifl. learns how long updates take"):
        build(parse(tables))


def test_another_policy_may_not_select_nobody() -> None:
    class Nobody(FedCs):
        may_select_nobody = False

    with pytest.raises(AnswerError, match="expected a non-empty 1-d array"):
        check_selection(np.zeros(0, np.int64), np.ones(3, np.bool_), nobody=Nobody.may_select_nobody)
    chosen, steps = check_selection(np.zeros(0, np.int64), np.ones(3, np.bool_), nobody=FedCs.may_select_nobody)
    assert (len(chosen), steps) == (0, None)
