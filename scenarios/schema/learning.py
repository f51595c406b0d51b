"""The `[learner]` table, derived from the learner's options: see `models.fl.options.names` for its keys.

Its components are written out here, so that a scenario can be read without importing torch.
"""

import inspect
import re
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue

from models.errors import ParameterError
from models.fl.data.files import DATASETS
from models.fl.options.demands import AsksNothing, check_demands
from models.fl.options.names import DataOptions, LearnerOptions
from models.fl.options.parameters import (
    STATISTICS_NOT_VOTED,
    AdamParameters,
    EqualParameters,
    FedAdagradParameters,
    FedAdamParameters,
    FedAvgMParameters,
    FedDynParameters,
    FedNovaParameters,
    FedYogiParameters,
    FixedShareParameters,
    HingeParameters,
    KrumParameters,
    MajorityVoteParameters,
    MixingParameters,
    PolynomialParameters,
    PortParameters,
    QFflParameters,
    ReflParameters,
    ScaffoldParameters,
    ServerSgdParameters,
    SgdParameters,
    TrimmedMeanParameters,
    check_decay,
)
from scenarios.registry.components import OWN_CLASS, Component, component_of
from scenarios.registry.in_process import stored_kind
from scenarios.registry.kinds import is_own, load_own
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.networks import NETWORKS, OwnNetwork
from scenarios.schema.section import Section, default_table, problem, refusal


def _read_data_set(value: object) -> object:
    """Return the name of a data set, or of a user's function that makes one; refuse anything else."""
    try:
        value = stored_kind("data", value)
    except UserError as error:
        raise refusal(str(error)) from error
    if not isinstance(value, str) or not (value in DATASETS or re.fullmatch(OWN_CLASS, value)):
        raise refusal(f"{did_you_mean(str(value), DATASETS)} (or a function of your own as 'package.module:function')")
    return value


_DATA_SET_JSON: JsonSchemaValue = {"anyOf": [{"enum": list(DATASETS)}, {"type": "string", "pattern": OWN_CLASS}]}
DataSet = Annotated[str, BeforeValidator(_read_data_set), WithJsonSchema(_DATA_SET_JSON)]


def _read_function(value: object) -> object:
    """Return the name of a user's function, as 'package.module:function'; refuse anything else."""
    try:
        value = stored_kind("function", value)
        if not isinstance(value, str) or not re.fullmatch(OWN_CLASS, value):
            raise refusal("name a function of your own as 'package.module:function'")
        if not inspect.isfunction(load_own(value)):
            raise refusal("is no function; name one as 'package.module:function'")
    except UserError as error:
        raise refusal(str(error)) from error
    return value


OwnFunction = Annotated[str, BeforeValidator(_read_function), WithJsonSchema({"type": "string", "pattern": OWN_CLASS})]

_DEFAULTS = LearnerOptions(network={}, optimizer={})


class Data(Section, DataOptions):  # type: ignore[misc]  # sections are frozen, which mypy does not see
    """The data set and how much of it is used."""

    kind: DataSet = DataOptions.kind  # type: ignore[assignment]  # by name only


class Sgd(Component, SgdParameters):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"


class Adam(Component, AdamParameters):
    """Adam (Kingma and Ba 2015); `learner.optimizer_state` says whether its moments go on."""

    kind: Literal["adam"] = "adam"


class AggregationTable(Component, AsksNothing):
    """Table of every aggregation."""


class BySize(AggregationTable):
    """Weights proportional to the samples of the clients delivered: FedAvg, over the successes where uploads fail."""

    kind: Literal["size"] = "size"


class Equal(AggregationTable, EqualParameters):
    """Equal weights over the clients delivered; or their sum (`divide`)."""

    kind: Literal["equal"] = "equal"


class ByContribution(AggregationTable):
    """Weights proportional to the clients' marginal contributions; needs contribution_samples."""

    kind: Literal["contribution"] = "contribution"


class Mixing(AggregationTable, MixingParameters):
    """The model moves a share of the way to each arriving model in turn (FedAsync, Xie et al. 2019).

    Staleness is the number of models made since the one an update started from: 0 for a fresh one. By the letter of FedAsync's
    Algorithm 1 (x_t out of x_{t-1}, staleness t - tau) a fresh one has 1; the text wants it to count in full, as it does here.
    """

    kind: Literal["mixing"] = "mixing"

    @model_validator(mode="after")
    def _check_mixing_decay(self) -> Self:
        try:
            check_decay("mixing_decay", self.mixing_decay or [])
        except ParameterError as error:
            raise problem((error.name,), error.value, error.reason) from error
        return self


class FixedShare(AggregationTable, FixedShareParameters):
    """Every client's update counts by its share of all clients, whoever else delivered; who did not stands for the present model
    (FedAvg in the code of SAFA's authors; with by = "equal" and alpha = 0.9 FedCompass, Li et al. 2024)."""

    kind: Literal["fixed-share"] = "fixed-share"


