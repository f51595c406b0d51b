"""PAUSE (Peleg et al. 2025)."""

from __future__ import annotations

from scenarios.papers.rules import Lower, LowerInEach
from scenarios.papers.study import Reproduction, Setup, Size

PAPER = "Peleg et al. 2025, PAUSE"
# The order in the paper: PAUSE and SA-PAUSE reach accuracy first among the private methods; "all" and "fastest" spend their
# budget and collapse.
RULES = (
    Lower("pause", "random", "target_s"),
    Lower("pause", "all", "target_s"),
    Lower("pause", "random", "mean_round_s"),
    Lower("all", "pause", "final_accuracy", by=0.1),
    Lower("fastest", "pause", "final_accuracy", by=0.1),
    Lower("pause", "all", "max_leak"),
)
CURVES = {
    name: {"target_s": "curve only", "final_accuracy": "curve only", "max_leak": "curve only"}
    for name in ("pause", "sa-pause", "random", "all", "all-no-privacy", "fastest")
}
METRICS = ("target_s", "final_accuracy", "mean_round_s", "max_leak")
_CIFAR_NOTE = (
    "At the learning rate that the paper states, 0.01, the network without batch normalisation does not leave 10 %: the "
    "sizes smoke and laptop use a tenth of it, and so should a run of the size full that is to learn (docs/results-pause.md)."
)


def _reproduction(
    name: str,
    figure_names: str,
    aliases: tuple[str, ...],
    data: str,
    sizes: dict[Size, Setup],
    notes: str = "",
    *,
    has_fastest: bool = True,
) -> Reproduction:
    """Return the reproduction of a figure of accuracy and a figure of leaks.

    `figure_names`: those of the paper. `data`: data set and clients, in words. `has_fastest`: it has the variant "fastest".
    """
    return Reproduction(
        name=name,
        paper=PAPER,
        shows=f"{figure_names}: accuracy against simulated time, largest leak against rounds; {data}",
        aliases=aliases,
        metrics=METRICS,
        figures=("accuracy", "leak", "target"),
        published={variant: metrics for variant, metrics in CURVES.items() if has_fastest or variant != "fastest"},
        rules=tuple(rule for rule in RULES if has_fastest or rule.first != "fastest"),
        notes=notes,
        sizes=sizes,
    )


def _cifar_sizes(smoke_images: int, laptop_images: int) -> dict[Size, Setup]:
    """Return the setup of each size of a study on CIFAR-10, with these numbers of images for all clients together."""
    rate = "learner.optimizer.learning_rate=0.001"
    return {
        Size.SMOKE: Setup(
            seeds=(1,),
            settings=("rounds=2", rate, f"learner.data.samples={smoke_images}", "learner.data.test_samples=200"),
        ),
        Size.LAPTOP: Setup(
            seeds=(1, 2),
            settings=("time_limit_s=12", rate, f"learner.data.samples={laptop_images}", "learner.data.test_samples=1000"),
        ),
        Size.FULL: Setup(seeds=(1, 2, 3)),
    }


