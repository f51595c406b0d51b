"""Drawn changes of many clients: laws over time share what does not change."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import override, parse
from scenarios.runs.run import go_on, run
from scenarios.wiring import piecewise
from scenarios.wiring.simulation import build
from tests.helpers.rough_scenarios import rough
from tests.reliability.swarm import different


@pytest.mark.slow
def test_drawn_changes_of_many_clients_hold_no_array_a_change() -> None:
    count = 600
    law = {"kind": "gaussian", "mean_s": {"from": 1.0, "to": 2.0}, "std_s": 0.0}
    drawn = {"count": count, "parameter": "delay.mean_s", "horizon": 10**6}
    tables = rough(clients={"count": count}, uplink={"delay": law, "random_changes": drawn})
    build(parse(override(tables, {"clients.count": 20})))  # imports what is needed
    tracemalloc.start()
    built = build(parse(tables))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6  # an array of 64-bit numbers for each change would be 2.9 MB
    drawn_laws, everyone = built.delays["upload"].laws, np.arange(count)
    assert len(drawn_laws) == count + 1
    first = drawn_laws[0].mean_s(everyone)
    factors = [float((drawn_laws[j].mean_s(everyone) / first).mean()) for j in range(1, count + 1, 8)]
    assert 0.5 <= min(factors) < 0.52
    assert 1.9 < max(factors) <= 2.0
    for j in (1, 9, count - 7):
        assert np.allclose(drawn_laws[j].mean_s(everyone), factors[j // 8] * first, rtol=1e-12)
    assert drawn_laws[-1].mean_s(everyone).tolist() == drawn_laws[count].mean_s(everyone).tolist()


CHANNEL = {"kind": "gilbert-elliott", "to_bad": {"from": 0.1, "to": 0.4}, "to_good": 0.3, "loss_bad": 0.8}
NOISE = {"kind": "log-normal", "sigma": {"from": 0.1, "to": 0.4}}
RATE = {"kind": "constant", "bytes_per_s": {"from": 1e5, "to": 3e5}}
WAVERING = {"kind": "gauss-markov", "mean_bytes_per_s": 2e5, "std_bytes_per_s": 5e4, "floor_bytes_per_s": 1e4, "memory": 0.9}
VARYING: dict[str, tuple[str, dict[str, Any]]] = {
    "channel.to_bad": ("uplink", {"channel": CHANNEL}),
    "noise.sigma": ("compute", {"seconds_per_sample": {"from": 0.1, "to": 0.2}, "noise": NOISE}),
    "bandwidth.bytes_per_s": ("uplink", {"bandwidth": RATE}),
    "bandwidth.scale": ("downlink", {"bandwidth": WAVERING | {"scale": {"from": 0.5, "to": 2.0}}}),
}


def varying(parameter: str, clients: int, changes: int, unit: str = "rounds") -> dict[str, Any]:
    section, given = VARYING[parameter]
    drawn = {"count": changes, "parameter": parameter, "horizon": 10**6 if changes > 100 else 40, "unit": unit}
    tables = rough(clients={"count": clients}, uplink={}, rounds=40, work={"steps": 3, "batch_size": 10})
    tables["payload"] = {"down_bytes": 50_000, "up_bytes": 100_000}
    return tables | {section: given | {"random_changes": drawn}}


EVERY_UNIT = [*((parameter, "rounds") for parameter in VARYING), *((name, "seconds") for name in VARYING if "bandwidth" in name)]


BESIDES = ("nothing", "written changes", "a script")


def beside(tables: dict[str, Any], parameter: str, unit: str, besides: str) -> dict[str, Any]:
    """The scenario with further changes of the law that is drawn: written ones, of some clients, or those of a script."""
    section, (what, name) = VARYING[parameter][0], parameter.split(".")
    path, new = f"{section}.{what}", {what: {name: 0.3 if what != "bandwidth" else 1.5}}
    if besides == "a script":
        path = f"{section}.speed" if what == "noise" else path
        return tables | {"script": {"kind": f"{__name__}:twice", "path": path, "name": name}}
    written = [{f"at_{'s' if unit == 'seconds' else 'round'}": at, "clients": [3, 4]} | new for at in (4, 9, 9, 16, 23, 31)]
    return tables if besides == "nothing" else override(tables, {f"{section}.changes": written})


def twice(world: Any, *, path: str, name: str) -> Any:
    for round, factor in ((5, 1.1), (20, 0.9)):
        yield world.until_round(round)
        change = world.scale(path, clients=[1, 2], **{name: factor})
        yield world.until_round(round + 9)
        change.restore()


CASES = [
    pytest.param(*one, besides, marks=() if besides == "nothing" or one == EVERY_UNIT[0] else pytest.mark.slow)
    for one in EVERY_UNIT
    for besides in BESIDES
]


@pytest.mark.parametrize(
    ("parameter", "unit", "besides"), [*CASES[:1], *(pytest.param(*case.values, marks=pytest.mark.slow) for case in CASES[1:])]
)
def test_drawn_changes_of_other_laws_hold_no_array_a_change_either(parameter: str, unit: str, besides: str) -> None:
    scenario = parse(beside(varying(parameter, 2000, 2000, unit), parameter, unit, besides))
    tracemalloc.start()
    build(scenario)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("parameter", "unit", "besides"), CASES)
def test_laws_that_are_made_when_asked_for_are_those_that_are_kept(
    parameter: str, unit: str, besides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The states of channels go on over each change, also where a run goes on from a checkpoint.
    scenario = parse(beside(varying(parameter, 12, 15, unit), parameter, unit, besides))

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 17:
            raise KeyboardInterrupt

    run(scenario, tmp_path / "made")
    run(scenario, tmp_path / "resumed", after_round=interrupt)
    go_on(tmp_path / "resumed")
    monkeypatch.setattr(piecewise, "_build_on_demand", piecewise._build_all)
    run(scenario, tmp_path / "kept")
    assert different(tmp_path / "made", tmp_path / "kept") == ""
    assert different(tmp_path / "made", tmp_path / "resumed") == ""
