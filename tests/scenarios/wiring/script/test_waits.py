"""What a script waits for, and in which order it acts against other events of an instant."""

from __future__ import annotations

import re
from typing import Any

import pytest

import netsim
from scenarios.schema.errors import UserError
from tests.helpers.scripted import THREE, recorded


def _seen(tables: dict[str, Any], *waits: Any) -> list[tuple[int, float, Any]]:
    """Round, time and what the yield gave, for each of the waits that `waits` make of a world."""
    seen = []

    def script(world):
        for wait in waits:
            told = yield wait(world)
            seen.append((world.round, world.time_s, told))

    recorded(tables, script)
    return seen


def test_a_script_waits_for_rounds_and_times_and_for_what_has_been_not_at_all():
    # Rounds open at 0 and 6 s.
    seen = _seen(
        THREE,
        lambda world: world.until_round(1),
        lambda world: world.until_time(2.5),
        lambda world: world.until_time(1.0),
        lambda world: world.after(0.5),
        lambda world: world.until_round(2),
        lambda world: world.until_round(1),
    )
    assert seen == [(1, 0.0, 1), (1, 2.5, 2.5), (1, 2.5, 2.5), (1, 3.0, 3.0), (2, 6.0, 2), (2, 6.0, 2)]


def test_a_script_acts_at_a_time_before_everything_else_of_that_instant():
    # Client 0 ends its computing at exactly 1 s: its upload already takes 10 s, though the script has waited for less long.
    def script(world):
        yield world.until_time(0.5)
        yield world.until_time(1.0)
        world.change("uplink.delay", value_s=10.0)

    rows = recorded(THREE | {"rounds": 1}, script)
    assert [row.upload_end_s for row in rows.updates] == [11.0, 12.0, 14.0]


def test_a_script_acts_before_anything_of_a_round():
    def script(world):
        yield world.until_round(2)
        world.change("compute.delay", value_s=0.5)

    rows = recorded(THREE, script)
    assert [row.end_s for row in rows.rounds] == [6.0, 8.5]


def test_a_script_hears_of_deliveries_one_after_the_other():
    # All three end at 3 s, within one event each: none is missed, and the script is told before the round closes.
    tables = THREE | {"rounds": 2, "compute": {"delay": {"kind": "constant", "value_s": 1.0}}}
    seen = _seen(tables, *[lambda world: world.until_delivery()] * 4)
    assert [(round, time_s, told.client) for round, time_s, told in seen] == [(1, 3.0, 0), (1, 3.0, 1), (1, 3.0, 2), (2, 6.0, 0)]
    assert seen[0][2].latency_s == 3.0


def test_a_script_that_hears_of_a_delivery_acts_before_what_else_happens_then() -> None:
    # Client 0 delivers at 3 s; client 1 ends its computing in the same instant, after it: its upload takes 10 s already.
    def script(world):
        yield world.until_delivery()
        world.change("uplink.delay", value_s=10.0)

    tables = THREE | {
        "rounds": 1,
        "clients": {"count": 2},
        "server": {"per_round": 2},
        "downlink": {"delay": {"kind": "constant", "value_s": [0.0, 1.5]}},
        "compute": {"delay": {"kind": "constant", "value_s": [1.0, 1.5]}},
    }
    assert [row.upload_end_s for row in recorded(tables, script).updates] == [3.0, 13.0]


def test_rounds_that_take_no_time_are_told_of_before_the_next_one_opens():
    tables = {
        "name": "still",
        "rounds": 3,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 2},
        "scheduler": {"kind": "round-robin"},
    }
    wait = lambda world: world.until_delivery()  # noqa: E731
    seen = _seen(tables, wait, wait, wait, lambda world: world.until_round(2), wait)
    assert [(round, getattr(told, "client", told)) for round, _, told in seen] == [(1, 0), (1, 1), (2, 0), (2, 2), (2, 1)]