class Port(AggregationTable, PortParameters):
    """Weights by samples, staleness, and how far an update goes with what the server has done since it was begun (Port, Su and Li
    2022); they sum to 1."""

    kind: Literal["port"] = "port"


class Refl(AggregationTable, ReflParameters):
    """Fresh updates count alike, late ones by their age and by how far they go from the fresh ones (REFL, Abdelmoniem et al.
    2023); the weights sum to 1. For servers under which late updates count: semi-synchronous, buffered."""

    kind: Literal["refl"] = "refl"


class MajorityVote(AggregationTable, MajorityVoteParameters):
    """Every parameter moves by a fixed amount in the direction that most of the delivered updates give it (signSGD with majority
    vote, Bernstein et al. 2018). A client has one vote, whatever its samples; an old update's counts less, as staleness says."""

    kind: Literal["majority-vote"] = "majority-vote"


class Median(AggregationTable):
    """The median of each parameter over the delivered updates (Yin et al. 2018)."""

    kind: Literal["median"] = "median"


class TrimmedMean(AggregationTable, TrimmedMeanParameters):
    """The mean of each parameter over the delivered updates, without the largest and the smallest (Yin et al. 2018)."""

    kind: Literal["trimmed-mean"] = "trimmed-mean"


class Krum(AggregationTable, KrumParameters):
    """The mean of the updates whose nearest others are near (Krum, and with several Multi-Krum; Blanchard et al. 2017)."""

    kind: Literal["krum"] = "krum"


class Scaffold(AggregationTable, ScaffoldParameters):
    """SCAFFOLD (Karimireddy et al. 2020): clients correct their gradients by control variates, which go along with models and
    updates, each then twice as large; the mean of the delivered updates. Needs plain sgd and a synchronous server."""

    kind: Literal["scaffold"] = "scaffold"


class FedDyn(AggregationTable, FedDynParameters):
    """FedDyn (Acar et al. 2021): every client's objective gets a linear term, from its updates so far, and a proximal one; the
    mean of the delivered models, plus that of the sums of updates of all clients. Needs a synchronous server."""

    kind: Literal["feddyn"] = "feddyn"


class FedNova(AggregationTable, FedNovaParameters):
    """FedNova (Wang et al. 2020): updates are divided by how far their local steps went, weighted by samples, and multiplied by
    the mean of these lengths. Needs sgd, with or without momentum, and a synchronous server."""

    kind: Literal["fednova"] = "fednova"


class QFfl(AggregationTable, QFflParameters):
    """q-FFL by q-FedAvg (Li et al. 2020): updates count by a power of their clients' losses, so that losses come out more alike.
    Needs sgd, with or without momentum, and a synchronous server."""

    kind: Literal["q-ffl"] = "q-ffl"


class NoStaleness(Component):
    """Updates from old versions of the model count in full."""

    kind: Literal["none"] = "none"


class Polynomial(Component, PolynomialParameters):
    """An update s versions old counts (1 + s)^-exponent (FedAsync; FedBuff with 1/2)."""

    kind: Literal["polynomial"] = "polynomial"


class HingeStaleness(Component, HingeParameters):
    """An update s versions old counts in full up to `free` versions, then 1/(slope (s - free) + 1) (FedAsync)."""

    kind: Literal["hinge"] = "hinge"


class ServerSgd(Component, ServerSgdParameters):
    """The aggregated step times a rate; rate 1 is FedAvg."""

    kind: Literal["sgd"] = "sgd"


class FedAvgM(Component, FedAvgMParameters):
    """Server momentum (Hsu et al. 2019)."""

    kind: Literal["fedavgm"] = "fedavgm"


class FedAdam(Component, FedAdamParameters):
    """Server Adam without bias correction (Reddi et al. 2021)."""

    kind: Literal["fedadam"] = "fedadam"


class FedAdagrad(Component, FedAdagradParameters):
    """Server Adagrad (Reddi et al. 2021)."""

    kind: Literal["fedadagrad"] = "fedadagrad"


class FedYogi(Component, FedYogiParameters):
    """Server Yogi (Reddi et al. 2021)."""

    kind: Literal["fedyogi"] = "fedyogi"


OPTIMIZERS: dict[str, type[Component]] = {"sgd": Sgd, "adam": Adam}
AGGREGATIONS: dict[str, type[Component]] = {
    "size": BySize,
    "equal": Equal,
    "fixed-share": FixedShare,
    "contribution": ByContribution,
    "mixing": Mixing,
    "majority-vote": MajorityVote,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "port": Port,
    "refl": Refl,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "fednova": FedNova,
    "q-ffl": QFfl,
}
STALENESS: dict[str, type[Component]] = {"none": NoStaleness, "polynomial": Polynomial, "hinge": HingeStaleness}
SERVER_OPTIMIZERS: dict[str, type[Component]] = {
    "sgd": ServerSgd,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}


