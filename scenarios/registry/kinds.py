"""Components that a scenario may name: those of netsim, those of installed packages, and any class as "package.module:Class".

A component is a class whose constructor takes keywords only. The builder supplies those of `SUPPLIED_TO`. All other keywords are
keys of the component in the scenario file, so that a user's own component is checked like the project's.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from netsim.collisions import FOLDERS
from scenarios.registry.in_process import find_object, registered_names
from scenarios.registry.trust import own_code_forbidden, refuse_own_code
from scenarios.schema.errors import UserError, describe_own_error, did_you_mean

SUPPLIED = {
    "clients": "the number of clients",
    "per_round": "the number of clients of a round",
    "per_model": "the number of deliveries that make a model",
    "data_sizes": "the samples that each client holds",
    "schedule": "the privacy schedule",
    "truth": "the true state of the world",
    "presence": "a forecast of presence",
    "channels": "the number of sub-channels",
    "rounds": "the number of rounds",
    "horizon_rounds": "the most rounds of the run",
    "horizon_s": "the longest time of the run",
    "reachable": "the sub-channels within reach",
    "draws": "a stream of random numbers",
    "generator": "a random generator",
    "labels": "the labels of the training samples",
    "inputs": "the shape of a sample",
    "input_shape": "the shape of a sample",
    "classes": "the number of classes",
    "num_classes": "the number of classes",
    "seed": "the seed of the first parameters",
    "graph": "the graph of the peers",
    "matchings": "the division of a graph into matchings",
    "regular_graph": "the drawing of graphs in which all peers have as many neighbours",
}
"""Meanings of the arguments that the builder supplies. For a law of sub-channels, `clients` is the number of sub-channels."""
_ABOUT_ROUNDS = frozenset({"clients", "per_round", "per_model", "data_sizes", "schedule", "truth"})
SUPPLIED_TO: dict[str, frozenset[str]] = {
    "policy": _ABOUT_ROUNDS | {"presence"},
    "reward": _ABOUT_ROUNDS,
    "delay": frozenset({"clients"}),
    "noise": frozenset({"clients"}),
    "bandwidth": frozenset({"clients", "draws"}),
    "channel": frozenset({"clients"}),
    "availability": frozenset({"clients"}),
    "partition": frozenset({"clients", "labels", "generator"}),
    "topology": frozenset({"clients", "generator"}),
    "protocol": frozenset({"matchings", "regular_graph"}),
    "mixing": frozenset({"graph"}),
    "network": frozenset({"inputs", "input_shape", "classes", "num_classes", "seed"}),
    "states": frozenset({"clients", "channels", "generator", "rounds", "horizon_rounds", "horizon_s"}),
    "scheduler": frozenset({"clients", "channels", "rounds", "truth"}),
    "matcher": frozenset({"clients", "truth"}),
    "detector": frozenset({"clients", "truth"}),
    "jammer": frozenset({"channels", "reachable"}),
}
"""Group -> arguments that the builder supplies, which are therefore no keys. Groups that are absent here get none."""

NESTED = {"matcher": "matcher", "detector": "detector", "scheduler": "scheduler"}
"""Argument that is a component itself, in a nested table -> group of that component."""
FACTORIES = frozenset({"detector"})
"""Arguments that take a function which makes the component, in place of the component."""

FUNCTIONS = frozenset({"partition", "topology", "mixing", "network", "script"})
"""Groups whose components are functions, called once with all arguments. A user's component may also be a class."""
POSITIONAL = {"partition": 1, "script": 1}
"""Number of positional arguments of functions of these groups: the labels of a partition, the world of a script."""
ANY_ORDER = frozenset({"network"})
"""Groups whose parameters need not be keyword-only, so that any module class fits."""

