"""What the guard runs: every variant of every scenario file that comes with the project, cut short, and files of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden import adapter

HERE = Path(__file__).parent
LIBRARY = HERE.parents[1] / "scenarios"
FEATURES = HERE / "features"
INPUTS = HERE / "inputs"
"""The folder that a case is run in: scenarios name the files in it."""

MADE = {
    "mnist": "grey",
    "fashion-mnist": "grey",
    "cifar-10": "colour",
    "cifar-100": "colour_100",
    "scenarios.library.examples.resnet_on_cifar:images": "colour",
}
MOST_CLIENTS = 1000
MOST_TRAINED = 1500
"""Of a grid that trains more clients, those of all variants together, the first value of each of its lists is run."""
MOST_TEST_SAMPLES = {"grey": 200, "colour": 40, "colour_100": 100}
"""As many as each made data set has."""
_CONVOLUTIONS = ("cnn", "cnn8", "resnet18", "torchvision")


@dataclass(frozen=True)
class Case:
    """One scenario file, ready to be run."""

    name: str
    variants: dict[str, dict[str, Any]]
    resumed: frozenset[str]
    """The variants that are also run with an interruption in the middle."""


def names() -> list[str]:
    """All cases: those of the project's own scenario files by their names, those of the guard as `feature-NAME`."""
    return [*sorted(_library()), *sorted(f"feature-{file.stem}" for file in FEATURES.glob("*.toml"))]


def case(name: str) -> Case:
    """The case of that name; every variant of its sweep with one seed, the scenario's own."""
    if name.startswith("feature-"):
        file = FEATURES / f"{name.removeprefix('feature-')}.toml"
        variants = adapter.variants(_tables(file), name)
        # The state of a Flower app is in its own program: such a run cannot be resumed.
        resumed = frozenset(key for key, tables in variants.items() if "flower" not in tables and tables["rounds"] > 1)
        return Case(name, variants, resumed)
    study = _tables(_library()[name])
    whole = adapter.variants(study, name)
    grid = study.get("sweep", {}).get("grid", {})
    if grid and "learner" in study and len(whole) * study["clients"]["count"] > MOST_TRAINED:
        first = {key: values[:1] for key, values in grid.items()}
        whole = adapter.variants(study | {"sweep": study["sweep"] | {"grid": first}}, name)
    variants = {key: cut(tables) for key, tables in whole.items()}
    return Case(name, variants, frozenset(list(variants)[:1]))


@cache
def _library() -> dict[str, Path]:
    # The strategies of a Flower app are those of flwr, whose versions differ; tests/scenarios/flower runs its scenario.
    files = [file for file in LIBRARY.rglob("*.toml") if file.name != "pyproject.toml" and "flower" not in _tables(file)]
    by_name = {file.stem: file for file in files}
    if len(by_name) < len(files):
        raise ValueError(f"{LIBRARY}: two scenario files have one name; give each its own")
    return by_name


def _tables(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def cut(tables: dict[str, Any]) -> dict[str, Any]:
    """A study's scenario made small: few rounds, few steps, small networks, and made data where its own may be absent."""
    learner = tables.get("learner")
    kind = tables["server"].get("kind", "synchronous")
    changes: dict[str, Any] = {
        "rounds": min(tables["rounds"], _rounds(kind, learner is not None)),
        "clients.count": min(tables["clients"]["count"], MOST_CLIENTS),
    }
    if "slots" in tables:
        changes["slots.rounds"] = 2
    if tables.get("channels", {}).get("states", {}).get("breakpoints", 0) >= changes["rounds"]:
        changes["channels.states.breakpoints"] = changes["rounds"] - 1
    if learner is not None:
        changes["learner"] = _small_learner(learner, changes["clients.count"])
    return adapter.changed(tables, changes)


def _rounds(kind: str, trains: bool) -> int:
    if trains:
        return {"asynchronous": 6, "buffered": 6}.get(kind, 3)
    return {"asynchronous": 40, "safa": 5, "fl-fa": 4, "fl-da": 3}.get(kind, 12)


def _small_learner(learner: dict[str, Any], clients: int) -> dict[str, Any]:
    # The number of workers changes no table.
    small = learner | {"epochs": 1, "max_steps": 2, "batch_size": min(learner.get("batch_size", 20), 10), "workers": 0}
    data = dict(learner.get("data", {}))
    if data.get("kind") in MADE:
        made = MADE[data["kind"]]
        data["kind"] = f"tests.golden.made_data:{made}"
        if "test_samples" in data:
            data["test_samples"] = min(data["test_samples"], MOST_TEST_SAMPLES[made])
    data.pop("samples", None)
    if "unused_samples" in data:
        data["unused_samples"] = min(data["unused_samples"], 20)
    if "contribution_samples" in learner:
        small["contribution_samples"] = 3
        data["validation_samples"] = 3 * clients
    small["data"] = data
    if "minimum" in learner.get("partition", {}):
        small["partition"] = learner["partition"] | {"minimum": 2}
    if learner.get("evaluate_every_rounds", 1) > 2:
        small["evaluate_every_rounds"] = 2
    shrink: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "cnn": _small_cnn,
        # Deep and narrow, these multiply the last bits, in which processors differ, beyond the tolerance.
        "cnn8": lambda network: _small_cnn({"kind": "cnn"}),
        "resnet18": lambda network: _small_cnn({"kind": "cnn"}),
        "torchvision": lambda network: _small_cnn({"kind": "cnn"}),
        "mlp": lambda network: network | {"hidden": [16] * len(network["hidden"])},
    }
    network = learner["network"]
    if network["kind"] in _CONVOLUTIONS:
        small["max_steps"] = 1
    small["network"] = shrink.get(network["kind"], dict)(network)
    return small


def _small_cnn(network: dict[str, Any]) -> dict[str, Any]:
    hidden = network.get("hidden", 8)
    widths = [8] * len(hidden) if isinstance(hidden, list) else 8
    return network | {"channels": [4] * len(network.get("channels", [4, 4, 4])), "hidden": widths}