class Learner(Section, LearnerOptions):  # type: ignore[misc]  # sections are frozen, which mypy does not see
    """Training: its data, network and method. An update is computed when it is delivered; an unused one is never trained."""

    data: Data = default_table()
    partition: component_of("partition") = _DEFAULTS.partition  # type: ignore[valid-type]
    network: component_of("network", described=NETWORKS, base=OwnNetwork)  # type: ignore[valid-type]
    optimizer: component_of("optimizer", described=OPTIMIZERS)  # type: ignore[valid-type]
    local_training: OwnFunction | None = None
    trainer: component_of("trainer") | None = None  # type: ignore[valid-type]
    metrics: list[OwnFunction] = []
    aggregation: component_of("aggregation", described=AGGREGATIONS, base=AggregationTable) = _DEFAULTS.aggregation  # type: ignore[valid-type]
    staleness: component_of("staleness", described=STALENESS) = _DEFAULTS.staleness  # type: ignore[valid-type]
    server_optimizer: component_of("server_optimizer", described=SERVER_OPTIMIZERS) = _DEFAULTS.server_optimizer  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        """Refuse options that do not go together, and components that lack what they need of other keys."""
        try:
            self.options()  # its constructor checks the options that need no component
        except ParameterError as error:
            raise problem((error.name,), error.value, error.reason) from error
        if self.trainer is not None and self.local_training is not None:
            raise problem(("trainer", "kind"), self.trainer.kind, "give either this or local_training")
        self._check_demands()
        if self.aggregation.kind == "contribution" and not self.contribution_samples:
            raise problem(("contribution_samples",), 0, "must be > 0 for aggregation by contribution")
        if self.aggregation.kind == "majority-vote" and self.network.batch_normalised and self.batch_statistics == "averaged":
            raise problem(("aggregation", "kind"), "majority-vote", STATISTICS_NOT_VOTED)
        if self.contribution_samples and not self.data.validation_samples:
            raise problem(("contribution_samples",), self.contribution_samples, "needs data.validation_samples > 0")
        if self.optimizer_state == "kept" and self.optimizer.kind == "sgd" and not self.optimizer.momentum:
            raise problem(("optimizer_state",), "kept", "sgd without momentum has no state; leave it out")
        names = [metric.partition(":")[2] for metric in self.metrics]
        if len(set(names)) < len(names):
            raise problem(("metrics",), self.metrics, "names two functions alike; give each its own name")
        if self.batch_statistics == "local" and self.network.batch_normalised is False:
            raise problem(("batch_statistics",), "local", "the network keeps no running statistics; leave it out")
        return self

    def _check_demands(self) -> None:
        """Refuse local training and server optimizers that do not meet the demands of the aggregation."""
        optimizer, server_optimizer = self.optimizer, self.server_optimizer
        parameters = optimizer.parameters() if optimizer.kind == "sgd" else {}
        # The rate of a user's optimizer is unknown until it is built, and checked then; 1 passes here.
        rate = 1.0 if is_own("optimizer", optimizer.kind) else parameters.get("learning_rate")
        server_rate = server_optimizer.parameters()["learning_rate"] if server_optimizer.kind == "sgd" else None
        # The key with which the user gave training of their own, for messages. At most one of the two is given.
        training_key = None
        if self.local_training is not None:
            training_key = "local_training"
        elif self.trainer is not None:
            training_key = "trainer"
        try:
            check_demands(
                self.aggregation.demands,
                optimizer=optimizer.kind,
                rate=rate,
                momentum=parameters.get("momentum", 0.0),
                options=self.options(),
                own_training=training_key,
                server_optimizer=server_optimizer.kind,
                server_rate=server_rate,
            )
        except ParameterError as error:
            raise problem(tuple(error.name.split(".")), error.value, error.reason) from error

    def components(self) -> dict[str, Component]:
        """Return the tables with a `kind`, by their keys, which are also the names of the sorts of component."""
        components: dict[str, Component] = {
            "partition": self.partition,
            "network": self.network,
            "optimizer": self.optimizer,
            "aggregation": self.aggregation,
            "staleness": self.staleness,
            "server_optimizer": self.server_optimizer,
        }
        if self.trainer is not None:
            components["trainer"] = self.trainer
        return components

    def options(self) -> LearnerOptions:
        """Return the options as `models.fl` takes them, without pydantic: each component as a dictionary."""
        values = {option.name: getattr(self, option.name) for option in fields(LearnerOptions)}
        values |= {name: component_options(component) for name, component in self.components().items()}
        values["data"] = DataOptions(**dict(self.data))
        return LearnerOptions(**values)


def component_options(section: Any) -> dict[str, Any]:
    """Return the table of a component as a dictionary, keys without a value left out."""
    return {key: value for key, value in section.model_dump().items() if value is not None}
