"""Channel scheduling for asynchronous federated learning over non-stationary channels (Li et al. 2025)."""

from __future__ import annotations

from scenarios.papers.rules import Lower, Near, Ratio, Trend
from scenarios.papers.study import Reproduction, Setup, Size

PAPER = "Li et al. 2025, channel scheduling"
_SEEDS = {size: tuple(range(1, last + 1)) for size, last in ((Size.SMOKE, 2), (Size.LAPTOP, 10), (Size.FULL, 30))}


_ROUNDS = {Size.SMOKE: 500, Size.LAPTOP: 20_000, Size.FULL: 20_000}
_BANDIT = {size: Setup(seeds=_SEEDS[size], settings=(f"rounds={_ROUNDS[size]}",)) for size in Size}
"""Sizes of a study without a learner."""


def _learning_sizes(data: str, smoke_images: int, *smoke_settings: str) -> dict[Size, Setup]:
    """Return the setup of each size of a study with a learner.

    `smoke_images`, `smoke_settings`: number of images and further settings of the size smoke.
    """
    smoke_data = f'learner.data={{kind="{data}", samples={smoke_images}, test_samples=100, validation_samples=50}}'
    short_training = ("rounds=4", "learner.max_steps=1", "learner.contribution_samples=10", "learner.evaluate_every_rounds=2")
    laptop_data = f'learner.data={{kind="{data}", samples=5000, test_samples=1000, validation_samples=200}}'
    return {
        Size.SMOKE: Setup(seeds=(1,), settings=(*short_training, smoke_data, *smoke_settings)),
        Size.LAPTOP: Setup(seeds=(1, 2), settings=("rounds=30", laptop_data)),
        Size.FULL: Setup(seeds=(1, 2, 3)),
    }


def _figures_3_4(data: str, channels: str, scheduler: str, accuracy: float, smoke_images: int) -> Reproduction:
    """Return the reproduction of figures 3 and 4 for one data set, kind of channels and scheduler.

    `accuracy`: the published final accuracy, a fraction. `smoke_images`: number of images of the size smoke.
    """
    # Variants: channels matched to clients by age of information, or at random.
    aware, unaware = f"{scheduler}-aware", f"{scheduler}-random"
    per_cent = f"about {accuracy * 100:.0f}"
    return Reproduction(
        name=f"channels_fig3_4_{data.replace('-', '')}_{channels}",
        paper=PAPER,
        shows=f"Figures 3 and 4, {data.upper()}, {channels} channels: accuracy, and cumulated AoI variance, by matching",
        metrics=("final_accuracy", "cumulated_age_variance"),
        figures=("accuracy", "aoi_variance"),
        published={aware: {"final_accuracy": per_cent, "cumulated_age_variance": "a quarter of random scheduling's"}},
        rules=(
            Near(aware, "final_accuracy", accuracy, 0.05),
            Lower(unaware, aware, "final_accuracy"),
            Ratio(aware, "random", "cumulated_age_variance", 0.125, 0.5),
        ),
        notes="The paper gives no means of the channels: they are drawn from the seed, so that a seed is an instance. Its "
        "accuracies are read from curves of one run.",
        sizes=_learning_sizes(data, smoke_images, *(("channels.states.breakpoints=1",) if channels == "piecewise" else ())),
    )


REPRODUCTIONS = (
    Reproduction(
        name="channels_fig2a",
        paper=PAPER,
        shows="Figure 2(a): AoI regret of the schedulers on channels with 5 breakpoints",
        metrics=("aoi_regret", "cumulated_age_variance"),
        figures=("aoi_regret",),
        published={name: {"aoi_regret": "curve only"} for name in ("random", "m-exp3", "glr-cucb", "aa-m-exp3", "aa-glr-cucb")},
        rules=(
            Lower("m-exp3", "random", "aoi_regret"),
            Lower("glr-cucb", "m-exp3", "aoi_regret"),
            Lower("aa-m-exp3", "m-exp3", "aoi_regret"),
            Lower("aa-glr-cucb", "glr-cucb", "aoi_regret"),
        ),
        notes="The paper gives no means of the channels: these and the breakpoints are drawn from the seed. Regret is "
        "against the oracle that knows the means.",
        sizes=_BANDIT,
    ),
    Reproduction(
        name="channels_fig2b",
        paper=PAPER,
        shows="Figure 2(b): AoI regret of GLR-CUCB against the number of breakpoints",
        metrics=("aoi_regret",),
        figures=("aoi_regret",),
        against=("breakpoints",),
        rules=(Trend("breakpoints", "aoi_regret"),),
        sizes=_BANDIT,
    ),
    Reproduction(
        name="channels_fig2c_drawn",
        paper=PAPER,
        shows="Figure 2(c): AoI regret of M-Exp3 against the number of super-arms, on drawn channels",
        aliases=("channels_fig2c",),
        metrics=("aoi_regret",),
        figures=("aoi_regret",),
        against=("channels.count",),
        rules=(Trend("channels.count", "aoi_regret"),),
        notes="K = 2 of N channels: C(N, 2) super-arms. Against the adversary of the scenario channels_fig2c the oracle of the "
        "theorem, the best fixed set, is far worse than M-Exp3, and regrets are negative: docs/results-channels.md.",
        sizes=_BANDIT,
    ),
    _figures_3_4("cifar-10", "piecewise", "glr-cucb", 0.55, 600),
    _figures_3_4("cifar-10", "extreme", "m-exp3", 0.58, 600),
    _figures_3_4("cifar-100", "piecewise", "glr-cucb", 0.39, 2000),
    _figures_3_4("cifar-100", "extreme", "m-exp3", 0.38, 2000),
)
