"""Client analytics: FL&FA and FL&DA (Tong et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.papers.rules import Lower, Near, Rule, Trend
from scenarios.papers.study import Reproduction, Setup, Size

PAPER = "Tong et al. 2024, client analytics"
NEAREST = (
    "slots.rounds=1",
    "learner.epochs=1",
    "learner.max_steps=10",
    "learner.loss=squared-hinge",
    "learner.optimizer.learning_rate=5e-8",
)
"""Reading of the paper's SVM that comes closest to Table I: ten classes, half the squared hinge, 10 steps a slot."""
READING = (
    "The paper does not say which SVM it trains, nor what E = 10 counts. The sizes smoke and laptop take the reading that comes "
    "nearest to Table I (half the squared hinge, 10 steps a slot); the size full takes the scenario's, where E counts epochs "
    "of 15 rounds. The paper averages 100 trials."
)
_SMALL = ("learner.data.samples=6000", "learner.data.test_samples=500", "learner.partition.minimum=10")


def _sizes(laptop_slots: int, seeds: int = 100) -> dict[Size, Setup]:
    """Return the setup of each size: slots of the size laptop, and `seeds` of the size full."""
    # In a scenario with slots, the key `rounds` counts slots.
    return {
        Size.SMOKE: Setup(seeds=(1,), settings=("rounds=8", *NEAREST, *_SMALL)),
        Size.LAPTOP: Setup(seeds=(1, 2, 3, 4, 5), settings=(f"rounds={laptop_slots}", *NEAREST)),
        Size.FULL: Setup(seeds=tuple(range(1, seeds + 1))),
    }


def _accuracy_study(
    name: str,
    shows: str,
    *,
    rules: tuple[Rule, ...],
    published: Mapping[str, Mapping[str, str]],
    metrics: tuple[str, ...] = ("final_accuracy",),
    against: tuple[str, ...] = (),
    slots: int = 200,
) -> Reproduction:
    """Return the reproduction of a figure of accuracy over slots. `slots`: slots of the size laptop.

    The other arguments are fields of `Reproduction`.
    """
    return Reproduction(
        name=name,
        paper=PAPER,
        shows=shows,
        metrics=metrics,
        figures=("accuracy",),
        against=against,
        published=published,
        rules=rules,
        notes=READING,
        sizes=_sizes(slots),
    )


def _published_accuracy(per_cent: str) -> dict[str, str]:
    """Return the published values of a variant of which the paper gives only the final accuracy."""
    return {"final_accuracy": per_cent}


_LATENCY_KEY, _SUCCESS_KEY = "peers.delay.mean_excess_s", "peers.channel.success"
_MESSAGES_NOTE = "Footnote 4 leaves out the time that messages take; the paper has no figure of it."


def _message_study(name: str, subject: str, key: str, smoke_values: str, rounds: int) -> Reproduction:
    """Return a study of messages that take time or are lost, shown against the values of `key`.

    `smoke_values`: values of `key` at the size smoke, in TOML. `rounds`: rounds of the scenario; the size laptop has a quarter.
    """
    return Reproduction(
        name=name,
        paper=PAPER,
        shows=f"Footnote 4, up to where it holds: {subject}",
        metrics=("agreed_s", "agreed_share", "disagreement", "messages", "regret"),
        against=(key,),
        notes=_MESSAGES_NOTE,
        consensus=True,
        sizes={
            Size.SMOKE: Setup(seeds=(1, 2), settings=("rounds=2", f'sweep.grid={{"{key}" = {smoke_values}}}')),
            Size.LAPTOP: Setup(seeds=(1, 2, 3, 4), settings=(f"rounds={rounds // 4}",)),
            Size.FULL: Setup(seeds=tuple(range(1, 11))),
        },
    )


