"""A learner from plain tables, as a scenario file holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from models.errors import ParameterError
from models.fl.aggregation.rules import STALENESS
from models.fl.aggregation.server_optimizers import SERVER_OPTIMIZERS
from models.fl.compression.none import NoCompression
from models.fl.data.datasets import load_dataset
from models.fl.data.partition import make_partition
from models.fl.evaluation.quality import Randomness
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import ALL_AGGREGATIONS, Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import LOSSES, NETWORKS, Factory, check_fit, from_factory
from models.fl.options.keywords import check_options
from models.fl.options.names import LearnerOptions, Table
from models.fl.privacy.mechanisms import MECHANISMS
from models.fl.privacy.unprotected import Unprotected
from models.fl.protocols import Compression
from models.fl.store.memory import is_out_of_memory
from models.fl.training.executors import Workers
from models.fl.training.optimizers import OPTIMIZERS
from models.laws.work import WorkPlan


def _make_component(
    table: str, spec: Table, key: str, choices: Mapping[str, Callable[..., Any]], supplied: Mapping[str, Any]
) -> Any:
    """Return the component that the table `spec` of a scenario describes.

    `spec[key]` is a name among `choices`, or a user's own class or function. It is called with the other keys of `spec` and with
    the keywords `supplied` by the program. `table`: name of the table, for messages.
    """
    options = dict(spec)
    name = options.pop(key, None)
    function = name if callable(name) else choices.get(str(name))
    if function is None:
        raise ParameterError(f"{table}.{key}", name, f"must be one of {', '.join(choices)}")
    check_options(table, function, options, supplied=tuple(supplied))
    return function(**options, **supplied)


def build_network(spec: Table, input_shape: tuple[int, ...], classes: int, *, seed: int) -> nn.Module:
    """Return the network that `spec` describes, checked against the shapes of the data.

    "kind" names an entry of `networks.NETWORKS`, or is a class or function of the user's own (`networks.from_factory`).

    Raises:
        ParameterError: the network cannot be made, or does not fit the data; the name begins with "network".
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind is not None and not isinstance(kind, str):
        factory: Factory = partial(kind, **options)
        try:
            module = from_factory(factory, input_shape, classes, seed=seed)
        except Exception as error:  # whatever the user's own code does
            raise ParameterError("network.kind", kind, f"could not be made ({type(error).__name__}: {error})") from error
        if not isinstance(module, nn.Module):
            raise ParameterError("network.kind", kind, f"returned {type(module).__name__}; it must return a torch module")
    else:
        stated_classes = options.pop("classes", None)
        if stated_classes is not None and stated_classes != classes:
            raise ParameterError("network.classes", stated_classes, f"the data have {classes} classes; leave it out")
        supplied = {"input_shape": input_shape, "classes": classes, "seed": seed}
        try:
            module = _make_component("network", {"kind": kind, **options}, "kind", NETWORKS, supplied)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise ParameterError("network.kind", kind, "is too large for the memory of this machine; make it smaller") from error
    check_fit(module, input_shape, classes)
    return module


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Protection of an update."""

    mechanism: Table
    """By its "mode" a mechanism of `mechanisms.MECHANISMS`, with its parameters."""
    unprotected: Unprotected | None = None
    """Part of an update that the mechanism leaves as it is; None: no part."""


UNPROTECTED = Protection(mechanism={"mode": "none"})


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Surroundings of a learner, set by its run. `FederatedLearner` explains the fields."""

    plan: WorkPlan | None = None
    cached: bool = False
    workers: Workers | None = None


def _methods(options: LearnerOptions, protection: Protection, compressions: tuple[Compression, Compression]) -> Methods:
    """Return the methods that the options name; `compressions`: of updates and of models."""
    if options.trainer is not None and options.local_training is not None:
        raise ParameterError("trainer", options.trainer, "give either this or local_training")
    trainer = None
    if options.trainer is not None:
        # Trainers have no names: the kind is the user's own class or function.
        trainer = _make_component("trainer", options.trainer, "kind", {}, {})
    up_compression, down_compression = compressions
    return Methods(
        optimizer=_make_component("optimizer", options.optimizer, "kind", OPTIMIZERS, {}),
        mechanism=_make_component("mechanism", protection.mechanism, "mode", MECHANISMS, {}),
        unprotected=protection.unprotected,
        aggregation=_make_component("aggregation", options.aggregation, "kind", ALL_AGGREGATIONS, {}),
        staleness=_make_component("staleness", options.staleness, "kind", STALENESS, {}),
        server_optimizer=_make_component("server_optimizer", options.server_optimizer, "kind", SERVER_OPTIMIZERS, {}),
        trainer=trainer,
        local_training=options.local_training if callable(options.local_training) else None,
        metrics={metric.__name__: metric for metric in options.metrics},
        compression=up_compression,
        down_compression=down_compression,
    )


def build_learner(
    options: LearnerOptions,
    *,
    clients: int,
    streams: Randomness,
    data_root: Path,
    protection: Protection = UNPROTECTED,
    compressions: tuple[Compression, Compression] | None = None,
    surroundings: Surroundings | None = None,
) -> FederatedLearner:
    """Read the data, divide them among the clients, draw the network's first parameters, and return the learner.

    The "kind" of each table in `options` names an entry of `networks.NETWORKS`, `optimizers.OPTIMIZERS`,
    `methods.ALL_AGGREGATIONS`, `aggregation.STALENESS`, `server_optimizers.SERVER_OPTIMIZERS` or `partition.PARTITIONS`, or is
    the user's own callable. `compressions`: of updates and of models; None: none. `surroundings` None: the defaults of
    `FederatedLearner`.

    Draws are at the addresses "data", "partition" and "network" of `streams`. `options.threads` is set for the whole process: on
    a CPU, the same number of threads gives the same results bit for bit.

    Raises:
        ValueError: a key or value that is not allowed, missing or altered data, more clients than samples, a network that does
            not fit; the message begins with the table and key.
    """
    methods = _methods(options, protection, compressions or (NoCompression(), NoCompression()))
    torch.set_num_threads(options.threads or 1)
    dataset = load_dataset(options.data, root=data_root, generator=streams.generator("data"))
    labels = dataset.train_y.numpy().astype(np.int64)
    shares = make_partition(labels, options.partition, clients=clients, generator=streams.generator("partition"))
    module = build_network(options.network, dataset.input_shape, dataset.classes, seed=streams.integer_seed("network"))
    loss = options.loss or ("hinge" if options.network.get("kind") == "svm" else "cross-entropy")
    try:
        task = Task(dataset=dataset, partition=shares, network=module, loss=LOSSES[loss]())
        return FederatedLearner(
            task=task, methods=methods, streams=streams, options=options, **vars(surroundings or Surroundings())
        )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        remedy = "use data.samples, a smaller network, or device = 'cpu'"
        raise ParameterError("device", options.device, f"cannot hold the data and the model; {remedy}") from error
