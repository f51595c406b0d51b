"""Tables that others published of methods that nobody here tuned: SAFA's (Wu et al. 2021)."""

from __future__ import annotations

from scenarios.papers.study import Reproduction, Setup, Size

PAPER = "Wu et al. 2021, SAFA"

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
            Size.SMOKE: Setup(seeds=(1, 2), settings=("rounds=5",), cost="seconds"),
            Size.LAPTOP: Setup(seeds=tuple(range(1, 26)), cost="a minute of one core"),
            Size.PAPER: Setup(seeds=tuple(range(1, 201)), cost="6 minutes of one core"),
        },
    ),
)