def test_deliveries_are_counted_of_some_clients_and_over_some_channels():
    # Deliveries of round 1 at 3, 4 and 6 s, of round 2 at 9, 10 and 12 s.
    seen = _seen(THREE, lambda world: world.until_delivery(clients=[1, 2], count=3))
    assert [(time_s, told.client, told.round) for _, time_s, told in seen] == [(10.0, 1, 2)]
    tables = THREE | {"channels": {"count": 3, "channel": {"kind": "bernoulli", "success": [1.0, 0.0, 1.0]}}}
    tables |= {"scheduler": {"kind": "round-robin"}}
    seen = _seen(tables, lambda world: world.until_loss(channels=1), lambda world: world.until_loss(cause="sub-channel"))
    assert [(told.channel, told.outcome, told.cause, told.round) for _, _, told in seen] == [
        (1, "lost", "sub-channel", 1),
        (1, "lost", "sub-channel", 2),
    ]


def test_whichever_comes_first_is_given():
    def script(world):
        limit = world.until_time(3.5)
        delivery = world.until_delivery()
        came = []
        for _ in range(3):
            met = yield delivery | limit | world.until_round(7)
            came.append((met is limit, world.time_s))
        seen.extend(came)

    seen: list[tuple[bool, float]] = []
    recorded(THREE, script)
    assert seen == [(False, 3.0), (True, 3.5), (True, 3.5)]


@pytest.mark.parametrize("wait", [{"channels": 0}, {"channels": 0, "clients": 0}])
def test_a_declared_change_wakes_the_script_as_its_round_closes(wait):
    # Sub-channel 0 is lost from round 21 on; a CUSUM that needs few observations declares it.
    tables = {
        "name": "declared",
        "rounds": 60,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous"},
        "channels": {
            "count": 2,
            "states": {"kind": "piecewise-stationary", "starts": [21], "means": [[1.0, 1.0], [0.0, 1.0]]},
        },
        "uplink": {"delay": {"kind": "constant", "value_s": 1.0}},
        "scheduler": {"kind": "glr-cucb", "alpha": 0.2},
    }
    seen: list[Any] = []

    def script(world):
        seen.append((yield world.until_change_declared(**wait)))
        seen.append((world.round, world.time_s))

    rows = recorded(tables, script)
    first = next(row for row in rows.detections if row.channel == 0)
    assert (seen[0].round, seen[0].time_s, seen[0].channels) == (first.round, first.time_s, (0,))
    assert seen[1] == (first.round, float(first.round))


@pytest.mark.parametrize(
    ("tables", "wait", "remedy"),
    [
        ({}, {}, 'give [scheduler] kind = "glr-cucb" or give [policy] a detector'),
        ({"policy": {"kind": "pause"}}, {"clients": 0}, "give [policy] a detector"),
        (
            {
                "channels": {"count": 3, "channel": {"kind": "bernoulli", "success": 1.0}},
                "scheduler": {"kind": "aoi-aware", "scheduler": {"kind": "cucb"}},
                "policy": {"kind": "pause", "detector": {"kind": "cusum"}},
            },
            {"channels": 0},
            'give [scheduler] kind = "glr-cucb"',
        ),
    ],
)
def test_a_wait_for_what_nothing_declares_is_refused(tables, wait, remedy):
    def script(world):
        yield world.until_change_declared(**wait)

    with pytest.raises(UserError, match=re.escape(f"until_change_declared: nothing here declares such a change; {remedy}")):
        recorded(THREE | tables, script)


def test_a_policys_detector_declares_as_well() -> None:
    policy = {"kind": "pause", "alpha": 1.0, "gamma": 0.0, "tau_min_s": 0.25}
    policy["detector"] = {"kind": "page-hinkley", "drift": 0.1, "threshold": 0.5}
    seen: list[Any] = []

    def script(world):
        yield world.until_time(10.0)
        world.change("uplink.delay", value_s=2.0, clients="near")
        seen.append((yield world.until_change_declared(clients="near")))
        seen.append((world.round, world.time_s))
        seen.append((yield world.until_change_declared(clients="far") | world.after(5.0)))

    run = netsim.run(netsim.load("scripted_latency", {"policy": policy, "rounds": 60}), script=script)
    ends = run.rounds.set_index("round")["end_s"]
    declared = seen[0]
    assert declared.clients
    assert max(declared.clients) < 10
    assert declared.channels == ()
    assert seen[1] == (declared.round, declared.time_s) == (declared.round, ends[declared.round])
    # It was declared as soon as a round took longer: of a client that was selected in it.
    took = run.clients[(run.clients["round"] == declared.round) & run.clients["client"].isin(declared.clients)]
    assert (took["outcome_s"] - took["selected_s"] == 2.0).all()


