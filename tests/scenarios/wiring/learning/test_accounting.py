"""`privacy.accountant`: what all releases of a client are worth together, in the summary; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.accounting import composed_epsilon
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.learning import accounting
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import tables

PRIVATE: dict[str, Any] = {
    "sensitivity": 1.0,
    "guarantee": "l1",
    "schedule": {"kind": "geometric", "epsilon_total": 2.0, "eta": 0.2},
}
GAUSSIAN = PRIVATE | {"mechanism": "gaussian", "guarantee": "l2", "delta": 1e-6}
PLD = {"accountant": "pld", "total_delta": 1e-4}


def scenario(privacy: dict[str, Any]) -> dict[str, Any]:
    return override(tables(), {"privacy": privacy, "clients.count": 3, "rounds": 4})


def test_the_summary_says_which_accountant_and_what_all_releases_are_worth(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    # All three clients are selected in each of four rounds.
    budgets = [2.0 * (1 - pow(2.718281828459045, -0.2)) * pow(2.718281828459045, -0.2 * (i - 1)) for i in range(1, 5)]
    summary = run(parse(scenario(PRIVATE | PLD)), tmp_path / "laplace")["privacy"]
    kept = summary["accounting"]
    assert (kept["accountant"], kept["delta"], kept["releases"]) == ("pld", 1e-4, 4)
    assert kept["epsilon"] == pytest.approx(composed_epsilon("pld", "laplace", budgets, total_delta=1e-4), rel=1e-9)
    assert kept["epsilon"] <= sum(budgets)
    told = f"({kept['epsilon']:.4g}, 0.0001)-LDP of the whole update in all 4 releases"
    assert f"By privacy loss distributions (dp-accounting), {told}" in summary["guarantee"]
    assert "sampling amplifies nothing: the server sees who sends each update" in summary["guarantee"]
    noisy = run(parse(scenario(GAUSSIAN | PLD | {"accountant": "rdp"})), tmp_path / "gaussian")["privacy"]
    expected = composed_epsilon("rdp", "gaussian", budgets, total_delta=1e-4, delta=1e-6)
    assert noisy["accounting"]["epsilon"] == pytest.approx(expected, rel=1e-9)
    assert "By Renyi divergences (dp-accounting)" in noisy["guarantee"]


def test_sums_are_the_default_and_say_nothing_more(tmp_path: Path) -> None:
    summary = run(parse(scenario(PRIVATE)), tmp_path / "sum")["privacy"]
    assert "accounting" not in summary
    assert "dp-accounting" not in summary["guarantee"]


def test_one_coordinate_is_not_called_the_whole_update() -> None:
    read = parse(scenario(PRIVATE | PLD | {"guarantee": "per_coordinate"}))
    kept = {"accountant": "pld", "epsilon": 1.0, "delta": 1e-4, "releases": 2}
    assert "(1, 0.0001)-LDP of one coordinate in all 2 releases" in accounting.accounts_in_words(read, kept)


def test_what_is_sent_bare_is_not_called_protected(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    network = {"kind": "cnn", "channels": [2], "hidden": [4], "norm": "batch"}
    bare = override(scenario(PRIVATE | PLD | {"unprotected": "batch-norm"}), {"learner.network": network})
    told = run(parse(bare), tmp_path / "bare")["privacy"]["guarantee"]
    assert "-LDP of the protected numbers of an update in all 4 releases" in told


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        (PRIVATE | {"accountant": "pld"}, "privacy.total_delta .*must be given for pld, in"),
        (PRIVATE | {"total_delta": 1e-5}, "privacy.total_delta = 1e-05: is of rdp and pld; leave it out, or set accountant"),
        (PRIVATE | PLD | {"mechanism": "none"}, "privacy.accountant = .pld.: nothing is protected; leave it out"),
        (PRIVATE | PLD | {"total_delta": 1.0}, "privacy.total_delta = 1.0"),
        (PRIVATE | PLD | {"accountant": "moments"}, "privacy.accountant"),
    ],
)
def test_what_makes_no_sense_is_refused(privacy: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(scenario(privacy))


def test_an_accountant_that_is_not_installed_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"privacy.accountant = 'pld': needs dp-accounting; .* pip install 'netsim\[privacy\]'"):
        build(parse(scenario(PRIVATE | PLD)), learner=False)
    build(parse(scenario(PRIVATE)), learner=False)
