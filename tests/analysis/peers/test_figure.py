"""The figure of the models of peers, of hand-made runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.peers.figure import peers_figure
from tests.helpers.result_folders import ROUNDS, run_of

OF_PEERS = {
    "accuracy": [0.2, 0.4, 0.5, 0.6, 0.7],
    "worst_peer_accuracy": [0.1, 0.2, 0.3, 0.3, 0.4],
    "best_peer_accuracy": [0.3, 0.5, 0.6, 0.7, 0.8],
    "consensus_distance": [0.0, 4.0, 2.0, 1.0, 0.5],
}


def test_each_panel_shows_its_column_and_a_distance_of_zero_has_no_place(tmp_path: Path) -> None:
    figure = peers_figure({"a": [run_of(tmp_path / "a", ROUNDS | OF_PEERS)]})
    assert figure is not None
    *accuracies, distance = figure.axes
    for axes, column in zip(accuracies, OF_PEERS, strict=False):
        assert np.asarray(axes.lines[0].get_ydata())[[0, -1]].tolist() == [OF_PEERS[column][0], OF_PEERS[column][-1]]
    assert distance.get_yscale() == "log"
    assert np.asarray(distance.lines[0].get_ydata())[[0, -1]].tolist() == [4.0, 0.5]


def test_the_means_set_the_bounds_of_the_distance_and_not_intervals_down_to_zero(tmp_path: Path) -> None:
    # Means of both seeds: 4.0, 2.0, 1.0, 0.6, 0.3; their intervals reach far below 0.
    runs = [
        run_of(tmp_path / name, ROUNDS | OF_PEERS | {"consensus_distance": values})
        for name, values in {"a": [4.0, 3.9, 1.9, 1.0, 0.5], "b": [4.0, 0.1, 0.1, 0.2, 0.1]}.items()
    ]
    figure = peers_figure({"a": runs})
    assert figure is not None
    low, high = figure.axes[-1].get_ylim()
    assert (low, high) == (0.3 / 3.0, 4.0 * 3.0)


def test_peers_that_always_agree_leave_the_panel_of_distances_empty(tmp_path: Path) -> None:
    figure = peers_figure({"a": [run_of(tmp_path / "a", ROUNDS | OF_PEERS | {"consensus_distance": [0.0] * 5})]})
    assert figure is not None
    assert not figure.axes[-1].lines


def test_there_is_none_without_models_of_peers(tmp_path: Path) -> None:
    assert peers_figure({"a": [run_of(tmp_path / "a")]}) is None
