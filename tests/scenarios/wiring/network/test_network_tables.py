"""Tables of transfers and of links: by hand, sums of bytes, and the same after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from tests.helpers.networks import LINE, SHARED, Cut
from tests.helpers.small_worlds import World

RECORDED: dict[str, Any] = {"output": {"transfers_table": True}}


def test_the_link_that_limits_and_for_how_long(tmp_path: Path) -> None:
    """Three clients have a third of `near` each, 333 bytes/s: less than `far` has. Two end at 0.9 s, the third has it alone."""
    links = [{**LINE["links"][0], "delay_s": 0.0, "bandwidth_bytes_per_s": 400.0}, {**LINE["links"][1], "delay_s": 0.0}]
    network = LINE | {"links": links, "clients": ["y", "y", "x"]}
    tables = {"name": "n", "rounds": 1, "clients": {"count": 3}, "server": {"per_round": 3}, "policy": {"kind": "all"}}
    payload = {"up_bytes": [300.0, 600.0, 300.0]}
    run(parse(tables | RECORDED | {"payload": payload, "network": network}), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "transfers.parquet").to_pandas()
    sent = rows[rows["size_bytes"] > 0].sort_values("number")
    assert sent["end_s"].tolist() == pytest.approx([0.9, 1.2, 0.9], rel=1e-9)
    assert sent["limit"].tolist() == ["near>s"] * 3
    assert sent["limited_s"].tolist() == pytest.approx([0.9, 1.2, 0.9], rel=1e-9)
    assert sent["route"].tolist() == ["near", "near", "far>near"]
    assert rows.groupby("kind")["target"].unique().apply(list).to_dict() == {"model": ["y", "x"], "update": ["s"]}
    assert sent["mean_bytes_per_s"].tolist() == pytest.approx([300 / 0.9, 500.0, 300 / 0.9], rel=1e-9)
    loads = pq.read_table(tmp_path / "run" / "link_loads.parquet").to_pandas().set_index("link")
    assert loads.loc["near>s", "carried_bytes"] == pytest.approx(1200.0, rel=1e-9)
    assert loads.loc["far>y", "carried_bytes"] == pytest.approx(300.0, rel=1e-9)


def test_a_narrow_cable_limits_its_own_client(tmp_path: Path) -> None:
    """`far` limits client 0 to 250 bytes/s for 2 s; `near` limits client 1, which has the other 750."""
    links = [{**LINE["links"][0], "delay_s": 0.0, "bandwidth_bytes_per_s": 250.0}, {**LINE["links"][1], "delay_s": 0.0}]
    tables = {"name": "n", "rounds": 1, "clients": {"count": 2}, "server": {"per_round": 2}, "policy": {"kind": "all"}}
    payload = {"up_bytes": [500.0, 750.0]}
    run(parse(tables | RECORDED | {"payload": payload, "network": LINE | {"links": links}}), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "transfers.parquet").to_pandas()
    sent = rows[rows["size_bytes"] > 0].sort_values("number")
    assert [json.loads(text) for text in sent["limits"]] == [
        {"far>y": pytest.approx(2.0, rel=1e-9)},
        {"near>s": pytest.approx(1.0, rel=1e-9)},
    ]


def test_a_transfer_whose_bytes_have_not_all_passed_has_no_mean_rate(tmp_path: Path) -> None:
    """Of 1,500 bytes 500 have passed as the trace ends; traffic of others is switched off under way; its size is null."""
    near = {"name": "near", "a": "y", "b": "s"}
    near["bandwidth"] = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [1000.0], "after_end": "stop", "end_s": 0.5}
    far = {"name": "far", "a": "x", "b": "s", "bandwidth_bytes_per_s": 1000.0}
    others = {"name": "others", "kind": "on-off", "from": "x", "to": "s", "mean_on_s": 0.01, "mean_off_s": 0.01}
    network = {"server": "s", "clients": ["y", "x"], "links": [near, far], "background": [others]}
    tables = {"name": "n", "rounds": 1, "clients": {"count": 2}, "server": {"per_round": 2}, "policy": {"kind": "all"}}
    run(parse(tables | RECORDED | {"payload": {"up_bytes": 1500.0}, "network": network}), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "transfers.parquet").to_pandas()
    traffic = rows[rows["kind"] == "background.others"]
    assert set(traffic["outcome"]) >= {"aborted"}
    assert traffic["mean_bytes_per_s"].isna().all()
    assert traffic["size_bytes"].isna().all()
    updates = rows[rows["kind"] == "update"].sort_values("number", ascending=False)
    assert updates["outcome"].tolist() == ["delivered", "lost"]
    rate, none = updates["mean_bytes_per_s"]
    assert rate == pytest.approx(1500 / (updates["end_s"] - updates["begin_s"]).iloc[0], rel=1e-9)
    assert none != none


def test_the_bytes_of_transfers_and_of_links_agree_also_after_a_resume(tmp_path: Path) -> None:
    scenario = parse(SHARED | RECORDED)
    run(scenario, tmp_path / "whole")

    def cut(simulation: Any) -> None:
        if simulation.server.round == 5:
            raise Cut

    with pytest.raises(Cut):
        run(scenario, tmp_path / "cut", after_round=cut, checkpoint_s=0)
    go_on(tmp_path / "cut", checkpoint_s=0)
    for name in ("transfers", "link_loads"):
        whole, other = (pq.read_table(tmp_path / one / f"{name}.parquet") for one in ("whole", "cut"))
        assert whole.equals(other)
    rows = pq.read_table(tmp_path / "whole" / "transfers.parquet").to_pandas()
    loads = pq.read_table(tmp_path / "whole" / "link_loads.parquet").to_pandas()
    flowed = loads.groupby("link")["carried_bytes"].sum()
    whole = rows[rows["outcome"].isin(["delivered", "lost"])]
    up = whole[whole["target"] == "root"]
    through = up[up["route"].str.endswith("root-root.1")]["size_bytes"].sum()
    # What is under way as the run ends has crossed the link in part.
    assert through <= flowed["root-root.1>root"] * (1 + 1e-9)
    assert (loads["carried_bytes"] <= (loads["end_s"] - loads["start_s"]) * 600.0 * (1 + 1e-9))[
        loads["link"] == "root-root.1>root"
    ].all()


def test_without_cables_there_is_no_such_table() -> None:
    tables = {"name": "n", "rounds": 1, "clients": {"count": 1}, "server": {"per_round": 1}, "policy": {"kind": "all"}}
    with pytest.raises(UserError, match=r"output\.transfers_table"):
        parse(tables | RECORDED)


def test_the_row_of_a_lost_transfer_names_the_cause() -> None:
    digger = {"name": "digger", "links": ["far"], "from_s": 1.0, "to_s": 1.25}
    tables = {"network": LINE | {"outages": [digger]}, "payload": {"up_bytes": 1000.0}} | RECORDED
    rows = World([[0, 1]], 2, server={"per_round": 2}, **tables).play().records.transfers
    causes = {(row.kind, row.source): row.cause for row in rows}
    assert causes == {("model", "s"): None, ("update", "x"): "digger", ("update", "y"): None}
