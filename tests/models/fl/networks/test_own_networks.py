"""A network of the user's own: any module class or function runs, and `check` says of each that does not fit why."""

from __future__ import annotations

import json

import pytest

from tests.helpers.fl_scenario import netsim, tables, to_toml

OWN = "tests.helpers.own_networks"
RINGS = "tests.helpers.own_learning:rings"


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("network", "parameters"),
    [
        ({"kind": f"{OWN}:NoArguments"}, 650),
        ({"kind": f"{OWN}:no_arguments"}, 650),
        # The number of classes is given by name; the default of 1000 would not fit.
        ({"kind": f"{OWN}:OnlyClasses"}, 650),
        ({"kind": f"{OWN}:WithKeys"}, 64 * 4 + 4 + 40 + 10),
        ({"kind": f"{OWN}:WithKeys", "hidden": 3}, 64 * 3 + 3 + 30 + 10),
        ({"kind": f"{OWN}:seeded"}, 64 * 4 + 4 + 40 + 10),
    ],
)
def test_any_class_or_function_is_a_network(tmp_path, monkeypatch, capsys, network, parameters):
    file = to_toml(tmp_path / "own.toml", tables(network=network) | {"rounds": 1})
    assert netsim(monkeypatch, capsys, "check", file) == (0, "")
    assert netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))[0] == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["privacy"]["parameters"] == parameters


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        ({"network": {"kind": f"{OWN}:Narrow"}}, "learner.network: does not fit input of shape (1, 8, 8) (mat1 and mat2"),
        ({"network": {"kind": f"{OWN}:NineClasses"}}, "learner.network: returns scores of shape (2, 9) for 2 samples; the data"),
        ({"network": {"kind": f"{OWN}:Pair"}}, "learner.network: returns tuple; it must return a tensor of scores"),
        ({"network": {"kind": f"{OWN}:Nothing"}}, "learner.network: it has no parameters"),
        ({"network": {"kind": f"{OWN}:misnamed"}}, "'shape'; call it inputs (the shape of a sample) or classes"),
        ({"network": {"kind": f"{OWN}:fails"}}, "could not be made (KeyError: 'no such thing')"),
        # Data of the user's own are read once, so that any network can be checked against them.
        ({"data": {"kind": RINGS}, "network": {"kind": "cnn"}}, "needs images (C, H, W), the data are (2,)"),
        ({"data": {"kind": RINGS}, "network": {"kind": f"{OWN}:NoArguments"}}, "does not fit input of shape (2,)"),
        ({"data": {"kind": RINGS, "samples": 301}}, "learner.data.samples = 301: must be in 1..300 ("),
    ],
)
def test_check_says_what_does_not_fit(tmp_path, monkeypatch, capsys, learner, words):
    file = to_toml(tmp_path / "own.toml", tables(**learner))
    code, told = netsim(monkeypatch, capsys, "check", file)
    assert code == 2
    assert words in told
    assert len(told.splitlines()) == 1