REPRODUCTIONS = (
    Reproduction(
        name="pause_table1",
        paper=PAPER,
        shows="Table I: what the search for the best set costs by each method",
        metrics=(),
        solvers=True,
        notes="The paper states orders of growth and no times. Its annealing enumerates the neighbours of a set; here a step "
        "draws one neighbour, so that a step costs the same whatever the number of clients, and the walk what it prepares.",
        sizes={
            Size.SMOKE: Setup(seeds=(1,)),
            Size.LAPTOP: Setup(seeds=(1,)),
            Size.FULL: Setup(seeds=(1,)),
        },
    ),
    _reproduction(
        "pause_test1",
        "Test 1 of the authors' code",
        (),
        "2,000 images of MNIST, 30 clients, 5 a round, beside the settings of the authors' code",
        {
            Size.SMOKE: Setup(
                seeds=(1,),
                settings=("time_limit_s=1.5", "learner.data.test_samples=500"),
            ),
            Size.LAPTOP: Setup(seeds=(1, 2), settings=("time_limit_s=75",)),
            Size.FULL: Setup(seeds=(1, 2, 3, 4, 5)),
        },
        "The paper and the authors' logs have one seed each.",
    ),
    _reproduction(
        "pause_fig2_3",
        "Figures 2 and 3",
        ("pause_fig2", "pause_fig3"),
        "CIFAR-10 in equal i.i.d. shares, 30 clients, 5 a round",
        _cifar_sizes(3000, 6000),
        _CIFAR_NOTE,
    ),
    _reproduction(
        "pause_fig4_5",
        "Figures 4 and 5",
        ("pause_fig4", "pause_fig5"),
        "CIFAR-10 in unequal shares with a dominant label each, 30 clients, 5 a round",
        _cifar_sizes(3000, 6000),
        _CIFAR_NOTE,
    ),
    _reproduction(
        "pause_fig6_7",
        "Figures 6 and 7",
        ("pause_fig6", "pause_fig7"),
        "MNIST in unequal i.i.d. shares, 300 clients, 15 a round",
        {
            Size.SMOKE: Setup(
                seeds=(1,),
                settings=("time_limit_s=1.5", "learner.data.samples=6000", "learner.data.test_samples=500"),
            ),
            Size.LAPTOP: Setup(seeds=(1, 2), settings=("time_limit_s=75",)),
            Size.FULL: Setup(seeds=(1, 2, 3, 4, 5)),
        },
    ),
    _reproduction(
        "pause_fig8_9",
        "Figures 8 and 9",
        ("pause_fig8", "pause_fig9"),
        "CIFAR-10 in unequal shares with a dominant label each, 300 clients, 15 a round",
        _cifar_sizes(6000, 12000),
        _CIFAR_NOTE,
    ),
    _reproduction(
        "pause_authors_mnist",
        "The MNIST study of the authors' code",
        (),
        "50,000 images of MNIST in equal shares, 300 clients, 15 a round, their settings",
        {
            Size.SMOKE: Setup(
                seeds=(1,),
                settings=("time_limit_s=1.5", "learner.data.samples=6000", "learner.data.test_samples=500"),
            ),
            Size.LAPTOP: Setup(seeds=(1, 2), settings=("time_limit_s=75",)),
            Size.FULL: Setup(seeds=(1, 2, 3, 4, 5)),
        },
        "The authors' logs have one seed each. Images in [-1, 1]; every client's Adam kept; unexplored clients in random order.",
        has_fastest=False,
    ),
    Reproduction(
        name="pause_authors_cifar10",
        paper=PAPER,
        shows="The CIFAR-10 study of the authors' code: accuracy against simulated time, largest leak against rounds; equal "
        "i.i.d. shares, 30 clients, 5 a round, their network and settings, beside PAUSE with everything protected",
        metrics=METRICS,
        figures=("accuracy", "leak"),
        groups=(
            ("pause", "random"),
            ("pause", "pause-statistics-local", "pause-group-norm"),
            ("pause", "random", "pause-statistics-local", "pause-group-norm", "all-no-privacy"),
        ),
        # The order in the paper, and a remark in the authors' code that layers of batch normalisation must go out bare.
        rules=(
            LowerInEach("pause", "random", "target_s", by=10.0),
            LowerInEach("pause", "random", "mean_round_s", by=0.1),
            LowerInEach("random", "pause", "final_accuracy", by=0.02),
            LowerInEach("pause", "all-no-privacy", "final_accuracy", by=0.02),
            LowerInEach("pause-statistics-local", "pause", "final_accuracy", by=0.1),
            LowerInEach("pause-group-norm", "pause", "final_accuracy", by=0.1),
        ),
        notes="One seed, as the authors' logs: there is no interval. Accuracies are means of the last 10 evaluations, one every "
        "other round. Where batch normalisation is sent bare, the curves are not private.",
        sizes={
            Size.SMOKE: Setup(
                seeds=(1,),
                settings=("time_limit_s=1.5", "learner.data.samples=3000", "learner.data.test_samples=200"),
            ),
            Size.LAPTOP: Setup(
                seeds=(1,),
                settings=("time_limit_s=38", "learner.data.samples=12000", "learner.data.test_samples=1000"),
            ),
            Size.FULL: Setup(seeds=(1,)),
        },
    ),
)
