"""A change point may change any number of a law's parameters, again and again: each stretch is the law written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.channels import GilbertElliott
from models.laws.delays import Gaussian
from netsim.core.streams import Streams
from scenarios.registry.components import per_client_parameters
from scenarios.registry.kinds import BUILT_IN
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import Clients
from scenarios.wiring.clients.population import Context, Population
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.simulation import build

CLIENTS = 4
EVERYONE = np.arange(CLIENTS)
# Four points of each law of a link: at first, and as three changes in a row leave it.
DELAYS: dict[str, list[dict[str, Any]]] = {
    "constant": [{"value_s": float(i)} for i in range(1, 5)],
    "gaussian": [{"mean_s": 2.0 + i, "std_s": 0.1 + 0.2 * i, "floor_s": 0.5 * i} for i in range(4)],
    "shifted-exponential": [{"shift_s": 1.0 + i, "mean_excess_s": 0.5 * (i + 1)} for i in range(4)],
    "log-normal": [{"median_s": 1.0 + i, "sigma": 0.1 * (i + 1)} for i in range(4)],
    "gamma": [{"mean_s": 1.0 + i, "shape": 0.5 * (i + 1)} for i in range(4)],
    "weibull": [{"scale_s": 1.0 + i, "shape": 0.5 * (i + 1)} for i in range(4)],
    "uniform": [{"low_s": 0.5 * i, "high_s": 1.0 + i} for i in range(4)],
    "empirical": [{"values_s": [1.0 + i, 2.0 + 3 * i]} for i in range(4)],
}
CHANNELS: dict[str, list[dict[str, Any]]] = {
    "bernoulli": [{"success": 0.9 - 0.2 * i} for i in range(4)],
    "gilbert-elliott": [
        {"to_bad": 0.1 + 0.2 * i, "to_good": 0.9 - 0.2 * i, "loss_good": 0.05 * i, "loss_bad": 1.0 - 0.1 * i} for i in range(4)
    ],
    "block-fading": [{"distance_km": 0.1 * (i + 1), "transmit_power_dbm": 20.0 - i, "threshold_db": 1.0 * i} for i in range(4)],
}
CASES = [("delay", kind, points) for kind, points in DELAYS.items()]
CASES += [("channel", kind, points) for kind, points in CHANNELS.items()]
PLACES = ("uplink", "downlink", "compute", "channels", "opinions", "peers")
# Local training has no channel.
HERE = [(place, *case) for place in PLACES for case in CASES if not (place == "compute" and case[0] == "channel")]
DRAWN = [case for case in HERE if case[2] != "empirical"]


def names(cases: list[Any]) -> list[str]:
    return [f"{place}-{kind}" for place, _, kind, _ in cases]


def scenario(place: str, section: dict[str, Any]) -> Scenario:
    """A study in which `place` is written as `section`."""
    tables: dict[str, Any] = {"name": "changing", "rounds": 100, "time_limit_s": 100.0, "clients": {"count": CLIENTS}}
    if place in ("opinions", "peers"):
        synthetic = {"opinions": {"synthetic": {}}, "peers": {"topology": {"kind": "complete"}}}
        tables |= {"server": {"kind": "fl-da", "per_round": 2}, "policy": {"kind": "bp-index"}, **synthetic}
        tables[place] = tables[place] | section
    elif place == "channels":
        tables |= {"server": {"kind": "asynchronous"}, "scheduler": {"kind": "random"}, "channels": {"count": CLIENTS, **section}}
    else:
        tables |= {"server": {"per_round": 2}, "policy": {"kind": "random"}, place: section}
    return parse(tables)


def law_of(place: str, what: str, section: dict[str, Any], seed: int = 1) -> Any:
    study = scenario(place, section)
    context = Context(Population(Clients(count=CLIENTS)), Streams(seed), study.rounds, study.time_limit_s)
    return (delay_timeline if what == "delay" else channel_timeline)(getattr(study, place), place, context)


def answers(law: Any) -> np.ndarray:
    """What tells two laws apart: their quantiles, or what becomes of transmissions at given uniforms."""
    u = np.random.default_rng(3).random((200, CLIENTS))
    if hasattr(law, "quantile"):
        return np.array([law.quantile(row, EVERYONE) for row in u])
    if isinstance(law, GilbertElliott):
        law.load_state_dict({})
    rows = []
    for steps, row in zip(u[::2], u[1::2], strict=True):
        law.step(steps)
        rows.append(law.good(row, EVERYONE))
    return np.array(rows)


def same_law(changed: Any, written: Any) -> bool:
    means = "mean_s" if hasattr(changed, "mean_s") else "success_probability"
    alike = np.allclose(getattr(changed, means)(EVERYONE), getattr(written, means)(EVERYONE), rtol=1e-12)
    return bool(alike) and np.allclose(answers(changed), answers(written), rtol=1e-12)


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
@pytest.mark.parametrize(("place", "what", "kind", "points"), HERE, ids=names(HERE))
def test_all_parameters_change_at_once_three_times_in_a_row(place, what, kind, points, unit):
    at = "at_round" if unit == "rounds" else "at_s"
    changes = [{at: 10 * (i + 1), what: point} for i, point in enumerate(points[1:])]
    law = law_of(place, what, {what: {"kind": kind, **points[0]}, "changes": changes})
    for i, point in enumerate(points):
        written = law_of(place, what, {what: {"kind": kind, **point}}).at(1, 0.0)[0]
        for now in (10 * i + 1, 10 * i + 9):
            present = law.at(now, 0.0)[0] if unit == "rounds" else law.at(1, float(now))[0]
            assert same_law(present, written), f"stretch {i}"
    # That the comparison can fail: no two stretches are alike.
    assert not same_law(law.at(1, 0.0)[0], law.at(100, 100.0)[0])


def test_every_built_in_law_is_tried():
    assert set(DELAYS) == set(BUILT_IN["delay"])
    assert set(CHANNELS) == set(BUILT_IN["channel"]) - {"perfect"}
    for group, laws in (("delay", DELAYS), ("channel", CHANNELS)):
        for kind, points in laws.items():
            assert per_client_parameters(group, kind) <= set(points[0])


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
@pytest.mark.parametrize(("place", "what", "kind", "points"), DRAWN, ids=names(DRAWN))
def test_drawn_changes_multiply_all_parameters_by_one_factor(place, what, kind, points, unit):
    first = points[1]
    drawn = {"count": 3, "unit": unit, "factor_low": 0.5, "factor_high": 0.9}
    every = drawn | {"parameter": [f"{what}.{name}" for name in first]}
    law = law_of(place, what, {what: {"kind": kind, **first}, "random_changes": every})
    # A duration of one second takes on the factors themselves.
    one = {"delay": {"kind": "constant", "value_s": 1.0}, "random_changes": drawn | {"parameter": "delay.value_s"}}
    unity = law_of(place, "delay", one)
    changed, factors = stretches(law, unit), stretches(unity, unit)
    assert [start for start, _ in changed] == [start for start, _ in factors]
    assert len(changed) == 3
    for (_, present), (_, factor_law) in zip(changed, factors, strict=True):
        factor = float(factor_law.mean_s(EVERYONE)[0])
        assert 0.5 <= factor <= 0.9
        written = law_of(place, what, {what: {"kind": kind, **{name: value * factor for name, value in first.items()}}})
        assert same_law(present, written.at(1, 0.0)[0])


def stretches(law: Any, unit: str) -> list[tuple[float, Any]]:
    """Each change point with the law from there on."""
    if unit == "rounds":
        laws = [law.at(r, 0.0)[0] for r in range(1, 101)]
        return [(r + 1, laws[r]) for r in range(1, 100) if laws[r] is not laws[r - 1]]
    found, now = [], 0.0
    while (until := law.at(1, now)[1]) < math.inf:
        now = until
        found.append((now, law.at(1, now)[0]))
    return found


def test_a_delay_and_a_channel_that_are_drawn_together_change_together():
    section = {
        "delay": {"kind": "gaussian", "mean_s": 2.0, "std_s": 0.01},
        "channel": {"kind": "bernoulli", "success": 0.9},
        "random_changes": {"count": 4, "parameter": ["delay.mean_s", "channel.success"], "factor_low": 0.5, "factor_high": 1.0},
    }
    delay = stretches(law_of("uplink", "delay", section), "rounds")
    channel = stretches(law_of("uplink", "channel", section), "rounds")
    assert [start for start, _ in delay] == [start for start, _ in channel]
    assert len(delay) == 4
    for (_, one), (_, other) in zip(delay, channel, strict=True):
        assert one.mean_s(EVERYONE)[0] / 2.0 == pytest.approx(other.success_probability(EVERYONE)[0] / 0.9, rel=1e-12)


def test_parameters_of_some_clients_and_of_several_kinds_change_together():
    delay = {
        "kind": "by-group",
        "groups": {
            "near": {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.1, "floor_s": 0.5},
            "far": {"kind": "shifted-exponential", "shift_s": 3.0, "mean_excess_s": 1.0},
        },
    }
    groups = [{"name": "near", "count": 2}, {"name": "far", "count": 2}]
    changes = [
        {"at_s": 1.0, "clients": [1, 2], "delay": {"mean_s": 2.0, "std_s": 0.2, "shift_s": 4.0, "mean_excess_s": 0.5}},
        {"at_s": 2.0, "clients": "near", "delay": {"std_s": [0.3, 0.4], "mean_s": [5.0, 6.0]}},
        {"at_s": 3.0, "delay": {"floor": "resample", "mean_s": 7.0, "std_s": 0.5, "floor_s": 0.25}},
    ]
    tables = {"name": "x", "rounds": 9, "clients": {"count": 4, "groups": groups}, "server": {"per_round": 1}}
    study = parse(tables | {"policy": {"kind": "all"}, "uplink": {"delay": delay, "changes": changes}})
    context = Context(Population(study.clients), Streams(1), 9, None)
    law = delay_timeline(study.uplink, "uplink", context)

    def gaussian(client: int, now: float, **given: Any) -> None:
        expected = Gaussian(**{"floor_s": 0.5, **given})
        present = law.at(1, now)[0]
        for u in (0.01, 0.5, 0.99):
            assert present.quantile(np.array([u]), np.array([client])) == expected.quantile(np.array([u]), np.array([0]))

    gaussian(0, 0.0, mean_s=1.0, std_s=0.1)
    gaussian(0, 1.0, mean_s=1.0, std_s=0.1)
    gaussian(1, 1.0, mean_s=2.0, std_s=0.2)
    gaussian(0, 2.0, mean_s=5.0, std_s=0.3)
    gaussian(1, 2.0, mean_s=6.0, std_s=0.4)
    gaussian(1, 3.0, mean_s=7.0, std_s=0.5, floor_s=0.25, floor="resample")
    assert law.at(1, 0.0)[0].mean_s(np.array([2, 3])).tolist() == [4.0, 4.0]
    assert law.at(1, 1.0)[0].mean_s(np.array([2, 3])).tolist() == [4.5, 4.0]
    assert law.at(1, 3.0)[0].mean_s(np.array([2, 3])).tolist() == [4.5, 4.0]


REFUSED = {
    "the second parameter is unknown": (
        {"changes": [{"at_round": 2, "delay": {"mean_s": 1.0, "st_s": 0.3}}]},
        r"uplink\.changes\.0\.delay: the law has no parameter 'st_s'; did you mean 'std_s'\?",
    ),
    "the second value is not allowed": (
        {"changes": [{"at_round": 2, "delay": {"mean_s": 1.0, "std_s": -0.3}}]},
        r"uplink\.changes\.0\.delay\.std_s = -0\.3: must be finite and >= 0",
    ),
    "one of the drawn is unknown": (
        {"random_changes": {"count": 1, "parameter": ["delay.mean_s", "delay.st_s"]}},
        r"uplink\.random_changes\.parameter = 'delay\.st_s': the law has no parameter 'st_s'; did you mean 'std_s'",
    ),
    "one is drawn twice": (
        {"random_changes": {"count": 1, "parameter": ["delay.mean_s", "delay.mean_s"]}},
        r"uplink\.random_changes\.parameter = 'delay\.mean_s': is named twice; name each once",
    ),
    "none is named": (
        {"random_changes": {"count": 1, "parameter": []}},
        r"uplink\.random_changes\.parameter = \[\]: must be a string, or must hold at least 1",
    ),
    "the drawn of a channel leaves what is allowed": (
        {"random_changes": {"count": 1, "parameter": ["delay.mean_s", "channel.success"]}},
        r"uplink\.random_changes\.factor_high = 2\.0: takes channel\.success out of what is allowed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_change_is_refused_by_its_name(case):
    section = {"delay": {"kind": "gaussian", "mean_s": 2.0, "std_s": 0.5}, "channel": {"kind": "bernoulli", "success": 0.9}}
    tables = {"name": "x", "rounds": 9, "clients": {"count": 4}, "server": {"per_round": 1}, "policy": {"kind": "all"}}
    with pytest.raises(UserError, match=REFUSED[case][1]):
        build(parse(tables | {"uplink": section | REFUSED[case][0]}))
