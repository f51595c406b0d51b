"""Parameters of a learner's methods, once: names, types, bounds, defaults and meaning. No torch: a scenario is read without it.

The tables of a scenario are derived from these classes (`scenarios.schema.learning`), and so are the methods themselves, which
refuse values out of bounds. A class without parameters is not listed.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from models.errors import ParameterError
from models.fl.bounds import Count, Decay, Fraction, Positive, Power, Rate, Share, UnderHalf, Whole, check_bounds
from models.fl.demands import AsksNothing, Demands

STATISTICS_NOT_VOTED = (
    "running statistics of batch normalisation cannot be voted on; use batch_statistics = 'local', or a network without them"
)


@dataclass(kw_only=True, eq=False)
class Parameters:
    """Parameters of one method.

    Raises:
        ParameterError: a value out of its bounds, named TABLE.PARAMETER.
    """

    table: ClassVar[str]

    def __post_init__(self) -> None:
        check_bounds(self, f"{self.table}.")


def check_decay(name: str, decay: list[list[float]]) -> None:
    """Refuse what are no pairs of a version and a factor in (0, 1], versions ascending from 1.

    Raises:
        ParameterError: of `name`.
    """
    for pair in decay:
        if len(pair) != 2 or not (pair[0] >= 1 and float(pair[0]).is_integer()) or not 0 < pair[1] <= 1:
            raise ParameterError(name, decay, "must be pairs [version, factor], a whole number >= 1 and a number > 0 and <= 1")
    versions = [pair[0] for pair in decay]
    if sorted(set(versions)) != versions:
        raise ParameterError(name, decay, "must have ascending versions, each once")


@dataclass(kw_only=True, eq=False)
class SgdParameters(Parameters):
    """Of stochastic gradient descent."""

    table = "optimizer"
    learning_rate: Rate
    """Step size."""
    momentum: Fraction = 0.0
    """Share of the last step that the next one keeps."""
    weight_decay: Decay = 0.0
    """Multiple of the parameters added to the gradient."""


@dataclass(kw_only=True, eq=False)
class AdamParameters(Parameters):
    """Of Adam."""

    table = "optimizer"
    learning_rate: Rate
    """Step size."""
    beta1: Fraction = 0.9
    """Decay of the mean of gradients."""
    beta2: Fraction = 0.999
    """Decay of the mean of squared gradients."""
    epsilon: Rate = 1e-8
    """Added to the root of the latter."""
    weight_decay: Decay = 0.0
    """Multiple of the parameters added to the gradient."""


@dataclass(kw_only=True, eq=False)
class EqualParameters(Parameters):
    """Of aggregation with the same weight for all updates."""

    table = "aggregation"
    divide: Literal["buffer", "none"] = "buffer"
    """Whether the sum of the updates is divided by their number, or taken as it is (as FedBuff's authors' FLSim does)."""


@dataclass(kw_only=True, eq=False)
class MixingParameters(Parameters):
    """Of aggregation one update after the other."""

    table = "aggregation"
    alpha: Share = 0.6
    """The share, for an update of staleness 0."""
    mixing_decay: list[list[float]] | None = None
    """Pairs [version, factor], versions ascending: from the model of that version on, alpha is multiplied by that factor, beside
    those of the pairs before. Absent: alpha stays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(f"{self.table}.mixing_decay", self.mixing_decay or [])


@dataclass(kw_only=True, eq=False)
class FixedShareParameters(Parameters):
    """Of aggregation with a share for each client that does not depend on who delivers."""

    table = "aggregation"
    by: Literal["size", "equal"] = "size"
    """A client's share: of all samples, or the same for all clients."""
    alpha: Share = 1.0
    """What all shares are multiplied by."""
    form: Literal["update", "mixing"] = "update"
    """What is added: the update, or the difference of the client's model from the present one."""


@dataclass(kw_only=True, eq=False)
class PortParameters(Parameters):
    """Of aggregation by staleness and direction."""

    table = "aggregation"
    bound: Count = 10
    """b, the staleness at which an update counts half as much for its freshness."""
    similarity: Decay = 1.0
    """w_s, the weight of an update's direction beside the server's movement since it was begun."""
    freshness: Positive = 1.0
    """w_t, the weight of its freshness."""


@dataclass(kw_only=True, eq=False)
class ReflParameters(Parameters):
    """Of aggregation by age and by deviation from the fresh updates."""

    table = "aggregation"
    beta: Fraction = 0.35
    """beta, the weight of a late update's deviation beside that of its age."""
    scale: Positive = 1.0
    """What the exponent of the deviation is divided by; 10 in the authors' code."""


@dataclass(kw_only=True, eq=False)
class MajorityVoteParameters(Parameters):
    """Of aggregation by the signs of the updates."""

    table = "aggregation"
    learning_rate: Rate
    """How far each parameter moves in the direction that most updates give it."""
    tie: Literal["stay", "random"] = "stay"
    """Where as many want up as down: stay, or up or down at random."""