_POLICIES = "models.policies"
_SCHEDULERS = "models.schedulers"
_FL = "models.fl"
BUILT_IN: dict[str, dict[str, str]] = {
    "policy": {
        "pause": f"{_POLICIES}.pause.pause:Pause",
        "pause-brute": f"{_POLICIES}.pause.pause_brute:PauseBrute",
        "sa-pause": f"{_POLICIES}.pause.sa_pause:SaPause",
        "vanilla-sa-pause": f"{_POLICIES}.pause.vanilla_sa_pause:VanillaSaPause",
        "bsfl": f"{_POLICIES}.pause.bsfl:Bsfl",
        "genie": f"{_POLICIES}.pause.genie:Genie",
        "random": f"{_POLICIES}.random:Random",
        "all": f"{_POLICIES}.all:All",
        "fastest": f"{_POLICIES}.fastest:Fastest",
        "clustered-by-size": f"{_POLICIES}.clustered.clustered_by_size:ClusteredBySize",
        "clustered-by-similarity": f"{_POLICIES}.clustered.clustered_by_similarity:ClusteredBySimilarity",
        "active-fl": f"{_POLICIES}.active_fl:ActiveFl",
        "fedcs": f"{_POLICIES}.fedcs:FedCs",
        "oort": f"{_POLICIES}.oort.oort:Oort",
        "pisces": f"{_POLICIES}.pisces:Pisces",
        "power-of-choice": f"{_POLICIES}.power_of_choice:PowerOfChoice",
        "refl": f"{_POLICIES}.refl:Refl",
        "tifl": f"{_POLICIES}.tifl:Tifl",
        "super-arm-ucb": f"{_POLICIES}.slotted.super_arm_ucb:SuperArmUcb",
        "quick-init-ucb": f"{_POLICIES}.slotted.quick_init_ucb:QuickInitUcb",
        "round-robin": f"{_POLICIES}.slotted.round_robin:RoundRobin",
        "random-set": f"{_POLICIES}.slotted.random_set:RandomSet",
        "fixed-set": f"{_POLICIES}.slotted.fixed_set:FixedSet",
        "bp-index": f"{_POLICIES}.slotted.bp_index:BpIndex",
    },
    "delay": {
        "constant": "models.laws.delays:Constant",
        "gaussian": "models.laws.delays:Gaussian",
        "shifted-exponential": "models.laws.delays:ShiftedExponential",
        "log-normal": "models.laws.delays:LogNormal",
        "uniform": "models.laws.delays:Uniform",
        "gamma": "models.laws.skewed_delays:Gamma",
        "weibull": "models.laws.skewed_delays:Weibull",
        "empirical": "models.laws.delays:Empirical",
    },
    "noise": {
        "constant": "models.laws.noise:Constant",
        "log-normal": "models.laws.noise:LogNormal",
        "gamma": "models.laws.noise:Gamma",
    },
    "bandwidth": {
        "constant": "models.laws.bandwidth.laws:Constant",
        "trace": "models.laws.bandwidth.traces:Trace",
        "packet-trace": "models.laws.bandwidth.traces:PacketTrace",
        "gauss-markov": "models.laws.bandwidth.paths:GaussMarkov",
        "markov-levels": "models.laws.bandwidth.paths:MarkovLevels",
    },
    "channel": {
        "perfect": "models.laws.channels:Perfect",
        "bernoulli": "models.laws.channels:Bernoulli",
        "gilbert-elliott": "models.laws.channels:GilbertElliott",
        "block-fading": "models.laws.block_fading:BlockFading",
    },
    "availability": {
        "always": "models.laws.availability.presence:Always",
        "markov": "models.laws.availability.presence:Markov",
        "trace": "models.laws.availability.traces:Trace",
        "toggles": "models.laws.availability.traces:Toggles",
        "fedscale": "models.laws.availability.fedscale:FedScale",
        "diurnal": "models.laws.availability.diurnal:Diurnal",
    },
    "schedule": {
        "geometric": "models.privacy:GeometricSchedule",
        "explicit": "models.privacy:ExplicitSchedule",
    },
    "partition": {
        "equal": "models.fl.data.partition:equal",
        "dirichlet-sizes": "models.fl.data.partition:dirichlet_sizes",
        "dominant-label": "models.fl.data.partition:dominant_label",
        "label-dirichlet": "models.fl.data.partition:label_dirichlet",
        "mixed": "models.fl.data.partition:mixed",
        "file": "models.fl.data.partition:file",
    },
    "network": {
        **{kind: f"{_FL}.networks.kinds:{kind}" for kind in ("linear", "svm", "mlp", "cnn", "cnn8", "resnet18")},
        "torchvision": f"{_FL}.networks.deep:torchvision_classifier",
    },
    "optimizer": {"sgd": f"{_FL}.training.optimizers:Sgd", "adam": f"{_FL}.training.optimizers:Adam"},
    "aggregation": {
        "size": f"{_FL}.aggregation.rules:BySize",
        "equal": f"{_FL}.aggregation.rules:Equal",
        "fixed-share": f"{_FL}.aggregation.rules:FixedShare",
        "contribution": f"{_FL}.aggregation.rules:ByContribution",
        "mixing": f"{_FL}.aggregation.rules:Mixing",
        "majority-vote": f"{_FL}.aggregation.rules:MajorityVote",
        "median": f"{_FL}.aggregation.robust:Median",
        "trimmed-mean": f"{_FL}.aggregation.robust:TrimmedMean",
        "krum": f"{_FL}.aggregation.robust:Krum",
        "port": f"{_FL}.aggregation.port:Port",
        "refl": f"{_FL}.aggregation.refl:Refl",
        "scaffold": f"{_FL}.aggregation.scaffold:Scaffold",
        "feddyn": f"{_FL}.aggregation.feddyn:FedDyn",
        "fednova": f"{_FL}.aggregation.fednova:FedNova",
        "q-ffl": f"{_FL}.aggregation.q_ffl:QFfl",
    },
    "staleness": {
        "none": f"{_FL}.aggregation.rules:NoStaleness",
        "polynomial": f"{_FL}.aggregation.rules:Polynomial",
        "hinge": f"{_FL}.aggregation.rules:HingeStaleness",
    },
    "server_optimizer": {
        "sgd": f"{_FL}.aggregation.server_optimizers:ServerSgd",
        "fedavgm": f"{_FL}.aggregation.server_optimizers:FedAvgM",
        "fedadagrad": f"{_FL}.aggregation.server_optimizers:FedAdagrad",
        "fedadam": f"{_FL}.aggregation.server_optimizers:FedAdam",
        "fedyogi": f"{_FL}.aggregation.server_optimizers:FedYogi",
    },
    "compression": {
        "none": f"{_FL}.compression.none:NoCompression",
        "top-k": f"{_FL}.compression.top_k:TopK",
        "random-k": f"{_FL}.compression.random_k:RandomK",
        "qsgd": f"{_FL}.compression.qsgd:Qsgd",
        "sign": f"{_FL}.compression.sign:Sign",
        "one-bit": f"{_FL}.compression.one_bit:OneBit",
        "int8": f"{_FL}.compression.int8:Int8",
        "declared": f"{_FL}.compression.declared:Declared",
    },
    "topology": {
        "random-geometric": "models.peers.topologies:random_geometric",
        "nearest-neighbours": "models.peers.topologies:nearest_neighbours",
        "erdos-renyi": "models.peers.topologies:erdos_renyi",
        "watts-strogatz": "models.peers.topologies:watts_strogatz",
        "barabasi-albert": "models.peers.topologies:barabasi_albert",
        "grid": "models.peers.topologies:grid",
        "complete": "models.peers.topologies:complete",
        "graph-file": "models.peers.topologies:graph_file",
        "overlay": "scenarios.overlays:overlay",
        "ring": "models.peers.regular:ring",
        "star": "models.peers.regular:star",
        "torus": "models.peers.regular:torus",
        "hypercube": "models.peers.regular:hypercube",
        "exponential": "models.peers.regular:exponential",
    },
    "protocol": {
        "d-psgd": "netsim.peers.training.d_psgd:DPsgd",
        "matcha": "netsim.peers.training.matcha:Matcha",
        "one-peer": "netsim.peers.training.one_peer:OnePeer",
        "ad-psgd": "netsim.peers.training.ad_psgd:AdPsgd",
        "choco": "netsim.peers.training.choco:Choco",
        "epidemic": "netsim.peers.training.epidemic:Epidemic",
        "push-sum": "netsim.peers.training.push_sum:PushSum",
        "gossip-learning": "netsim.peers.training.gossip_learning:GossipLearning",
    },
    "mixing": {
        "metropolis": "models.peers.mixing:metropolis",
        "max-degree": "models.peers.mixing:max_degree",
        "uniform": "models.peers.mixing:uniform",
        "given": "models.peers.mixing:stated_weights",
    },
    "reward": {
        "pause-reward": "models.theory.regret:PauseRewardMeter",
    },
    "states": {
        "stationary": "models.laws.sub_channels.stationary:Stationary",
        "piecewise-stationary": "models.laws.sub_channels.stationary:PiecewiseStationary",
        "adversarial": "models.laws.sub_channels.sequences:AdversarialStates",
        "file": "models.laws.sub_channels.sequences:FileStates",
    },
    "scheduler": {
        "random": f"{_SCHEDULERS}.random:Random",
        "round-robin": f"{_SCHEDULERS}.round_robin:RoundRobin",
        "random-access": f"{_SCHEDULERS}.random_access:RandomAccess",
        "cucb": f"{_SCHEDULERS}.cucb:Cucb",
        "glr-cucb": f"{_SCHEDULERS}.glr_cucb:GlrCucb",
        "m-exp3": f"{_SCHEDULERS}.m_exp3:MExp3",
        "aoi-aware": f"{_SCHEDULERS}.aoi_aware:AoiAware",
        "means": f"{_SCHEDULERS}.oracles.means:Means",
        "means-age": f"{_SCHEDULERS}.oracles.means_age:MeansAge",
        "csi": f"{_SCHEDULERS}.oracles.csi:Csi",
    },
    "matcher": {
        "rotation": f"{_SCHEDULERS}.matchers.rotation:Rotation",
        "random-matching": f"{_SCHEDULERS}.matchers.random_matching:RandomMatching",
        "age-first": f"{_SCHEDULERS}.matchers.age_first:AgeFirst",
        "adaptive": f"{_SCHEDULERS}.matchers.adaptive:Adaptive",
    },
    "detector": {
        "glr-exact": "models.detection.glr_exact:GlrExact",
        "glr-grid": "models.detection.glr_grid:GlrGrid",
        "cusum": "models.detection.cusum:Cusum",
        "page-hinkley": "models.detection.page_hinkley:PageHinkley",
        "no-detection": "models.detection.no_detection:NoDetection",
    },
    "jammer": {
        "sweep": "models.laws.sub_channels.jammers:Sweep",
        "pulse": "models.laws.sub_channels.jammers:Pulse",
        "random": "models.laws.sub_channels.jammers:Random",
        "file": "models.laws.sub_channels.jammers:File",
        "reactive": "models.laws.sub_channels.jammers:Reactive",
    },
    # All scripts are users' own.
    "script": {},
    # The trainer of netsim follows from the network and the optimizer.
    "trainer": {},
    # Servers of netsim are compositions of the engine's rules (`scenarios.wiring.servers.kinds`), with own schema tables.
    "server": {},
}
"""Group -> name -> "module:Class". An installed package adds to a group through the entry point group `netsim.<group>`."""


