"""A part of the soak: a few scenarios again and again leave no handle open, and little memory behind."""

from __future__ import annotations

import pytest

from tests.reliability.soak import Noted, growth, soak

pytestmark = pytest.mark.needs_torch


@pytest.mark.slow
def test_a_few_scenarios_again_and_again_leave_nothing_open() -> None:
    notes = soak(0.0, 1, each_pass=4)
    assert growth(notes)[1] == 0
    assert notes[-1].threads == notes[1].threads


def test_what_grows_is_found() -> None:
    notes = [Noted(10 * k, 10**9, 10**6 + 50_000 * 10 * k + 10**7 * (not k), 20 + k, 3) for k in range(6)]
    assert growth(notes) == (pytest.approx(50_000), 4)
