"""The tables of energy: what is refused, by its key and with the remedy, and which forms are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

SOME = {"idle_w": 1.0, "compute_w": 4.0}
ALWAYS = {"kind": "always"}
NEVER = {"kind": "markov", "mean_on_s": 0.0, "mean_off_s": 1.0}


def tables(energy: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "energy",
        "rounds": 2,
        "clients": {"count": 4, "groups": [{"name": "old", "share": 0.5}, {"name": "new", "share": 0.5}]},
        "server": {"per_round": 2},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "energy": energy,
    }


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        ({}, r"energy.idle_w = 0: nothing draws any power; give idle_w, .* or leave the table out"),
        ({"idle_w": 0, "battery": {"capacity_j": 5.0}}, r"energy.battery: nothing draws on it; give idle_w"),
        ({"compute_w": {"by_group": {"old": 0.0, "new": 0}}}, r"energy.idle_w = 0: nothing draws any power"),
        (SOME | {"battery": {}}, r"energy.battery.capacity_j: is missing; give it, or a column battery_j"),
        (SOME | {"send_w": -1.0}, r"energy.send_w = -1.0 for client 0: must be >= 0 watts and finite"),
        (SOME | {"compute_w": 1e308}, r"energy.compute_w = 1e\+308 for client 0: must be at most 1e\+06 watts"),
        (SOME | {"off_w": [0.0, 1.0, -2.0, 0.0]}, r"energy.off_w = -2.0 for client 2: must be >= 0 watts"),
        (SOME | {"watts": 1.0}, r"energy.watts = 1.0: unknown key"),
        (SOME | {"battery": {"capacity_j": 0.0}}, r"energy.battery.capacity_j = 0.0 for client 0: must be > 0 joules"),
        (SOME | {"battery": {"capacity_j": 5.0, "initial": 1.5}}, r"energy.battery.initial = 1.5 for client 0: must be a share"),
        (SOME | {"battery": {"capacity_j": 5.0, "threshold": 0.0}}, r"battery.threshold = 0.0 for client 0: must be a share"),
        (SOME | {"battery": {"capacity_j": 5.0, "charge_w": 2.0}}, r"battery.charge_w = 2.0: is supplied at no time"),
        (SOME | {"battery": {"capacity_j": 5.0, "charging": ALWAYS}}, r"battery.charging.kind = .always.: charges nothing"),
        (
            SOME | {"battery": {"capacity_j": 5.0, "charge_w": -2.0, "charging": ALWAYS}},
            r"energy.battery.charge_w = -2.0 for client 0: must be >= 0 watts",
        ),
        (
            SOME | {"battery": {"capacity_j": 5.0, "charge_w": 1.0, "charging": NEVER}},
            r"energy.battery.charging.mean_on_s = 0.0: must be finite",
        ),
    ],
)
def test_refused_by_key_with_the_remedy(energy: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(parse(tables(energy)), learner=False)


def test_an_outage_cannot_be_called_as_an_empty_battery_is() -> None:
    with pytest.raises(UserError, match=r"outages.0.name = .*battery.*another cause"):
        build(parse(tables(SOME) | {"outages": [{"name": "battery", "from_s": 1.0}]}))


def test_every_number_may_differ_between_clients() -> None:
    shares = {"initial": {"from": 0.0, "to": 1.0}, "threshold": {"by_group": {"old": 0.5, "new": 0.25}}}
    battery = {"capacity_j": [1.0, 2.0, 3.0, 4.0], "charge_w": {"by_group": {"old": 1.0, "new": {"from": 0.0, "to": 2.0}}}}
    energy = {"idle_w": {"by_group": {"old": 1.0, "new": 0.5}}, "battery": battery | shares | {"charging": ALWAYS}}
    found = build(parse(tables(energy)), learner=False).server.clients.energy
    assert found is not None
    assert found.batteries is not None
    np.testing.assert_allclose(found.powers.idle_w, [1.0, 1.0, 0.5, 0.5])
    np.testing.assert_allclose(found.batteries.level_j, [0.25, 1.0, 2.25, 4.0])
    np.testing.assert_allclose(found.batteries.threshold_j, [0.5, 1.0, 0.75, 1.0])
    np.testing.assert_allclose(found.batteries.charge_w, [1.0, 1.0, 1.0, 2.0])
    assert found.batteries.charging.all()


def test_powers_and_capacities_may_come_from_a_table_of_devices(tmp_path: Path) -> None:
    lines = ["class,share,samples_per_s,idle_w,compute_w,battery_j", "phone,0.5,10,0.25,4,50", "laptop,0.5,10,2,30,900"]
    (tmp_path / "devices.csv").write_text("\n".join(lines) + "\n")
    scenario = tables({"battery": {}})
    scenario["clients"] = {"count": 4, "devices": str(tmp_path / "devices.csv")}
    scenario |= {"compute": {}, "work": {"steps": 5, "batch_size": 4}}
    found = build(parse(scenario), learner=False).server.clients.energy
    assert found is not None
    assert found.batteries is not None
    assert (found.powers.compute_w.tolist(), found.batteries.capacity_j.tolist()) == ([4, 4, 30, 30], [50, 50, 900, 900])


def test_without_the_table_energy_is_not_counted() -> None:
    scenario = tables(SOME)
    del scenario["energy"]
    assert build(parse(scenario), learner=False).server.clients.energy is None
