"""Tables of means of sub-channels: written out, drawn, refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from models.laws.sub_channels.stationary import Breakpoints, PiecewiseStationary, Stationary


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def piecewise(channels: int = 2, rounds: int = 100, **parameters: Any) -> PiecewiseStationary:
    names = {field.name for field in fields(Breakpoints)} & parameters.keys()
    placing = Breakpoints(**{name: parameters.pop(name) for name in names})
    return PiecewiseStationary(channels=channels, generator=rng(), horizon_rounds=rounds, placing=placing, **parameters)


def test_written_out() -> None:
    law = piecewise(starts=[4, 11], means=[[0, 1], [1, 0], [0.5, 0.25]])
    everyone = np.arange(2)
    for round, means in ((1, [0, 1]), (3, [0, 1]), (4, [1, 0]), (10, [1, 0]), (11, [0.5, 0.25]), (99, [0.5, 0.25])):
        assert law.at(round, 0.0)[0].success_probability(everyone).tolist() == means
    assert law.at(1, 0.0)[0].good(np.array([0.0, 0.99]), everyone).tolist() == [False, True]
    timed = piecewise(starts=[2.5], means=[[0, 1], [1, 0]], unit="seconds", horizon_s=9.0)
    assert (timed.at(1, 0.0)[1], timed.at(1, 2.5)[1]) == (2.5, np.inf)
    assert Stationary(channels=2, generator=rng(), means=[0.2, 0.4]).means.tolist() == [[0.2, 0.4]]


def test_breakpoints_spread_evenly_give_segments_of_one_length() -> None:
    assert piecewise(breakpoints=4).means.shape == (5, 2)
    assert piecewise(breakpoints=4, spread="even").starts == [21, 41, 61, 81]
    assert piecewise(breakpoints=2, spread="even", rounds=10).starts == [4, 7]
    assert piecewise(breakpoints=0).starts == []
    assert piecewise(breakpoints=1, spread="even", unit="seconds", horizon_s=5.0).starts == [2.5]


def test_what_is_drawn_is_uniform_and_follows_the_generator_alone() -> None:
    law = piecewise(50, 1000, breakpoints=39, low=0.2, high=0.6)
    assert np.array_equal(
        law.means, piecewise(50, 1000, breakpoints=39, low=0.2, high=0.6).means
    )
    assert 0.2 <= law.means.min() <= law.means.max() <= 0.6
    # Five standard deviations of the mean of 2,000 uniforms.
    assert abs(law.means.mean() - 0.4) < 5 * 0.4 / np.sqrt(12 * 2000)
    assert sorted(set(law.starts)) == law.starts
    spaced = piecewise(breakpoints=5, min_spacing=15)
    assert np.diff([1, *spaced.starts]).min() >= 15


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "breakpoints = None: give either"),
        ({"breakpoints": 1, "starts": [2]}, "breakpoints = 1: give either"),
        ({"breakpoints": -1}, "breakpoints = -1: must be >= 0"),
        ({"breakpoints": 100, "spread": "even"}, "breakpoints = 100: do not fit"),
        ({"breakpoints": 9, "min_spacing": 50}, "breakpoints = 9: "),
        ({"breakpoints": 2, "spread": "even", "min_spacing": 5}, "min_spacing = 5.*no meaning where spread = 'even'"),
        ({"starts": [4], "min_spacing": 5.0}, "min_spacing = 5.0: has no meaning where starts is given"),
        ({"breakpoints": 1, "unit": "seconds"}, "breakpoints = 1: without a time limit"),
        ({"breakpoints": 1, "spread": "odd"}, "spread = 'odd'"),
        ({"breakpoints": 1, "unit": "hours"}, "unit = 'hours'"),
        ({"starts": [101]}, r"starts = \[101\]: 101 lies past the horizon of 100 rounds"),
        ({"starts": [9, 4]}, "starts = "),
        ({"starts": [4], "means": [[0, 1]]}, "means = .*must hold 2 rows of 2"),
        ({"starts": [], "means": [[0, 1.5]]}, "means = .*probabilities"),
        ({"starts": [], "means": [[0, 1, 1]]}, "means = .*one number for each of 2"),
        ({"starts": [], "low": 0.7, "high": 0.3}, "low = 0.7"),
        ({"starts": [], "high": 1.5}, "high = 1.5"),
    ],
)
def test_refusals(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        piecewise(**parameters)
