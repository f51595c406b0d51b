"""Validation against published tables of methods that were not tuned for it: SAFA's (Wu et al. 2021)."""

from __future__ import annotations

from scenarios.papers.study import Reproduction, Setup, Size

PAPER = "Wu et al. 2021, SAFA"


def _grid_of_most_crashes(*picked: int) -> str:
    """Return the setting that limits the sweep to the cells of most crashes. They train least, so they are the cheapest."""
    return f'sweep.grid={{"server.crash" = [0.7], "server.picked" = {list(picked)}}}'


REPRODUCTIONS = (
    Reproduction(
        name="safa_table",
        paper=PAPER,
        shows="Round lengths, MNIST: FedAvg, FedCS and SAFA by share picked and crash probability",
        metrics=(),
        cells=True,
        notes="Shards and speeds are drawn for every seed; the authors drew their speeds once. Their counter of distributed "
        "models is never reset (as published); the models of the round alone are counted as intended. Where a client's training "
        "fits into the limit and its messages do not, it takes exactly the limit, as in their code.",
        sizes={
            Size.SMOKE: Setup(seeds=(1, 2), settings=("rounds=5",)),
            Size.LAPTOP: Setup(seeds=tuple(range(1, 26))),
            Size.FULL: Setup(seeds=tuple(range(1, 201))),
        },
    ),
    Reproduction(
        name="safa_accuracy",
        paper=PAPER,
        shows="Accuracies, MNIST: FedAvg, FedCS and SAFA by share picked and crash probability",
        metrics=(),
        accuracies=True,
        notes="Shards, speeds and crashes are those of all methods at a seed; rounds take no time. Where no client is too slow "
        "for the limit, FedCS is FedAvg run by run. In round 1 a client that crashes trains one epoch all the same, from which "
        "SAFA's client goes on.",
        sizes={
            Size.SMOKE: Setup(
                seeds=(1,),
                settings=("rounds=2", _grid_of_most_crashes(10), "learner.data.samples=12000", "learner.data.test_samples=1000"),
            ),
            Size.LAPTOP: Setup(seeds=(1,), settings=(_grid_of_most_crashes(10, 30),)),
            Size.FULL: Setup(seeds=(1,)),
        },
    ),
)
