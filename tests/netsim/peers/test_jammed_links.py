"""Every kind of jammer on sub-channels and on links between clients: budget, cost and what was destroyed, in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

BUDGET = 40
LAWS: dict[str, dict[str, Any]] = {
    "sweep": {"width": 2},
    "pulse": {"on": 2, "off": 1},
    "random": {},
    "file": {"path": "plan.csv"},
    "reactive": {"target": "used"},
}
CHANNELS: dict[str, Any] = {
    "name": "channels",
    "rounds": 120,
    "clients": {"count": 3},
    "server": {"kind": "asynchronous", "wait_for_compute": True},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.1}},
    "channels": {"count": 5, "delay": {"kind": "constant", "value_s": 0.1}, "states": {"kind": "stationary"}},
    "scheduler": {"kind": "random"},
}
LINKS: dict[str, Any] = {
    "name": "links",
    "rounds": 6,
    "clients": {"count": 8},
    "server": {"kind": "fl-da", "per_round": 3},
    "slots": {"rounds": 2},
    "policy": {"kind": "bp-index"},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}}},
    "peers": {
        "topology": {"kind": "grid"},
        "delay": {"kind": "shifted-exponential", "shift_s": 0.01, "mean_excess_s": 0.02},
        "max_resends": 9,
    },
    "output": {"messages_table": True},
}


def jammer(kind: str, **more: Any) -> dict[str, Any]:
    in_seconds = {"dwell_s": 0.15} if kind in ("sweep", "random", "file") else {}
    return {"name": kind, "law": {"kind": kind} | LAWS[kind], "budget": BUDGET, "at_once": 2} | in_seconds | more


def played(folder: Path, tables: dict[str, Any]) -> dict[str, pd.DataFrame]:
    run(parse(tables), folder / "run")
    return {path.stem: pq.read_table(path).to_pandas() for path in (folder / "run").glob("*.parquet")}


@pytest.fixture(autouse=True)
def _plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.csv").write_text("".join(f"{dwell % 5},{(dwell + 2) % 5}\n" for dwell in range(400)))


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("kind", [*LAWS, "all"])
@pytest.mark.parametrize("world", [CHANNELS, LINKS], ids=["channels", "links"])
def test_cost_and_damage_are_counted_alike_in_every_table(world: dict[str, Any], kind: str, tmp_path: Path) -> None:
    kinds = list(LAWS) if kind == "all" else [kind]
    tables = played(tmp_path, world | {"jammers": [jammer(one) for one in kinds]})
    jams, rounds = tables["jams"], tables["rounds"]
    assert set(jams["jammer"]) == set(kinds)
    # Power: at most two at once. Budget: at most as many as were allowed, in all.
    cost = jams.groupby("jammer", observed=True).size()
    assert (cost <= BUDGET).all()
    assert (jams.groupby(["jammer", "start_s", "round"], observed=True).size() <= 2).all()
    # A slot's consensus phase is short: what counts rounds does not come to the end of its budget there.
    assert world is LINKS or (cost.drop("reactive", errors="ignore") == BUDGET).all()
    assert len(jams) == rounds["jam_dwells"].sum()
    assert jams["hit"].sum() == rounds["jammed"].sum() > 0
    assert (jams["destroyed"] <= jams["hit"]).all()
    if world is CHANNELS:
        assert jams["destroyed"].sum() == (tables["clients"]["cause"] == "jammed").sum()
        assert jams["hit"].sum() == (tables["clients"]["jammed"] == True).sum()  # noqa: E712 - null where nothing was sent
    else:
        # What was hit and still on its way as the run ended has no cause yet.
        still = (tables["messages"]["outcome"] == "in_flight").sum()
        assert 0 <= jams["hit"].sum() - (tables["messages"]["cause"] == "jammed").sum() <= still


def test_the_links_in_reach_are_named_by_their_ends(tmp_path: Path) -> None:
    pair = [0, 1]
    tables = played(tmp_path, LINKS | {"jammers": [jammer("random", links=[pair], at_once=1)]})
    lost = tables["messages"][tables["messages"]["cause"] == "jammed"]
    assert len(lost) > 0
    assert all({source, target} == set(pair) for source, target in zip(lost["source"], lost["target"], strict=True))
    assert tables["jams"]["channel"].nunique() == 1


def test_a_run_with_jammed_links_goes_on_from_a_saved_state() -> None:
    study = parse(LINKS | {"jammers": [jammer(kind) for kind in LAWS]})
    whole, part, rest = (build(study).simulation for _ in range(3))
    whole.run()
    part.run(until_round=3)
    rest.load_state_dict(part.state_dict())
    rest.run()
    assert repr(rest.state_dict()) == repr(whole.state_dict())


def test_bad_jammers_are_refused() -> None:
    cases = [
        (LINKS, {"budget": -1}, "jammers.0.budget = -1: must be >= 0"),
        (CHANNELS, {"budget": -1}, "jammers.0.budget = -1: must be >= 0"),
        (LINKS, {"links": [[0, 7]]}, "jammers.0.links has (0, 7): these two are not neighbours"),
        (LINKS, {"links": [[0, 1]], "reach": [0]}, "jammers.0.links = [[0, 1]]: give either reach or links"),
        (LINKS, {"links": [[0]]}, "jammers.0.links.0 = [0]"),
        (LINKS, {"reach": [99]}, "jammers.0.reach = [99]"),
        (CHANNELS, {"links": [[0, 1]]}, "jammers.0.links = [[0, 1]]: names links between clients, which only jams ="),
    ]
    for world, more, message in cases:
        with pytest.raises(UserError) as caught:
            build(parse(world | {"jammers": [jammer("random", **more)]}))
        assert message in str(caught.value)
    for world in (CHANNELS, LINKS):
        with pytest.raises(UserError, match=r"jammers.1.name = 'random': is used twice"):
            build(parse(world | {"jammers": [jammer("random")] * 2}))
