"""Sequences of states: from files, drawn from means, made by an adversary."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from models.laws.sub_channels.sequences import AdversarialStates, FileStates, StateSequence
from tests.helpers.piecewise_states import piecewise_states

TABLE = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1]], bool)


def test_states_from_files(tmp_path: Path) -> None:
    text, array = tmp_path / "states.csv", tmp_path / "states.npy"
    text.write_text("# three channels\n1,0,1\n0, 0, 1\n\n1,1,0\n0,1,1\n")
    np.save(array, TABLE.astype(np.int8))
    for path in (text, array):
        states = FileStates(path=str(path), channels=3)
        np.testing.assert_array_equal(states.table, TABLE)
        assert (states.rounds, states.channels) == (4, 3)
        np.testing.assert_array_equal(states.states(2), [False, False, True])
        np.testing.assert_array_equal(FileStates(path=str(path), channels=3, rounds=2).table, TABLE[:2])
        # In hindsight: the share of Good rounds, whatever the round.
        np.testing.assert_allclose(states.means(3), [0.5, 0.5, 0.75])
        with pytest.raises(ValueError, match=r"^round = 5: .* rounds 1 to 4"):
            states.states(5)
        with pytest.raises(ValueError, match=r"^round = 0"):
            states.means(0)


@pytest.mark.parametrize(
    ("text", "channels", "rounds", "complaint"),
    [
        ("1,0\n1,0,1\n", 3, None, "line 1: has 2 values; 3 channels"),
        ("1,0,1\n1,2,1\n", 3, None, "line 2: '2' must be 0 or 1"),
        ("1,0.5,1\n", 3, None, "line 1: '0.5' must be 0 or 1"),
        ("1,0,1\n", 3, 2, "holds 1 rounds; 2 are needed"),
        ("# nothing\n", 3, None, "holds no round"),
    ],
)
def test_bad_text_files(tmp_path: Path, text: str, channels: int, rounds: int | None, complaint: str) -> None:
    path = tmp_path / "states.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^path = .*states.csv'?: {complaint}"):
        FileStates(path=str(path), channels=channels, rounds=rounds)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (TABLE[:, :2], r"has shape \(4, 2\); must be \(rounds, 3\)"),
        (TABLE[0], r"has shape \(3,\)"),
        (np.empty((0, 3), bool), ""),
        (np.where(TABLE, 0.5, 0.0), "round 1, channel 0: 0.5 must be 0 or 1"),
        (np.full((2, 3), math.nan), "round 1, channel 0: nan must be 0 or 1"),
        (TABLE.astype(str), "holds <U5; must hold 0 and 1"),
        (TABLE.astype(object), "cannot be read as an array"),
    ],
)
def test_bad_arrays(tmp_path: Path, values: np.ndarray, complaint: str) -> None:
    path = tmp_path / "states.npy"
    np.save(path, values, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"^path = .*states.npy'?: {complaint}"):
        FileStates(path=str(path), channels=3)


def test_files_that_are_none(tmp_path: Path) -> None:
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"no array")
    for name in ("none.csv", "none.npy", "broken.npy"):
        with pytest.raises(ValueError, match=r"^path = .*cannot be read"):
            FileStates(path=str(tmp_path / name), channels=3)
    with pytest.raises(ValueError, match=r"^path = .*must end in .csv or .npy"):
        FileStates(path=str(tmp_path / "states.txt"), channels=3)


def test_piecewise_states_have_their_means_and_breakpoints() -> None:
    means = [[0.1, 0.9], [0.8, 0.3], [0.5, 0.5]]
    states = piecewise_states(channels=2, rounds=9000, generator=np.random.default_rng(1), starts=[4001.0, 6001.0], means=means)
    for first, end, expected in ((0, 4000, means[0]), (4000, 6000, means[1]), (6000, 9000, means[2])):
        share = states.table[first:end].mean(axis=0)
        np.testing.assert_allclose(share, expected, atol=4.5 * 0.5 / math.sqrt(end - first))
        np.testing.assert_array_equal(states.means(first + 1), expected)
        np.testing.assert_array_equal(states.means(end), expected)
    assert states.starts == [4001, 6001]


def test_drawn_piecewise_states() -> None:
    states = piecewise_states(
        channels=5, rounds=2000, generator=np.random.default_rng(2), breakpoints=4, min_spacing=300, low=0.2, high=0.6
    )
    assert len(states.starts) == 4
    assert min(np.diff([1, *states.starts])) >= 300
    drawn = np.array([states.means(start) for start in [1, *states.starts]])
    assert drawn.min() >= 0.2
    assert drawn.max() <= 0.6
    assert len(np.unique(drawn)) == 25
    still = piecewise_states(channels=2, rounds=50, generator=np.random.default_rng(2), breakpoints=0, means=[[0.0, 1.0]])
    np.testing.assert_array_equal(still.table, np.tile([False, True], (50, 1)))


@pytest.mark.parametrize("rule", ["random", "starve", "invert"])
def test_the_adversary_keeps_its_number_and_its_pace(rule: str) -> None:
    rounds = 20_000
    states = AdversarialStates(
        channels=6,
        rounds=rounds,
        generator=np.random.default_rng(3),
        good=2,
        dwell_rounds=8.0,
        rule=rule,  # type: ignore[arg-type]
    )
    assert (states.table.sum(axis=1) == 2).all()
    changed = (states.table[1:] != states.table[:-1]).any(axis=1)
    # A random set is the one before with probability 1/15, and so shows no change.
    p = (14 / 15 if rule == "random" else 1.0) / 8
    slack = 4.5 * math.sqrt(rounds / 8)
    assert changed.sum() >= rounds * p * (0.8 if rule == "starve" else 1.0) - slack
    assert changed.sum() <= rounds / 8 + slack
    at = np.flatnonzero(changed)
    if rule == "invert":
        assert not (states.table[at] & states.table[at + 1]).any()
    if rule == "starve":
        worked = np.cumsum(states.table, axis=0)
        for t in at.tolist():
            chosen = states.table[t + 1]
            assert worked[t][chosen].max() <= worked[t][~chosen].min()


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda g: StateSequence(table=np.ones(3, bool)), "table has shape"),
        (lambda g: AdversarialStates(channels=3, rounds=9, generator=g, good=0), "good = 0"),
        (lambda g: AdversarialStates(channels=3, rounds=9, generator=g, good=4), "good = 4"),
        (lambda g: AdversarialStates(channels=3, rounds=9, generator=g, good=1, dwell_rounds=0.5), "dwell_rounds = 0.5"),
        (lambda g: AdversarialStates(channels=3, rounds=9, generator=g, good=1, rule="x"), "rule = 'x'"),
    ],
)
def test_bad_values_are_refused(make: object, start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        make(np.random.default_rng(0))  # type: ignore[operator]