REPRODUCTIONS = (
    _accuracy_study(
        "analytics_fig5",
        "Figure 5: loss and accuracy by how many clients take part, and which",
        rules=(
            Lower("random-1", "random-5", "final_accuracy"),
            Lower("random-5", "random-15", "final_accuracy"),
            Lower("set-1", "set-4", "final_accuracy"),
        ),
        published=dict.fromkeys(
            ("random-1", "random-5", "random-10", "random-15", "set-1", "set-4"), _published_accuracy("curve only")
        ),
        metrics=("final_accuracy", "training_loss"),
    ),
    Reproduction(
        name="analytics_fig6",
        paper=PAPER,
        shows="Figure 6: how often Quick-Init UCB selects each client",
        metrics=("iid_share", "participation_jain"),
        rules=(Near("quick-init-ucb", "iid_share", 0.717, 0.05),),
        published={"quick-init-ucb": {"iid_share": "71.7 (228.95 selections against 90.34)"}},
        notes=f"{READING} Selections are compared as the share that the five clients with i.i.d. data have of the sum of "
        "both means: 228.95 / (228.95 + 90.34); 50 % is chance.",
        sizes=_sizes(500),
    ),
    _accuracy_study(
        "analytics_fig7",
        "Figure 7: FL&FA, Quick-Init UCB against the optimal set, random selection, round-robin and conventional UCB",
        rules=(
            Near("quick-init-ucb", "final_accuracy", 0.8657, 0.02),
            Lower("random", "quick-init-ucb", "final_accuracy", by=0.02),
            Lower("random-set", "quick-init-ucb", "final_accuracy", by=0.02),
            Lower("quick-init-ucb", "optimal", "final_accuracy"),
        ),
        published={
            "optimal": _published_accuracy("88.0"),
            "random": _published_accuracy("76.62"),
            "random-set": _published_accuracy("76.62"),
            "quick-init-ucb": _published_accuracy("86.57"),
            "round-robin": _published_accuracy("curve only"),
            "ucb": _published_accuracy('"similar to random"'),
        },
    ),
    Reproduction(
        name="analytics_fig8",
        paper=PAPER,
        shows="Figure 8: the beliefs of the first five clients slot by slot",
        metrics=(),
        beliefs=True,
        notes=READING,
        sizes=_sizes(200, seeds=10),
    ),
    _accuracy_study(
        "analytics_fig9",
        "Figure 9: FL&DA, BP-UCB against the optimal set and random selection",
        rules=(
            Near("bp-ucb", "final_accuracy", 0.8628, 0.02),
            Lower("random", "bp-ucb", "final_accuracy", by=0.02),
            Lower("bp-ucb", "optimal", "final_accuracy"),
        ),
        published={
            "optimal": _published_accuracy("89.4"),
            "random": _published_accuracy("72.02"),
            "random-set": _published_accuracy("72.02"),
            "bp-ucb": _published_accuracy("86.28"),
        },
    ),
    _accuracy_study(
        "analytics_fig10",
        "Figure 10: accuracy where uploads succeed with probability 1, 0.75 and 0.5",
        rules=(
            Trend("uplink.channel.success", "final_accuracy", among="quick-init-ucb"),
            Trend("uplink.channel.success", "final_accuracy", among="bp-ucb+"),
        ),
        published={},
        against=("uplink.channel.success",),
    ),
    _accuracy_study(
        "analytics_fig11",
        "Figure 11: accuracy with 20, 40 and 60 clients",
        rules=(
            Trend("clients.count", "final_accuracy", rises=False, among="quick-init-ucb"),
            Trend("clients.count", "final_accuracy", rises=False, among="bp-ucb+"),
        ),
        published={},
        against=("clients.count",),
    ),
    _accuracy_study(
        "analytics_fig12",
        "Figure 12: accuracy with 20 to 200 clients, where the paper's Quick-Init UCB stops at 80",
        rules=(Trend("clients.count", "final_accuracy", rises=False, among="quick-init-ucb"),),
        published={},
        against=("clients.count",),
        slots=100,
    ),
    Reproduction(
        name="analytics_table1",
        paper=PAPER,
        shows="Table I: slots to an accuracy of 0.75, 0.78, 0.82 and 0.85, mean of min(slot, 500)",
        metrics=("target_s", "final_accuracy"),
        figures=("accuracy", "target"),
        targets=(0.75, 0.78, 0.82, 0.85),
        slots_to_target=True,
        published={
            "optimal": {"target_s": "6 / 7 / 11 / 19"},
            "random": {"target_s": "40 / 391 / 500 / 500"},
            "random-set": {"target_s": "40 / 391 / 500 / 500"},
            "quick-init-ucb": {"target_s": "9.9 / 13.6 / 26.4 / 111"},
            "bp-ucb": {"target_s": "14.1 / 23.6 / 58 / 132"},
        },
        rules=(
            Lower("optimal", "quick-init-ucb", "target_s"),
            Lower("quick-init-ucb", "bp-ucb", "target_s"),
            Lower("bp-ucb", "random", "target_s"),
            Lower("bp-ucb", "random-set", "target_s"),
        ),
        notes=READING,
        sizes=_sizes(500),
    ),
    _message_study(
        "bp_ucb_timing", "agreement, disagreement and regret against message latency", _LATENCY_KEY, "[0.001, 0.1]", 100
    ),
    _message_study("bp_ucb_timing_loss", "the same by the share of messages that arrive", _SUCCESS_KEY, "[1.0, 0.8]", 100),
    _message_study("bp_ucb_timing_topology", "the same against the graph between the clients", _LATENCY_KEY, "[0.03, 0.3]", 200),
)
