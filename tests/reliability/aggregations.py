"""Aggregation replayed: the models of random runs against those that `replayed_models` works out of their tables.

python -m tests.reliability.aggregations SEED COUNT
"""

from __future__ import annotations

import sys
import warnings
from random import Random
from typing import Any

import numpy as np

from scenarios.runs.reading import override
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.known_updates import COUNT, learner
from tests.reliability.metamorphic import complete
from tests.reliability.replayed_models import replay
from tests.reliability.worlds import valid

CLOSE = 2e-4
"""Difference that single precision explains, relative to the largest number of a model."""
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 5}},
    "deadline": {"server": {"per_round": 6, "deadline_s": 1.5, "when_short": "proceed"}},
    "first n": {"server": {"per_round": 6, "first": 4, "stragglers": "cancel"}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 5, "round_s": 0.8}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 6, "buffer": 3}},
    "one at a time": {"server": {"kind": "buffered", "concurrency": 5}},
    "buffered by latency": {"server": {"kind": "buffered", "concurrency": 5, "pacing": "latency", "unknown_latency_s": 2.0}},
    "safa": {"server": {"kind": "safa", "per_round": 3, "lag_tolerance": 2}},
    "safa with a deadline": {"server": {"kind": "safa", "per_round": 3, "lag_tolerance": 1, "deadline_s": 0.7}},
    "compass": {"server": {"kind": "compass", "min_steps": 1, "max_steps": 4}, "compute.samples_per_s": 20.0},
    "asynchronous": {
        "server": {"kind": "asynchronous", "round_s": 1.1},
        "channels": {"count": COUNT, "channel": {"kind": "bernoulli", "success": 0.8}},
        "scheduler": {"kind": "round-robin"},
    },
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 4}, "policy": {"kind": "round-robin"}, "slots": {"rounds": 2}},
}
AGGREGATIONS: tuple[dict[str, Any], ...] = (
    {"kind": "size"},
    {"kind": "equal"},
    {"kind": "equal", "divide": "none"},
    {"kind": "fixed-share", "alpha": 0.9},
    {"kind": "fixed-share", "by": "equal", "alpha": 0.8, "form": "mixing"},
    {"kind": "mixing", "alpha": 0.6},
    {"kind": "mixing", "alpha": 0.5, "mixing_decay": [[2, 0.5], [4, 0.5]]},
    {"kind": "median"},
    {"kind": "trimmed-mean", "share": 0.3},
    {"kind": "krum", "wrong": 1},
    {"kind": "krum", "wrong": 1, "selected": 2},
    {"kind": "majority-vote", "learning_rate": 0.05},
    {"kind": "port", "bound": 3},
    {"kind": "refl"},
)
STALENESS: tuple[dict[str, Any], ...] = (
    {"kind": "none"},
    {"kind": "polynomial", "exponent": 0.5},
    {"kind": "hinge", "free": 1, "slope": 2.0},
)
OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"kind": "sgd", "learning_rate": 1.0},
    {"kind": "sgd", "learning_rate": 0.5},
    {"kind": "fedavgm", "learning_rate": 0.5, "momentum": 0.6},
    {"kind": "fedadagrad", "learning_rate": 0.1},
    {"kind": "fedadam", "learning_rate": 0.1},
    {"kind": "fedyogi", "learning_rate": 0.1},
)


def drawn_rules(rng: Random) -> dict[str, Any]:
    """Draw the name of a server and rules of its learner."""
    return {
        "server": rng.choice(list(SERVERS)),
        "aggregation": rng.choice(AGGREGATIONS),
        "staleness": rng.choice(STALENESS),
        "server_optimizer": rng.choice(OPTIMIZERS),
        "buffer": rng.choice((1, 1, 2, 4, 7)),
    }


def tables_of(name: str, rules: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return the tables of a scenario with a server of `SERVERS` and rules of its learner.

    Its times have no ties, so that the order of deliveries is known.
    """
    tables: dict[str, Any] = {
        "name": "replayed",
        "description": name,
        "rounds": 8,
        "seed": rng.randrange(10**6),
        "clients": {"count": COUNT},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}},
        "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.05, "mean_excess_s": 0.2}},
        "learner": learner(),
    }
    if "channels" not in SERVERS[name] and rng.random() < 0.6:
        tables["uplink"]["channel"] = {"kind": "bernoulli", "success": 0.8}
        tables["downlink"] = {"channel": {"kind": "bernoulli", "success": 0.9}}
    tables = override(tables, SERVERS[name])
    if tables["server"].get("kind", "synchronous") in ("synchronous", "semi-synchronous", "buffered"):
        tables["policy"] = {"kind": "random"}
    if "safa" not in name:
        tables["learner"] |= rules
    if tables["server"].get("kind") == "buffered":
        tables["learner"].pop("buffer", None)
    return tables


def scenario(rng: Random) -> dict[str, Any]:
    """Draw a scenario that can be built, complete."""
    for _ in range(200):
        rules = drawn_rules(rng)
        tables = tables_of(rules.pop("server"), rules, rng)
        if valid(tables, learner=True):
            return complete(tables)
    raise AssertionError("no scenario can be built")


def different(tables: dict[str, Any], records: MemoryRecorder) -> str:
    """Return the first model of a run that is not the one replayed, or ""."""
    told: dict[int, dict[str, float]] = {}
    for row in records.evaluations:
        told.setdefault(row.round, {})[row.metric.rpartition(":")[2]] = row.value
    versions = {row.round: row.version for row in records.rounds}
    for number, version, model in replay(tables, records):
        if versions[number] != version:
            return f"round {number}: version {versions[number]}, replayed {version}"
        found = np.array([told[number][name] for name in ("first_number", "second_number", "third_number")])
        if np.abs(found - model).max() > CLOSE * max(1.0, np.abs(model).max()):
            return f"round {number}, version {version}: {found.tolist()}, replayed {model.tolist()}"
    return ""


def check(seed: int, number: int) -> dict[str, str]:
    """Return the kind of result (good, different) of the run of that number, and what it was about."""
    tables = scenario(Random(f"aggregations/{seed}/{number}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        simulation, records = built(tables)
        simulation.run()
        simulation.close()
        wrong = different(tables, records)
    rule = tables["learner"]
    about = [tables["description"], *(str(rule[key]) for key in ("aggregation", "staleness", "server_optimizer", "buffer"))]
    return {"kind": "different" if wrong else "good", "about": " | ".join([*about, wrong])}


def campaign() -> int:
    """Run the campaign of the command line and return the number of runs whose models are not those replayed."""
    given = options("aggregations")
    found = gather(given, lambda numbers: ((number, check(given.seed, number)) for number in numbers))
    wrong = {number: result for number, result in found.items() if result["kind"] != "good"}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['about']}")
    table((result["about"].partition(" | ")[0] for result in found.values()), f"{len(found)} runs")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign() else 0)