@cache
def _entry_points() -> Any:
    """Return the entry points of installed packages. One slow search serves all groups."""
    return entry_points()


@cache
def shared_names(group: str) -> dict[str, str]:
    """Return the names of a group with the addresses of their classes: built-in, and from installed packages."""
    installed = {point.name: point.value for point in _entry_points().select(group=f"netsim.{group}")}
    return installed | BUILT_IN[group]


def known_names(group: str) -> dict[str, str]:
    """Return all names of a group with the addresses of their classes.

    Names of installed packages, and those registered in this process, are left out if foreign code is forbidden.
    """
    if own_code_forbidden():
        return dict(BUILT_IN[group])
    return registered_names(group) | shared_names(group)


def supplied_arguments(group: str) -> frozenset[str]:
    """Return the names of the arguments that the builder supplies to the components of a group."""
    return SUPPLIED_TO.get(group, frozenset())


def is_own(group: str, kind: str) -> bool:
    """Return True for a class of the user's or of another package, so that its errors are not faults of netsim."""
    return kind not in BUILT_IN[group]


def resolve(group: str, kind: str) -> Any:
    """Return the class, or for `FUNCTIONS` the function, of a name or an address "package.module:Class"; raises UserError.

    A user's class is completed with the optional members that it leaves out. Foreign code is imported only if it is trusted.
    """
    check_trusted(group, kind)
    place = kind if ":" in kind else BUILT_IN[group].get(kind)
    if place is None:  # only now, because the search through installed packages is slow
        place = known_names(group).get(kind)
    if place is None:
        remedy = did_you_mean(kind, known_names(group), "name a class as 'package.module:Class'")
        raise UserError(f"unknown {group} {kind!r}; {remedy}")
    if not is_own(group, kind):
        return load(place)
    target = load_own(place)
    if group in FUNCTIONS:
        if not inspect.isclass(target) and not inspect.isfunction(target):
            raise UserError(f"{place!r} is {type(target).__name__} {target!r}; name a function as 'package.module:function'")
    elif not inspect.isclass(target):
        raise UserError(f"{place!r} is {type(target).__name__} {target!r}, not a class; name a class as 'package.module:Class'")
    else:
        from scenarios.registry.protocols import add_defaults

        add_defaults(group, target)
    return target


