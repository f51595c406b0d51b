"""Figures of a fit look like all others."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

import netsim
from scenarios.fit.figures import quantile_figure, survival_figure

pytestmark = pytest.mark.draws


def test_figures_of_a_fit_do_not_follow_matplotlib_settings_of_the_user(tmp_path: Path) -> None:
    places = np.arange(100)
    seconds = np.random.default_rng(1).gamma(3.0, 1.0, 100)
    log = pd.DataFrame({"client": places % 10, "round": 1 + places // 10, "seconds": seconds})
    phase = netsim.fit(log, out=tmp_path / "fitted", seeds=0).estimates.phases["total", "all"]
    for draw in (survival_figure, quantile_figure):
        with matplotlib.rc_context({"axes.spines.top": True, "axes.labelsize": 30.0}):
            (axes,) = draw(phase).axes
            assert not axes.spines["top"].get_visible()
            assert axes.xaxis.label.get_size() < 15.0