@dataclass(kw_only=True, eq=False)
class TrimmedMeanParameters(Parameters):
    """Of the mean without the extremes."""

    table = "aggregation"
    share: UnderHalf = 0.1
    """Share of the updates left out at each end, for each parameter; < 0.5."""


@dataclass(kw_only=True, eq=False)
class KrumParameters(Parameters):
    """Of aggregation by the updates that have others nearby."""

    table = "aggregation"
    wrong: Whole = 1
    """f, how many of the delivered updates may be wrong."""
    selected: Count = 1
    """How many updates enter the mean; 1: Krum, more: Multi-Krum."""


@dataclass(kw_only=True, eq=False)
class ScaffoldParameters(Parameters, AsksNothing):
    """Of aggregation of updates that control variates correct."""

    table = "aggregation"
    renewal: Literal["steps", "gradient"] = "steps"
    """What renews a control variate: the mean gradient of the local steps (the paper's option II), or the gradient over all
    samples at the received model, a pass of its own, which takes as long as one in training (option I)."""

    @property
    def demands(self) -> Demands:  # type: ignore[override]  # follows from a parameter
        gradient = self.renewal == "gradient"
        return Demands(name="scaffold", vectors=1, fresh=True, steps="plain", exact=True, gradient=gradient)


@dataclass(kw_only=True, eq=False)
class FedDynParameters(Parameters, AsksNothing):
    """Of aggregation of updates with dynamic regularisation."""

    table = "aggregation"
    demands = Demands(name="feddyn", fresh=True, own_pull=True, exact=True, sets_model=True)
    alpha: Rate = 0.01
    """How strongly clients are drawn to the received model; their linear terms are in proportion to it."""


@dataclass(kw_only=True, eq=False)
class FedNovaParameters(Parameters, AsksNothing):
    """Of aggregation of normalised updates."""

    table = "aggregation"
    demands = Demands(name="fednova", report_bytes=8, fresh=True, steps="linear")


@dataclass(kw_only=True, eq=False)
class QFflParameters(Parameters, AsksNothing):
    """Of aggregation by which clients with large losses count more."""

    table = "aggregation"
    q: Power = 1.0
    """How much more: updates count by the q-th power of their clients' losses; 0: the mean."""
    exact_loss: bool = True
    """Losses are those of the received model over all samples: a forward pass before training, which takes work.forward_share of
    the time of training on them. Otherwise those of the first pass in training, which changes the model on the way."""

    @property
    def demands(self) -> Demands:  # type: ignore[override]  # follows from a parameter
        loss: Literal["received", "running"] = "received" if self.exact_loss else "running"
        return Demands(name="q-ffl", report_bytes=8, fresh=True, steps="linear", loss=loss)


@dataclass(kw_only=True, eq=False)
class PolynomialParameters(Parameters):
    """Of weights that fall as a power of staleness."""

    table = "staleness"
    exponent: Positive = 0.5
    """How fast weights fall with staleness."""


@dataclass(kw_only=True, eq=False)
class HingeParameters(Parameters):
    """Of weights that fall from some staleness on."""

    table = "staleness"
    free: Whole = 4
    """Staleness, in versions, that costs nothing."""
    slope: Positive = 10.0
    """How fast weights fall beyond."""


@dataclass(kw_only=True, eq=False)
class ServerSgdParameters(Parameters):
    """Of a server that takes the aggregated step."""

    table = "server_optimizer"
    learning_rate: Rate = 1.0
    """Rate of the aggregated step."""


@dataclass(kw_only=True, eq=False)
class FedAvgMParameters(Parameters):
    """Of server momentum."""

    table = "server_optimizer"
    learning_rate: Rate = 1.0
    """Rate of the step with momentum."""
    momentum: Fraction = 0.9
    """Share of the last step that the next one keeps."""


@dataclass(kw_only=True, eq=False)
class FedAdamParameters(Parameters):
    """Of server Adam."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.9
    """Decay of the mean of steps."""
    beta2: Fraction = 0.99
    """Decay of the mean of squared steps."""
    tau: Rate = 1e-3
    """Added to the root of the second moment; that moment starts at its square."""


@dataclass(kw_only=True, eq=False)
class FedAdagradParameters(Parameters):
    """Of server Adagrad."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.0
    """Decay of the mean of steps."""
    tau: Rate = 1e-3
    """Added to the root of the sum of squared steps; that sum starts at its square."""


@dataclass(kw_only=True, eq=False)
class FedYogiParameters(Parameters):
    """Of server Yogi."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.9
    """Decay of the mean of steps."""
    beta2: Fraction = 0.99
    """1 - beta2 is how far the second moment moves towards the squared step, by its sign."""
    tau: Rate = 1e-3
    """Added to the root of the second moment; that moment starts at its square."""