def load(place: str) -> Any:
    """Import and return netsim's own object at "package.module:Name"."""
    module_name, _, name = place.partition(":")
    return getattr(importlib.import_module(module_name), name)


def _refuse_name_collision(module_name: str) -> None:
    """Raise UserError if the working folder has a package or module named like the netsim package that holds `module_name`.

    Python would import netsim's package in place of the user's.
    """
    top = module_name.partition(".")[0]
    if top not in ("netsim", *FOLDERS):
        return
    netsim_file = Path(__file__).parents[2] / top / "__init__.py"
    for user_file in (Path.cwd() / f"{top}.py", Path.cwd() / top / "__init__.py"):
        if user_file.is_file() and user_file.resolve() != netsim_file.resolve():
            problem = f"belongs to two packages: netsim's own ({netsim_file}), which hides yours, {user_file}"
            raise UserError(f"{top!r} {problem}; rename yours, such as my_{top}")


def check_trusted(group: str, kind: str) -> None:
    """Raise UserError if `kind` is foreign code and foreign code may not be imported."""
    # An unknown name is no foreign code: it is refused as unknown, later.
    is_known = ":" in kind or kind in registered_names(group) | shared_names(group)
    if is_own(group, kind) and is_known:
        refuse_own_code(kind)


def load_own(place: str) -> Any:
    """Import and return the user's own object at "package.module:Name". The working folder joins the import path (`sys.path`).

    Raises UserError if it cannot be imported, or within `forbid_own_code`, where no code of users may run.
    """
    refuse_own_code(place)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", place):
        raise UserError(f"{place!r} is not of the form 'package.module:Class'")
    in_memory = find_object(place)
    if in_memory is not None:
        return in_memory
    module_name, _, name = place.partition(":")
    # As with `python -m`, a module in the working folder needs no installation.
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    _refuse_name_collision(module_name)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"{place!r} cannot be imported: {error}; check that the package is installed or on PYTHONPATH") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything on import, sys.exit included
        raise UserError(f"{place!r} cannot be imported: {describe_own_error(error)}; fix the module") from error
    if not hasattr(module, name):
        public_names = [member for member in dir(module) if member[0] != "_"]
        raise UserError(f"module {module_name!r} has no {name!r}; {did_you_mean(name, public_names)}")
    return getattr(module, name)
