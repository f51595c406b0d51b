"""Small worlds put together from a server and sections, for campaigns that compare runs or check the books of single ones.

`SERVERS` and `SECTIONS` are tables of settings by dotted keys. A world is a server with settings of any of the sections on top;
combinations that a scenario cannot have are drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.rough_scenarios import EXAMPLES, OTHERS
from tests.helpers.servers import CHANNELS, scenario_of

Settings = Mapping[str, Any]
COUNT = 9
"""Clients of every world."""

SERVERS: dict[str, tuple[str, Settings]] = {
    "synchronous": ("synchronous", {"server": {"per_round": 4, "when_short": "proceed"}}),
    "deadline": ("synchronous", {}),
    "first n": ("synchronous", {"server": {"per_round": 5, "first": 2, "stragglers": "cancel"}}),
    "at least n": ("synchronous", {"server": {"per_round": 5, "deadline_s": 0.5, "at_least": 3, "stragglers": "cancel"}}),
    "reselection": ("synchronous", {"server": {"per_round": 5, "deadline_s": 0.8, "reselect_busy": True}}),
    "semi-synchronous": ("semi-synchronous", {}),
    "buffered": ("buffered", {}),
    "buffered by latency": (
        "buffered",
        {"server": {"kind": "buffered", "concurrency": 5, "pacing": "latency", "unknown_latency_s": 1.5}},
    ),
    "buffered, bounded": ("buffered", {"server.staleness_bound": 1}),
    "safa": ("safa", {}),
    "safa after all": ("safa", {"server": {"kind": "safa", "per_round": 4, "selection": "after-all"}}),
    "compass": ("compass", {}),
    "asynchronous": ("asynchronous", {}),
    "asynchronous, waiting": ("asynchronous", {"server": {"kind": "asynchronous", "wait_for_compute": True}}),
    "fl-fa": ("fl-fa", {}),
    "fl-da": ("fl-da", {}),
}
"""Servers by name: the kind, and what is set on top of `scenario_of` it."""

_LEVELS = {"kind": "markov-levels", "levels_bytes_per_s": [40.0, 200.0], "mean_stay_s": [0.5, 0.5]}
_STEPS = {"kind": "trace", "time_s": [0.0, 0.5, 0.8], "bytes_per_s": [200.0, 20.0, 0.0], "end_s": 1.0, "offset": "random"}
_ENDING = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [300.0], "end_s": 6.0, "after_end": "stop", "offset": "random"}
_NOISY = {"kind": "gauss-markov", "mean_bytes_per_s": 200.0, "std_bytes_per_s": 80.0, "memory": 0.8, "step_s": 0.5}
_BURSTS = {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.5, "loss_good": 0.1}
_SIZES = {"payload": {"down_bytes": 24, "up_bytes": 16}}
_OWN_SIZES = {"payload": {"down_bytes": 24, "up_bytes": [8 + 2 * client for client in range(COUNT)]}}
_RATES = [60.0 + 20.0 * client for client in range(COUNT)]
_WORK = {"clients.data_sizes": [20 + 10 * client for client in range(COUNT)], "work": {"epochs": 3, "batch_size": 8}}
_SPEED = {"compute.seconds_per_sample": 0.01, "compute.noise": {"kind": "log-normal", "sigma": 0.3}}
_POWERS = {"idle_w": 0.25, "compute_w": 4.0, "send_w": 2.0, "receive_w": 1.0, "off_w": 0.125}
_JAMMER = {"name": "jammer", "law": {"kind": "random"}, "at_once": 4}

SECTIONS: dict[str, dict[str, Settings]] = {
    "times": {
        "ties": {
            "compute.delay": {"kind": "constant", "value_s": 0.5},
            "uplink.delay": {"kind": "constant", "value_s": 0.25},
        },
        "constants": {"compute.delay": {"kind": "constant", "value_s": [0.3 + 0.17 * k for k in range(COUNT)]}},
        "nothing takes time but training": {"uplink.delay": {"kind": "constant", "value_s": 0.0}},
        "long downloads": {"downlink.delay": {"kind": "gaussian", "mean_s": 0.5, "std_s": 0.2}},
        "long uploads": {"uplink.delay": {"kind": "log-normal", "median_s": 0.4, "sigma": 0.6}},
        "changes in time": {
            "compute.changes": [{"at_s": 2.5, "delay": {"mean_excess_s": 1.5}}, {"at_s": 5.0, "delay": {"mean_excess_s": 0.1}}]
        },
        "changes in rounds": {"compute.changes": [{"at_round": 3, "clients": [0, 4], "delay": {"shift_s": 1.0}}]},
        "drawn changes": {"compute.random_changes": {"count": 4, "parameter": "delay.mean_excess_s", "horizon": 10}},
    },
    "down": {
        "own bandwidth": {**_SIZES, "downlink.bandwidth_bytes_per_s": _RATES},
        "noisy bandwidth": {**_SIZES, "downlink.bandwidth": _NOISY},
        "shared": {**_SIZES, "downlink.shared": {"bandwidth_bytes_per_s": 200.0}, "downlink.bandwidth_bytes_per_s": _RATES},
        "losses": {"downlink.channel": {"kind": "bernoulli", "success": 0.8}},
        "losses of sized models": {**_SIZES, "downlink.channel": _BURSTS, "downlink.bandwidth_bytes_per_s": 200.0},
    },
    "up": {
        "own bandwidth": {**_SIZES, "uplink.bandwidth_bytes_per_s": _RATES},
        "own sizes": {**_OWN_SIZES, "uplink.bandwidth_bytes_per_s": 60.0},
        "steps of a trace": {**_SIZES, "uplink.bandwidth": _STEPS},
        "a trace that ends": {**_SIZES, "uplink.bandwidth": _ENDING},
        "levels": {**_SIZES, "uplink.bandwidth": _LEVELS},
        "changes of a bandwidth": {
            **_SIZES,
            "uplink.bandwidth_bytes_per_s": 100.0,
            "uplink.changes": [{"at_s": 2.0, "bandwidth_bytes_per_s": 20.0}, {"at_s": 4.0, "bandwidth_bytes_per_s": 200.0}],
        },
        "shared": {**_SIZES, "uplink.shared": {"bandwidth_bytes_per_s": 100.0}},
        "shared, own limits": {
            **_SIZES,
            "uplink.shared": {"bandwidth_bytes_per_s": 150.0},
            "uplink.bandwidth_bytes_per_s": _RATES,
        },
        "shared, varying": {**_SIZES, "uplink.shared": {"bandwidth": _LEVELS}, "uplink.bandwidth": _STEPS},
        "a queue": {"uplink.sub_channels": 2},
        "a queue and a bandwidth": {**_OWN_SIZES, "uplink.sub_channels": 1, "uplink.bandwidth_bytes_per_s": 100.0},
    },
    "losses": {
        "bernoulli": {"uplink.channel": {"kind": "bernoulli", "success": 0.7}},
        "bursts": {"uplink.channel": _BURSTS},
        "block fading": {"uplink.channel": {"kind": "block-fading", "distance_km": 0.6, "threshold_db": 10.0}},
    },
    "work": {
        "passes": {**_WORK, **_SPEED},
        "partial passes": {**_WORK, **_SPEED, "work.partial_share": 0.5},
        "steps": {"clients.data_sizes": 50, "work": {"steps": 4, "batch_size": 10}, "compute.samples_per_s": 80.0},
    },
    "presence": {
        "markov": {"availability": {"kind": "markov", "mean_on_s": 3.0, "mean_off_s": 1.0}},
        "trace": {"availability": {"kind": "trace", "path": str(Path(__file__).parent / "presence.csv")}},
    },
    "energy": {
        "metering": {"energy": _POWERS},
        "batteries": {
            "energy": _POWERS | {"battery": {"capacity_j": 12.0, "charge_w": 1.5, "charging": {"kind": "always"}}},
        },
        "batteries at chargers": {
            "energy": _POWERS
            | {
                "battery": {
                    "capacity_j": 6.0,
                    "charge_w": 3.0,
                    "charging": {"kind": "markov", "mean_on_s": 1.0, "mean_off_s": 2.0},
                }
            },
        },
    },
    "privacy": {
        "on upload": {"privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}}},
        "on delivery": {
            "privacy": {
                "sensitivity": 0.1,
                "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1},
                "charge_on": "delivery",
            }
        },
        "budgets that end": {"privacy": {"sensitivity": 0.1, "schedule": {"kind": "explicit", "epsilons": [3.0, 2.0, 1.0]}}},
    },
    "outages": {
        "in seconds": {"outages": [{"name": "mast", "clients": [0, 3, 6], "from_s": 1.5, "to_s": 2.25}]},
        "in rounds": {"outages": [{"name": "mast", "clients": [1, 2, 3], "from_round": 3, "to_round": 5}]},
        "drawn": {"outages": [{"name": "mast", "clients": [0, 3, 6, 8], "mean_up_s": 1.0, "mean_down_s": 0.5}]},
        "drawn, in rounds": {"outages": [{"name": "power", "mean_up_rounds": 4, "mean_down_rounds": 1}]},
    },
    "script": {
        "laws": {"script": "tests.reliability.scripts:change_laws"},
        "clients": {"script": "tests.reliability.scripts:take_and_cut"},
    },
    "channels": {
        "states": CHANNELS,
        "round robin": CHANNELS | {"scheduler": {"kind": "round-robin"}},
        "m-exp3": CHANNELS | {"scheduler": {"kind": "m-exp3"}},
        "glr-cucb": CHANNELS | {"scheduler": {"kind": "glr-cucb"}},
        "aoi-aware": CHANNELS | {"scheduler": {"kind": "aoi-aware", "scheduler": {"kind": "cucb"}}},
        "adversary": CHANNELS | {"channels": {"count": 11, "states": {"kind": "adversarial", "good": 5}}},
        "contention": CHANNELS | {"scheduler": {"kind": "random-access"}, "server.contention": True},
    },
    "jammers": {
        "random, in seconds": {**CHANNELS, "jammers": [_JAMMER | {"dwell_s": 0.5}]},
        "reactive, in rounds": {**CHANNELS, "jammers": [_JAMMER | {"law": {"kind": "reactive"}, "budget": 20}]},
        "two": {
            **CHANNELS,
            "jammers": [_JAMMER | {"dwell_s": 0.3}, {"name": "other", "law": {"kind": "sweep", "width": 2}, "at_once": 2}],
        },
    },
    "opinions": {
        "over links": {
            "opinions.delay": {"kind": "constant", "value_s": 0.1},
            "opinions.channel": {"kind": "bernoulli", "success": 0.8},
            "opinions.max_resends": 2,
            "opinions.resend_after_s": 0.05,
        },
        "in time": {
            "opinions.delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 0.2},
            "opinions.wait_s": 0.3,
        },
        "of a size": {"opinions.size_bytes": 16, "opinions.shared": {"bandwidth_bytes_per_s": 200.0}},
    },
    "peers": {
        "losses": {"peers.channel": _BURSTS, "peers.max_resends": 3, "peers.resend_after_s": 0.02},
        "bandwidth": {"peers.bandwidth_bytes_per_s": 2000.0, "gossip.payload": "best"},
        "push": {"gossip": {"forwarding": "push", "interval_s": 0.05}, "peers.delay": {"kind": "constant", "value_s": 0.02}},
        "asynchronous beliefs": {"belief": {"update": "asynchronous", "max_exchanges": 20, "work_s": 0.01, "tolerance": 0.01}},
        "a deadline": {"slots.start": "deadline", "slots.deadline_s": 0.4, "peers.delay": {"kind": "constant", "value_s": 0.05}},
        "a sparse graph": {"peers.topology": {"kind": "watts-strogatz"}},
        "messages one by one": {"output.messages_table": True, "output.beliefs_table": True},
        "links that fail": {"peers.outages": [{"from_s": 0.5, "to_s": 3.0, "links": [[0, 1], [2, 3]]}]},
    },
    "policy": {
        kind: {"policy": {"kind": kind, **keys}}
        for group in (EXAMPLES["policy"], OTHERS["policy"])
        for kind, keys in group.items()
        if kind not in ("genie",)
    },
    "limit": {"of time": {"time_limit_s": 6.0}},
    "server": {
        "waits": {"server.when_short": "wait"},
        "first 3": {"server.first": 3},
        "cancels": {"server.stragglers": "cancel"},
        "tolerates nothing": {"server.lag_tolerance": 0},
        "by speed": {**_WORK, **_SPEED, "server.order": "speed"},
        "a buffer of one": {"server.buffer": 1},
        "notices": {**_WORK, **_SPEED, "server.staleness_bound": 1, "server.urgent_notices": True, "server.notice_s": 0.1},
        "looks at times": {"server.check_every_s": 0.5},
        "slack": {"server.slack": 1.0},
        "one client": {"server.per_round": 1},
        "slots of one round": {"slots.rounds": 1},
    },
}
"""Sections by topic: named settings, of which a world has one a topic at most."""

LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 120, "test_samples": 50},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "max_steps": 2,
}
"""A learner that takes little time; of the sections below each sets something of it."""
TRAINING: dict[str, dict[str, Settings]] = {
    "aggregation": {
        kind: {"learner.aggregation": {"kind": kind, **keys}}
        for kind, keys in {
            "equal": {},
            "fixed-share": {"by": "equal", "alpha": 0.9},
            "mixing": {"alpha": 0.5},
            "median": {},
            "trimmed-mean": {"share": 0.25},
            "krum": {},
            "majority-vote": {"learning_rate": 0.01},
            "port": {"bound": 4},
            "scaffold": {},
            "feddyn": {"alpha": 0.1},
            "fednova": {},
            "q-ffl": {"q": 1.0},
        }.items()
    },
    "staleness": {
        "polynomial": {"learner.staleness": {"kind": "polynomial", "exponent": 0.5}},
        "hinge": {"learner.staleness": {"kind": "hinge"}},
    },
    "server optimizer": {
        kind: {"learner.server_optimizer": {"kind": kind}} for kind in ("fedavgm", "fedadam", "fedyogi", "fedadagrad")
    },
    "compression": {
        "int8": {"payload.compression": {"kind": "int8"}},
        "top-k": {"payload.compression": {"kind": "top-k", "share": 0.1}},
        "random-k": {"payload.compression": {"kind": "random-k", "share": 0.2}},
        "qsgd": {"payload.compression": {"kind": "qsgd"}, "payload.down_compression": {"kind": "int8"}},
        "sign": {"payload.compression": {"kind": "sign"}},
    },
    "partition": {"dirichlet": {"learner.partition": {"kind": "dirichlet", "alpha": 1.0}}},
    "losses of clients": {"recorded": {"learner.client_losses": True, "learner.training_loss": True}},
    "evaluation": {"in time": {"learner.evaluate_every_s": 1.5}, "in rounds": {"learner.evaluate_every_rounds": 3}},
    "deliveries": {"together": {"learner.buffer": 3}},
    "optimizer": {
        "momentum": {
            "learner.optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.5},
            "learner.optimizer_state": "kept",
        }
    },
}


def world_of(server: str, sections: Mapping[str, str] | None = None, *, rounds: int = 8, seed: int = 1) -> dict[str, Any]:
    """Return the tables of a world: the server of that name with the named settings of some topics."""
    kind, settings = SERVERS[server]
    tables = override(scenario_of(kind, rounds), settings)
    if kind == "synchronous" and "when_short" not in tables["server"]:
        tables["server"]["when_short"] = "proceed"
    for topic, name in (sections or {}).items():
        tables = override(tables, (SECTIONS | TRAINING)[topic][name])
    return tables | {"seed": seed}


def valid(tables: dict[str, Any], *, learner: bool = False) -> bool:
    """Return True if a scenario of these tables can be built."""
    try:
        build(parse(tables), learner=learner)
    except UserError:
        return False
    return True


def drawn_world(rng: Random, most: int = 5, learning: float = 0.0) -> dict[str, Any]:
    """Draw a valid world with settings of up to `most` topics; `learning`: the chance that something is trained.

    Sections are added one after the other. One that the world cannot have is left out.
    """
    server = rng.choice(list(SERVERS))
    learns = rng.random() < learning
    tables = _training(world_of(server)) if learns else world_of(server)
    topics = [*SECTIONS, *TRAINING] if learns else list(SECTIONS)
    tables["seed"], parts = rng.randrange(1000), [server]
    for topic in rng.sample(topics, rng.randrange(most + 1)):
        sections = (SECTIONS | TRAINING)[topic]
        name = rng.choice(list(sections))
        fuller = override(tables, sections[name])
        if valid(fuller, learner=learns):
            tables = fuller
            parts.append(f"{topic}: {name}")
    return tables | {"description": ", ".join(parts)}


def _training(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the world with a learner in place of what stands for one, and fewer rounds."""
    tables = {name: table for name, table in tables.items() if name != "work"} | {"learner": LEARNER, "rounds": 4}
    tables["clients"] = {name: value for name, value in tables["clients"].items() if name != "data_sizes"}
    if tables["server"].get("kind") == "compass":
        # Weights that sum to 1 would replace the model by a client's first update.
        tables["learner"] = LEARNER | {"aggregation": {"kind": "fixed-share", "by": "equal", "alpha": 0.9}}
    if "opinions" in tables:
        tables["opinions"] = {name: value for name, value in tables["opinions"].items() if name != "synthetic"}
    return tables
