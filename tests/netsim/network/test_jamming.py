"""Jammers: their laws, what they hit, what they may spend."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.laws.delays import ShiftedExponential
from models.laws.sub_channels.jammers import File, Pulse, Random, Reactive, Sweep
from netsim.servers.sub_channels.age_oracle import AgeOracle
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.async_world import Shuffled, Table, world
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import taken_up


def view(dwell: int = 1, *, reach: Any = (0, 1, 2, 3), allowed: int = 4, seed: int = 0, **heard: Any) -> Any:
    count = 6
    arrays = {name: np.array(heard.get(name, [0] * count)) for name in ("used", "delivered", "busy")}
    rng = np.random.default_rng(seed)
    return SimpleNamespace(dwell=dwell, time_s=0.0, reach=np.array(reach), allowed=allowed, rng=rng, **arrays)


def plan(law: Any, dwells: int, **parameters: Any) -> list[list[int]]:
    return [law.choose(view(dwell, seed=dwell, **parameters)).tolist() for dwell in range(1, dwells + 1)]


def test_sweep_and_pulse_by_hand(tmp_path: Path) -> None:
    assert plan(Sweep(), 5) == [[0], [1], [2], [3], [0]]
    assert plan(Sweep(width=2, step=3), 3, reach=(1, 4, 5)) == [[1, 4], [1, 4], [1, 4]]
    assert plan(Sweep(width=2, step=2), 3, reach=(1, 4, 5)) == [[1, 4], [5, 1], [4, 5]]
    assert plan(Sweep(width=9), 1, allowed=3) == [[0, 1, 2]]
    assert plan(Pulse(on=2, off=1, width=2), 5) == [[0, 1], [0, 1], [], [0, 1], [0, 1]]
    path = tmp_path / "plan.txt"
    path.write_text("# dwell by dwell\n0, 2\n\n3 1\n")
    assert plan(File(path=str(path)), 5) == [[0, 2], [], [3, 1], [], []]
    assert plan(File(path=str(path), repeat=True), 4, allowed=1) == [[0], [], [3], [0]]


def test_what_a_law_jams_in_every_dwell_is_what_its_dwells_have_in_common(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("0 2\n2 1\n")
    plan = str(tmp_path / "plan.txt")
    laws = [
        *(Sweep(width=width, step=step) for width in (1, 2, 3) for step in (1, 2, 3)),
        *(Pulse(on=on, off=off, width=2) for on in (1, 3) for off in (0, 1)),
        *(Random(width=width, duty=duty) for width in (1, 3) for duty in (0.5, 1.0)),
        *(File(path=plan, repeat=repeat) for repeat in (False, True)),
    ]
    reach = np.arange(3)
    for law in laws:
        dwells = [SimpleNamespace(dwell=n, reach=reach, allowed=3, rng=np.random.default_rng(n)) for n in range(1, 40)]
        common = set.intersection(*(set(law.choose(view).tolist()) for view in dwells))
        assert set(law.constant_choice(reach, 3).tolist()) == common, vars(law)


def test_random_jamming_is_uniform_and_keeps_to_its_duty() -> None:
    chosen = plan(Random(width=2, duty=0.6), 4000)
    on = [channels for channels in chosen if channels]
    assert all(len(set(channels)) == 2 for channels in on)
    # Five standard deviations of a binomial share.
    assert abs(len(on) / 4000 - 0.6) < 5 * np.sqrt(0.24 / 4000)
    counts = np.bincount(np.concatenate(on), minlength=4) / len(on)
    assert np.all(np.abs(counts - 0.5) < 5 * np.sqrt(0.25 / len(on)))
    assert plan(Random(width=2, duty=1.0), 50)[0] == next(c for c in plan(Random(width=2, duty=0.99), 1))


def test_reactive_jamming_follows_what_it_hears() -> None:
    law = Reactive(target="used", width=2)
    assert law.choose(view(used=[1, 5, 0, 3, 9, 9])).tolist() == [1, 3]
    assert law.choose(view(used=[0] * 6)).tolist() == []
    assert law.choose(view(used=[0, 0, 2, 0, 0, 0])).tolist() == [2]
    assert Reactive(target="worked").choose(view(used=[9] * 6, delivered=[0, 0, 0, 1, 0, 0])).tolist() == [3]
    assert Reactive(target="busy", width=3).choose(view(busy=[1, 0, 0, 0, 1, 1])).tolist() == [0]
    memory = Reactive(target="used", memory=0.5)
    assert memory.choose(view(used=[4, 0, 0, 0, 0, 0])).tolist() == [0]
    copy = Reactive(target="used", memory=0.5)
    copy.load_state_dict(memory.state_dict())
    for law in (memory, copy):
        assert law.choose(view(used=[0, 1, 0, 0, 0, 0])).tolist() == [0]  # 2 against 1
        assert law.choose(view(used=[0, 1, 0, 0, 0, 0])).tolist() == [1]  # 1 against 1.5
    ties = {
        law.choose(view(used=[1, 1, 1, 1, 0, 0], seed=seed)).item() for law in (Reactive(target="used"),) for seed in range(40)
    }
    assert ties == {0, 1, 2, 3}


def test_jamming_by_rounds_by_hand() -> None:
    sweep = {"law": Sweep(), "dwell_rounds": 2, "budget": 2, "reach": [0, 2]}
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 6, jammers=[sweep]).play()
    it.simulation.close()
    # Rounds 1 and 2: channel 0; rounds 3 and 4: channel 2; then its budget is spent.
    assert it.table("jammed") == [[True, False]] * 2 + [[False, False]] * 4
    assert it.table("outcome") == [["lost", "delivered"]] * 2 + [["delivered", "delivered"]] * 4
    assert [(row.round, row.channel, row.hit, row.destroyed) for row in it.recorder.jams] == [(1, 0, 2, 2), (3, 2, 0, 0)]
    assert [row.jam_dwells for row in it.recorder.rounds] == [1, 0, 1, 0, 0, 0]
    assert [row.jammed for row in it.recorder.rounds] == [1, 1, 0, 0, 0, 0]
    assert it.scheduler.seen[0][3] == [False, True]


def test_a_jam_that_begins_as_a_transmission_ends_or_ends_as_it_begins_does_no_harm() -> None:
    def outcome(start: float, dwell_s: float) -> str:
        # One transmission over [2, 4).
        jammer = {"law": Pulse(on=1, off=9), "dwell_s": dwell_s, "start": start}
        it = world(
            scheduler=Table([[0]]), clients=1, channels=1, states=[[1]], compute_s=2.0, upload_s=2.0, rounds=1, jammers=[jammer]
        )
        return str(it.play().recorder.updates[0].outcome)

    assert outcome(0.0, 2.0) == "delivered"
    assert outcome(0.0, 2.25) == "lost"
    assert outcome(3.75, 9.0) == "lost"
    assert outcome(4.0, 9.0) == "delivered"
    assert outcome(2.5, 0.25) == "lost"
    assert outcome(4.5, 9.0) == "delivered"


def test_a_transmission_of_no_length_is_hit_by_a_jam_that_begins_with_it() -> None:
    jammer = {"law": Pulse(on=1, off=9), "dwell_s": 1.0, "start": 2.0}
    it = world(scheduler=Table([[0]]), clients=1, channels=1, states=[[1]], compute_s=2.0, rounds=1, jammers=[jammer])
    assert it.play().recorder.updates[0].jammed is True
    early = {"law": Pulse(on=1, off=9), "dwell_s": 1.0, "start": 1.0}
    it = world(scheduler=Table([[0]]), clients=1, channels=1, states=[[1]], compute_s=2.0, rounds=1, jammers=[early])
    assert it.play().recorder.updates[0].outcome == "delivered"


@given(seed=st.integers(0, 10_000), fixed=st.booleans())
@settings(max_examples=15)
def test_jamming_hits_exactly_what_it_overlaps_and_keeps_to_its_budget(seed: int, fixed: bool) -> None:
    parameters: list[dict[str, Any]] = [
        {"law": Reactive(target="used", width=2, memory=0.7), "dwell_s": 0.5, "at_once": 2, "budget": 30},
        {"law": Random(width=3, duty=0.5), "dwell_s": 0.7, "at_once": 3, "reach": [1, 3, 4], "start": 2.0},
        {"law": Reactive(target="busy"), "dwell_s": 0.3, "budget": 25},
    ]
    it = world(
        scheduler=Shuffled(3, 5),
        clients=3,
        channels=5,
        compute_s=ShiftedExponential(shift_s=0.2, mean_excess_s=1.0),
        channel_s=ShiftedExponential(shift_s=0.1, mean_excess_s=0.6),
        rounds=25,
        seed=seed,
        jammers=parameters,
        **({"round_s": 2.0} if fixed else {}),
    ).play()
    it.simulation.close()
    jams = it.recorder.jams
    sent = [row for row in it.recorder.updates if row.good is not None]
    for row in sent:
        met = any(j.channel == row.channel and j.start_s < row.upload_end_s and row.upload_start_s < j.end_s for j in jams)
        assert row.jammed == met
        assert not (row.jammed and row.outcome == "delivered")
    assert sum(j.hit for j in jams) == sum(row.jammed is True for row in sent)
    assert sum(j.destroyed for j in jams) == sum(row.jammed is True and row.good is True for row in sent)
    assert len([j for j in jams if j.jammer == "j0"]) <= 30
    assert len([j for j in jams if j.jammer == "j2"]) <= 25
    assert {j.channel for j in jams if j.jammer == "j1"} <= {1, 3, 4}
    assert all(j.start_s >= 2.0 for j in jams if j.jammer == "j1")
    for name, at_once in (("j0", 2), ("j1", 3), ("j2", 1)):
        starts = [j.start_s for j in jams if j.jammer == name]
        assert max(np.unique(starts, return_counts=True)[1], default=0) <= at_once
    assert sum(row.jam_dwells or 0 for row in it.recorder.rounds) == len(jams)


def test_the_first_on_a_channel_keeps_the_credit_across_a_saved_state() -> None:
    late = {"law": Sweep(), "dwell_rounds": 4, "start": 2.0}
    early = {"law": Sweep(), "dwell_rounds": 5}

    def fresh() -> Any:
        return world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 4, rounds=4, jammers=[late, early])

    whole = fresh().play()
    whole.simulation.close()
    assert [(row.jammer, row.hit) for row in whole.recorder.jams] == [("j0", 0), ("j1", 4)]
    resumed = fresh()
    resumed.simulation.load_state_dict(fresh().play(2).simulation.state_dict())
    resumed.play().simulation.close()
    assert resumed.recorder.jams == whole.recorder.jams


def test_a_jammer_that_is_started_on_a_saved_state_begins_with_the_next_round() -> None:
    def fresh(**given: Any) -> Any:
        jammer = {"law": Sweep(), "dwell_rounds": 1} | given
        return world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 4, rounds=4, jammers=[jammer])

    it = fresh().play(2)
    it.access.jammers.halt("j0")
    resumed = fresh()
    resumed.simulation.load_state_dict(it.simulation.state_dict())
    resumed.access.jammers.start("j0")
    resumed.play().simulation.close()
    jams = [[(row.round, row.channel) for row in one.recorder.jams] for one in (it, resumed)]
    assert jams == [[(1, 0), (2, 1)], [(3, 2), (4, 0)]]
    spent = fresh(budget=1).play(2)
    with pytest.raises(ValueError, match=r"^name = 'j0': this jammer has spent its budget of 1;"):
        spent.access.jammers.start("j0")


REACTIVE: dict[str, Any] = {"name": "reactive", "law": {"kind": "reactive", "memory": 0.5}, "at_once": 1, "dwell_s": 1.0}


def resumed_after(rounds: list[int], tables: dict[str, Any]) -> None:
    def make() -> tuple[Any, MemoryRecorder]:
        simulation, records = build(parse(tables)).simulation, MemoryRecorder()
        simulation.record_to(records)
        return simulation, records

    for after in rounds:
        taken_up(make, after)


@pytest.mark.parametrize(("target", "dwell_s"), [("busy", 1.0), ("worked", 1.0), ("worked", 11.0)])
def test_what_a_jammer_hears_at_an_instant_at_which_transmissions_end_is_the_same_after_a_resume(
    target: str, dwell_s: float
) -> None:
    # All times are whole seconds: transmissions last into the next round, and end as dwells begin, some begun before the dwell
    # that is over then, some in it.
    law = REACTIVE["law"] | {"target": target}
    tables = {
        "name": "ties",
        "rounds": 12,
        "clients": {"count": 4},
        "server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 10.0},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": [5.0, 7.0, 1.0, 0.0]}},
        "channels": {"count": 4, "delay": {"kind": "constant", "value_s": 6.0}},
        "scheduler": {"kind": "round-robin"},
        "jammers": [REACTIVE | {"law": law, "dwell_s": dwell_s}],
    }
    resumed_after([2, 4, 6, 8, 10], tables)


def test_what_a_jammer_of_links_hears_at_an_instant_at_which_messages_end_is_the_same_after_a_resume() -> None:
    # Messages of clients 0 and 2 last for 1.5 s, from slot into slot, and end as every third dwell begins.
    tables = {
        "name": "ties",
        "rounds": 9,
        "clients": {"count": 6},
        "server": {"kind": "fl-da", "per_round": 2},
        "policy": {"kind": "bp-index"},
        "slots": {"rounds": 1, "start": "deadline", "deadline_s": 0.5},
        "compute": {"delay": {"kind": "constant", "value_s": 0.5}},
        "opinions": {"synthetic": {"worth": {"from": 0.2, "to": 0.9}}},
        "peers": {
            "topology": {"kind": "complete"},
            "speed_km_per_s": 1e300,
            "delay": {"kind": "constant", "value_s": [1.5, 0.25, 1.5, 0.5, 0.25, 0.5]},
        },
        "belief": {"exchanges": 1},
        "gossip": {},
        "jammers": [REACTIVE | {"at_once": 2, "dwell_s": 1.5}],
    }
    resumed_after([1, 2, 4, 7], tables)


def test_the_oracle_meets_the_jamming_that_is_on_as_a_round_opens() -> None:
    def meter(streams: Any) -> AgeOracle:
        return AgeOracle(scheduler=Table([[0, 1]]), clients=2, channels=3, streams=streams)

    jammer = {"law": Sweep(), "dwell_rounds": 1, "budget": 2}
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 3, rounds=3, jammers=[jammer], meter=meter).play()
    # Channel 0 is jammed in round 1, channel 1 in round 2; the oracle uses the same two channels.
    assert [row.oracle_sum_age for row in it.recorder.rounds] == [3, 3, 2]
    assert [row.sum_age for row in it.recorder.rounds] == [3, 3, 2]


def test_a_jammer_changes_no_channel_state() -> None:
    parameters: dict[str, Any] = {"clients": 2, "channels": 4, "rounds": 100}
    free = world(scheduler=Table([[0, 1]]), **parameters).play()
    jammed = world(scheduler=Table([[0, 1]]), jammers=[{"law": Random(), "dwell_rounds": 1}], **parameters).play()
    assert free.column("good") == jammed.column("good")
    assert sum(row.jammed or 0 for row in jammed.recorder.rounds) > 20


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"budget": -1}, "budget = -1: must be >= 0"),
        ({"at_once": 0}, "at_once = 0: must be at least 1"),
        ({"reach": [0, 3]}, r"reach = \[0, 3\]: must name at least one channel"),
        ({"reach": []}, "reach = "),
        ({"dwell_rounds": 0}, "dwell_rounds = 0"),
        ({"dwell_rounds": None, "dwell_s": 0.0}, "dwell_s = 0.0: must be > 0"),
        ({"dwell_s": 1.0}, "dwell_s = 1.0: give either"),
        ({"start": 0.0}, "start = 0.0: must be a round from 1 on"),
        ({"start": 1.5}, "start = 1.5: must be a round"),
    ],
)
def test_jammers_that_make_no_sense_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world(scheduler=Table([[0, 1]]), jammers=[{"law": Sweep(), "dwell_rounds": 1} | parameters])


@pytest.mark.parametrize("answer", [[0, 1], [2, 2], [7], [0.5], [[0]]])
def test_what_a_law_returns_is_checked(answer: Any) -> None:
    law = SimpleNamespace(choose=lambda view: np.array(answer))
    at_once = 1 if answer == [0, 1] else 3
    it = world(scheduler=Table([[0, 1]]), jammers=[{"law": law, "dwell_rounds": 1, "at_once": at_once}])
    with pytest.raises(ValueError, match="jammer 'j0': choose returned"):
        it.play()


def test_laws_refuse_parameters_out_of_range(tmp_path: Path) -> None:
    for make, name in (
        (lambda: Sweep(width=0), "width"),
        (lambda: Sweep(step=0), "step"),
        (lambda: Pulse(on=0), "on"),
        (lambda: Pulse(off=-1), "off"),
        (lambda: Random(duty=1.5), "duty"),
        (lambda: Reactive(memory=-0.1), "memory"),
        (lambda: Reactive(target="all"), "target"),  # type: ignore[arg-type]
        (lambda: File(path=str(tmp_path / "none.txt")), "path"),
    ):
        with pytest.raises(ValueError, match=f"^{name} = "):
            make()
    for text, line in (("0\nx\n", "line 2"), ("0 0\n", "line 1"), ("-1\n", "line 1"), ("# nothing\n", "holds no plan")):
        path = tmp_path / "plan.txt"
        path.write_text(text)
        with pytest.raises(ValueError, match=line):
            File(path=str(path))