REFUSED: dict[str, tuple[Any, str]] = {
    "nonsense": (lambda world: 5, "yields 5; yield what a wait of the world returns, such as world.until_round(50)"),
    "round": (lambda world: world.until_round(0), "number = 0: must be a whole number from 1 on"),
    "slot": (lambda world: world.until_slot(1), "until_slot: this server has no slots; wait for a round"),
    "time": (lambda world: world.until_time(float("nan")), "time_s = nan: must be a number of seconds, >= 0 and finite"),
    "after": (lambda world: world.after(-1), "seconds = -1: must be a number of seconds, >= 0 and finite"),
    "group": (lambda world: world.until_delivery(clients="nera"), "clients = 'nera': unknown group; known: all"),
    "client": (lambda world: world.until_delivery(clients=3), "clients = 3: must be a number from 0 to 2"),
    "channels": (lambda world: world.until_delivery(channels=0), "this scenario has no sub-channels"),
    "outcome": (lambda world: world.until_end("gone"), "outcome = 'gone': must be one of delivered, lost, late, aborted"),
    "target": (lambda world: world.change("compute.dela", value_s=1), "there is nothing of that name that a script can"),
    "parameter": (
        lambda world: world.change("compute.delay", value=1),
        "compute.delay: the law has no parameter 'value'; did you mean 'value_s'?",
    ),
    "nothing": (lambda world: world.change("compute.delay"), "compute.delay: changes nothing; name a parameter and its value"),
    "value": (lambda world: world.change("compute.delay", value_s=-1.0), "compute.delay.value_s = -1.0: must be finite and >= 0"),
    "entities": (
        lambda world: world.change("compute.delay", channels=[0], value_s=1.0),
        "channels: compute.delay has none; its parameters may differ between clients",
    ),
    "error": (lambda world: 1 / 0, "ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_names_script_round_time_and_line(case: str) -> None:
    wrong, told = REFUSED[case]

    def script(world):
        yield world.until_time(2.5)
        yield wrong(world)

    with pytest.raises(UserError) as caught:
        recorded(THREE, script)
    text = str(caught.value)
    assert text.startswith("script 'in_memory:script"), text
    assert f", round 1, 2.5 s, {__file__}, line " in text, text
    assert told in text, text


def test_a_mistake_before_the_first_wait_and_one_as_a_round_opens_are_told_alike():
    def at_once(world):
        world.until_round("x")
        yield world.until_round(1)

    def in_a_process(world):
        yield world.until_round(2)
        raise RuntimeError("broken\nin two lines")

    with pytest.raises(UserError, match=r"round 0, 0 s, .*number = 'x'"):
        recorded(THREE, at_once)
    with pytest.raises(UserError, match=r"round 2, 6 s, .*line \d+: RuntimeError: broken$"):
        recorded(THREE, in_a_process)


def test_a_script_that_waits_for_what_has_been_for_ever_is_refused():
    def script(world):
        yield world.until_time(1.0)
        while True:
            yield world.until_round(1)

    with pytest.raises(UserError, match="waited 100,000 times for events of the past"):
        recorded(THREE, script)


def test_what_a_script_does_as_it_is_closed_does_not_count():
    def script(world):
        slow = world.change("compute.delay", value_s=2.0)
        try:
            yield world.until_time(1e6)
        finally:
            slow.restore()

    assert [act.action for act in recorded(THREE, script).acts] == ["change"]


def test_a_change_that_is_taken_back_twice_is_refused():
    def script(world):
        slow = world.change("compute.delay", value_s=2.0)
        slow.restore()
        slow.restore()
        yield world.until_round(1)

    with pytest.raises(UserError, match="restore: this was taken back already; do it once"):
        recorded(THREE, script)


def test_a_wait_for_both_where_nothing_declares_either_names_both_remedies() -> None:
    def script(world):
        yield world.until_change_declared(channels=0, clients=0)

    remedy = 'nothing here declares such a change; give [scheduler] kind = "glr-cucb" or give [policy] a detector'
    with pytest.raises(UserError, match=re.escape(remedy)):
        recorded(THREE, script)
