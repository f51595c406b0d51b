"""Parameters of a learner's methods: names, types, bounds, defaults and meaning. No torch: a scenario is read without it.

The tables of a scenario are derived from these classes (`scenarios.schema.learning`), and so are the methods themselves, which
refuse values out of bounds. Methods without parameters have no class here.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from models.errors import ParameterError
from models.fl.options.bounds import Count, Decay, Fraction, Positive, Power, Rate, Share, UnderHalf, Whole, check_bounds
from models.fl.options.demands import AsksNothing, Demands

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
    """Check that `decay` holds pairs of a version and a factor in (0, 1], versions ascending from 1.

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
    """Parameters of stochastic gradient descent."""

    table = "optimizer"
    learning_rate: Rate
    """Step size."""
    momentum: Fraction = 0.0
    """Share of the last step that the next one keeps."""
    weight_decay: Decay = 0.0
    """Multiple of the parameters added to the gradient."""


@dataclass(kw_only=True, eq=False)
class AdamParameters(Parameters):
    """Parameters of Adam."""

    table = "optimizer"
    learning_rate: Rate
    """Step size."""
    beta1: Fraction = 0.9
    """Decay of the mean of gradients."""
    beta2: Fraction = 0.999
    """Decay of the mean of squared gradients."""
    epsilon: Rate = 1e-8
    """Number added to the root of the mean of squared gradients."""
    weight_decay: Decay = 0.0
    """Multiple of the parameters added to the gradient."""


@dataclass(kw_only=True, eq=False)
class EqualParameters(Parameters):
    """Parameters of aggregation with equal weights."""

    table = "aggregation"
    divide: Literal["buffer", "none"] = "buffer"
    """buffer: divide the sum of the updates by their number; none: take the sum (as FLSim, the code of FedBuff's authors,
    does).
    """


@dataclass(kw_only=True, eq=False)
class MixingParameters(Parameters):
    """Parameters of aggregation one update after the other."""

    table = "aggregation"
    alpha: Share = 0.6
    """Share of an update of staleness 0."""
    mixing_decay: list[list[float]] | None = None
    """Pairs [version, factor], versions ascending: from the model of that version on, alpha is multiplied by that factor, and
    by those of earlier pairs. Absent: alpha is constant.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(f"{self.table}.mixing_decay", self.mixing_decay or [])


@dataclass(kw_only=True, eq=False)
class FixedShareParameters(Parameters):
    """Parameters of aggregation with shares that do not depend on the deliveries."""

    table = "aggregation"
    by: Literal["size", "equal"] = "size"
    """Share of a client: that of all samples, or the same for all clients."""
    alpha: Share = 1.0
    """Factor of all shares."""
    form: Literal["update", "mixing"] = "update"
    """Added vector: the update, or the difference of the client's model from the present one."""


@dataclass(kw_only=True, eq=False)
class PortParameters(Parameters):
    """Parameters of aggregation by staleness and direction."""

    table = "aggregation"
    bound: Count = 10
    """b, the staleness at which the freshness of an update counts half."""
    similarity: Decay = 1.0
    """w_s, the weight of an update's direction relative to the server's movement since it started."""
    freshness: Positive = 1.0
    """w_t, the weight of its freshness."""


@dataclass(kw_only=True, eq=False)
class ReflParameters(Parameters):
    """Parameters of aggregation by age and by deviation from the fresh updates."""

    table = "aggregation"
    beta: Fraction = 0.35
    """Weight of a late update's deviation; 1 - beta is that of its age."""
    scale: Positive = 1.0
    """Divisor of the exponent of the deviation; 10 in the authors' code."""


@dataclass(kw_only=True, eq=False)
class MajorityVoteParameters(Parameters):
    """Parameters of aggregation by the signs of the updates."""

    table = "aggregation"
    learning_rate: Rate
    """Distance by which each parameter moves in the direction of most updates."""
    tie: Literal["stay", "random"] = "stay"
    """Direction at a tie: stay, or up or down at random."""


@dataclass(kw_only=True, eq=False)
class TrimmedMeanParameters(Parameters):
    """Parameters of the mean without the extremes."""

    table = "aggregation"
    share: UnderHalf = 0.1
    """Share of the updates left out at each end, for each parameter; < 0.5."""


@dataclass(kw_only=True, eq=False)
class KrumParameters(Parameters):
    """Parameters of aggregation by the updates that have others nearby."""

    table = "aggregation"
    wrong: Whole = 1
    """f, the number of delivered updates that may be wrong."""
    selected: Count = 1
    """Number of updates in the mean; 1: Krum, more: Multi-Krum."""


