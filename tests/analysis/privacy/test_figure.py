"""The privacy leak of each client: by hand, with a budget, and without protection."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from analysis.api import open_run
from analysis.figures.client_lines import MOST_NUMBERED
from analysis.privacy.figure import client_leaks, client_leaks_figure
from analysis.results.run import Run
from tests.helpers.result_folders import PARTS, write_run

SCHEDULE = '\n[privacy.schedule]\nkind = "geometric"\nepsilon_total = 4.0\n\n[clients]\ncount = 4\n'
LEAKS = [0.5, None, 0.25, 0.5, None, 0.75, None]


def run_of(folder: Path, leaks: list[Any] = LEAKS, scenario: str = SCHEDULE, **clients: Any) -> Run:
    path = write_run(folder, clients=PARTS | {"leak": leaks} | clients, privacy={"guarantee": "per coordinate"})
    with (path / "scenario.toml").open("a", encoding="utf-8") as file:
        file.write(scenario)
    return open_run(path)


def test_the_last_leak_of_each_client_counts(tmp_path: Path) -> None:
    # Client 0 leaks 0.5 and then 0.75 in all; client 1 in round 2 only; client 2 once; client 3 takes no part.
    run = run_of(tmp_path / "a")
    assert client_leaks(run).tolist() == [0.75, 0.5, 0.25, 0.0]
    figure = client_leaks_figure({"a": [run]})
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_xlabel() == "client"
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [0.75, 0.5, 0.25, 0.0]
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == [4.0, 4.0]
    assert axes.get_ylim()[1] > 4.0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "budget: 4"]


def test_who_sends_without_protection_is_named_and_other_budgets_are_no_line(tmp_path: Path) -> None:
    bare = run_of(tmp_path / "a", [math.inf, *LEAKS[1:]])
    other = run_of(tmp_path / "b", scenario=SCHEDULE.replace("4.0", "8.0"))
    figure = client_leaks_figure({"bare": [bare], "four": [run_of(tmp_path / "c")], "eight": [other]})
    assert figure is not None
    assert "without protection, not drawn: bare" in figure.note
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["four", "eight"]
    assert client_leaks_figure({"bare": [bare]}) is None
    none = write_run(tmp_path / "d", clients=PARTS)
    assert client_leaks_figure({"none": [open_run(none)]}) is None


def test_many_clients_are_shown_from_the_largest_leak_down(tmp_path: Path) -> None:
    count = MOST_NUMBERED + 1
    columns: dict[str, list[Any]] = {name: [PARTS[name][0]] * count for name in PARTS} | {"client": list(range(count))}
    leaks = np.random.default_rng(1).random(count)
    figure = client_leaks_figure({"a": [run_of(tmp_path / "a", leaks.tolist(), "", **columns)]})
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "clients, largest leak first"
    assert np.asarray(figure.axes[0].lines[0].get_ydata()).tolist() == sorted(leaks.tolist(), reverse=True)
