"""What-if for one cable of `[network]`: by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.what_if.answers import what_if
from scenarios.runs.what_if.changes import Change
from scenarios.schema.errors import UserError
from tests.helpers.small_scenario import Shell

LINE: dict[str, Any] = {
    "name": "line",
    "rounds": 2,
    "clients": {"count": 2},
    "server": {"per_round": 2},
    "policy": {"kind": "all"},
    "payload": {"up_bytes": 1000},
    "network": {
        "server": "s",
        "clients": ["x", "y"],
        "links": [
            {"name": "far", "a": "x", "b": "y", "bandwidth_bytes_per_s": 500.0},
            {"name": "near", "a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0},
        ],
    },
}
"""A round takes 2 s: both clients have 500 bytes/s of `near`, which `far` gives client 0 as well."""


@pytest.mark.parametrize(("link", "takes_s"), [("near", 2.0), ("far", 2.0), (None, 1.0)])
def test_twice_the_bandwidth_of_one_cable(link: str | None, takes_s: float, tmp_path: Path) -> None:
    netsim.run(LINE, out=tmp_path / "run")
    (answer,) = what_if(tmp_path / "run", 2, [Change("bandwidth", 2.0, link)])
    assert answer.then is not None
    assert answer.was.end_s - answer.was.start_s == pytest.approx(2.0, rel=1e-12)
    assert answer.then.end_s - answer.then.start_s == pytest.approx(takes_s, rel=1e-12)
    assert link is None or f"of {link}" in answer.change.label


def test_a_cable_that_limits_alone(tmp_path: Path) -> None:
    """Client 0 waits for `far`, whatever `near` has: four times `far` lets it take 500 bytes/s of `near`."""
    slow = [{**LINE["network"]["links"][0], "bandwidth_bytes_per_s": 250.0}, LINE["network"]["links"][1]]
    netsim.run(LINE | {"network": LINE["network"] | {"links": slow}}, out=tmp_path / "run")
    far, near = what_if(tmp_path / "run", 1, [Change("bandwidth", 4.0, "far"), Change("bandwidth", 4.0, "near")])
    assert far.was.end_s == pytest.approx(4.0, rel=1e-12)
    assert far.then is not None
    assert near.then is not None
    assert (far.then.end_s, near.then.end_s) == pytest.approx((2.0, 4.0), rel=1e-12)


def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    netsim.run(LINE, out=tmp_path / "run")
    with pytest.raises(UserError, match="--link nearer: the scenario has no cable of that name"):
        what_if(tmp_path / "run", 1, [Change("bandwidth", 2.0, "nearer")])
    shell = Shell(tmp_path, monkeypatch, capsys)
    code, _, error = shell("what-if", tmp_path / "run", "--round", "1", "--link", "near", "--without", "1", "--quiet")
    assert code == 2
    assert "give --bandwidth FACTOR" in error
