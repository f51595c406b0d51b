"""Block fading: link budget and outage by hand, and against simulated fading."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.block_fading import BlockFading, path_loss_db

ALL = np.arange(3)


def test_path_loss_by_hand() -> None:
    assert path_loss_db(np.array([1.0, 0.1, 10.0])) == pytest.approx([128.1, 90.5, 165.7])


def test_mean_snr_sets_the_noise() -> None:
    """At 1 km and 0.1 km 20 dBm arrive as -108.1 and -70.5 dBm, -89.3 on average: noise -109.3 for a mean SNR of 20 dB."""
    channel = BlockFading(clients=2, distance_km=np.array([1.0, 0.1]))
    assert channel.noise_dbm == pytest.approx(-109.3)
    assert channel.mean_snr_db == pytest.approx([1.2, 38.8])
    given = BlockFading(clients=2, distance_km=np.array([1.0, 0.1]), noise_dbm=-118.1)
    assert given.mean_snr_db == pytest.approx([10.0, 47.6])


def test_outage_by_hand() -> None:
    # All at one distance: SNR 20 dB. Below 0 dB with probability 1 - exp(-0.01), below 20 dB with 1 - 1/e.
    near = BlockFading(clients=3, distance_km=0.4)
    assert near.success_probability(ALL) == pytest.approx([math.exp(-0.01)] * 3)
    assert BlockFading(clients=3, distance_km=0.4, threshold_db=20.0).success_probability(ALL) == pytest.approx(
        [math.exp(-1)] * 3
    )
    assert BlockFading(clients=3, distance_km=0.4, threshold_db=4000.0).success_probability(ALL).tolist() == [0, 0, 0]


def test_outage_against_simulated_rayleigh_fading() -> None:
    """|h|^2 of a complex Gaussian of unit power: share above the threshold within 4.4 standard deviations (1 in 100,000)."""
    distance = np.array([0.3, 0.6, 1.2])
    channel = BlockFading(clients=3, distance_km=distance, mean_snr_db=10.0, threshold_db=5.0)
    rng = np.random.default_rng(0)
    n = 200_000
    gain = 0.5 * (rng.normal(size=(n, 3)) ** 2 + rng.normal(size=(n, 3)) ** 2)
    received_dbm = 20.0 - path_loss_db(distance) + 10 * np.log10(gain)
    share = (received_dbm - channel.noise_dbm >= 5.0).mean(axis=0)
    p = channel.success_probability(ALL)
    assert np.all(np.abs(share - p) <= 4.4 * np.sqrt(p * (1 - p) / n))
    good = channel.good(rng.random(n), np.full(n, 1))
    assert abs(good.mean() - p[1]) <= 4.4 * math.sqrt(p[1] * (1 - p[1]) / n)


def test_channel_without_memory() -> None:
    channel = BlockFading(clients=3, distance_km=0.5)
    assert channel.memoryless
    channel.step(np.zeros(3))
    channel.load_state_dict(channel.state_dict())
    p = float(channel.success_probability(ALL)[0])
    assert channel.good(np.array([np.nextafter(p, 0), p]), np.array([0, 1])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"clients": 0}, r"^clients = 0"),
        ({"distance_km": -0.5}, r"^distance_km = -0.5: must be finite and > 0 km"),
        ({"distance_km": 0.0}, r"^distance_km = 0.0"),
        ({"distance_km": np.ones(2)}, r"^distance_km has 2 entries: must have 3"),
        ({"transmit_power_dbm": math.nan}, r"^transmit_power_dbm = nan"),
        ({"mean_snr_db": math.inf}, r"^mean_snr_db = inf"),
        ({"noise_dbm": math.nan}, r"^noise_dbm = nan"),
        ({"threshold_db": math.inf}, r"^threshold_db = inf"),
    ],
)
def test_bad_channel(parameters: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        BlockFading(**{"clients": 3, "distance_km": 0.5} | parameters)


def test_bad_distance() -> None:
    with pytest.raises(ValueError, match=r"^distance_km = 0.0: must be finite and > 0 km"):
        path_loss_db(np.array([0.5, 0.0]))