@dataclass(kw_only=True, eq=False)
class ScaffoldParameters(Parameters, AsksNothing):
    """Parameters of aggregation of updates that control variates correct."""

    table = "aggregation"
    renewal: Literal["steps", "gradient"] = "steps"
    """Source of a new control variate: the mean gradient of the local steps (the paper's option II), or the gradient over all
    samples at the received model, a pass of its own, which takes as long as one in training (option I).
    """

    @property
    def demands(self) -> Demands:  # type: ignore[override]  # follows from a parameter
        gradient = self.renewal == "gradient"
        return Demands(name="scaffold", vectors=1, fresh=True, steps="plain", exact=True, gradient=gradient)


@dataclass(kw_only=True, eq=False)
class FedDynParameters(Parameters, AsksNothing):
    """Parameters of aggregation of updates with dynamic regularisation."""

    table = "aggregation"
    demands = Demands(name="feddyn", fresh=True, own_pull=True, exact=True, sets_model=True)
    alpha: Rate = 0.01
    """Strength with which clients are drawn to the received model; their linear terms are proportional to it."""


@dataclass(kw_only=True, eq=False)
class FedNovaParameters(Parameters, AsksNothing):
    """Parameters of aggregation of normalised updates: none."""

    table = "aggregation"
    demands = Demands(name="fednova", report_bytes=8, fresh=True, steps="linear")


@dataclass(kw_only=True, eq=False)
class QFflParameters(Parameters, AsksNothing):
    """Parameters of aggregation in which clients with large losses count more."""

    table = "aggregation"
    q: Power = 1.0
    """Power of the clients' losses by which updates count; 0: the mean."""
    exact_loss: bool = True
    """True: losses are those of the received model over all samples, in a forward pass before training, which takes
    work.forward_share of the time of training on them. False: those of the first pass in training, during which the model
    changes.
    """

    @property
    def demands(self) -> Demands:  # type: ignore[override]  # follows from a parameter
        loss: Literal["received", "running"] = "received" if self.exact_loss else "running"
        return Demands(name="q-ffl", report_bytes=8, fresh=True, steps="linear", loss=loss)


@dataclass(kw_only=True, eq=False)
class PolynomialParameters(Parameters):
    """Parameters of weights that fall as a power of staleness."""

    table = "staleness"
    exponent: Positive = 0.5
    """Exponent: the larger, the faster weights fall with staleness."""


@dataclass(kw_only=True, eq=False)
class HingeParameters(Parameters):
    """Parameters of weights that fall above some staleness."""

    table = "staleness"
    free: Whole = 4
    """Largest staleness, in versions, at which an update counts in full."""
    slope: Positive = 10.0
    """Slope: the larger, the faster weights fall beyond."""


@dataclass(kw_only=True, eq=False)
class ServerSgdParameters(Parameters):
    """Parameters of a server that takes the aggregated step."""

    table = "server_optimizer"
    learning_rate: Rate = 1.0
    """Rate of the aggregated step."""


@dataclass(kw_only=True, eq=False)
class FedAvgMParameters(Parameters):
    """Parameters of server momentum."""

    table = "server_optimizer"
    learning_rate: Rate = 1.0
    """Rate of the step with momentum."""
    momentum: Fraction = 0.9
    """Share of the last step that the next one keeps."""


@dataclass(kw_only=True, eq=False)
class FedAdamParameters(Parameters):
    """Parameters of server Adam."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.9
    """Decay of the mean of steps."""
    beta2: Fraction = 0.99
    """Decay of the mean of squared steps."""
    tau: Rate = 1e-3
    """Number added to the root of the second moment; that moment starts at its square."""


@dataclass(kw_only=True, eq=False)
class FedAdagradParameters(Parameters):
    """Parameters of server Adagrad."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.0
    """Decay of the mean of steps."""
    tau: Rate = 1e-3
    """Number added to the root of the sum of squared steps; that sum starts at its square."""


@dataclass(kw_only=True, eq=False)
class FedYogiParameters(Parameters):
    """Parameters of server Yogi."""

    table = "server_optimizer"
    learning_rate: Rate = 0.01
    """Rate of the scaled step."""
    beta1: Fraction = 0.9
    """Decay of the mean of steps."""
    beta2: Fraction = 0.99
    """Decay of the second moment, which moves by 1 - beta2 times the squared step, towards it."""
    tau: Rate = 1e-3
    """Number added to the root of the second moment; that moment starts at its square."""
