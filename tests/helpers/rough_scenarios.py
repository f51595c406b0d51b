"""Scenarios in which everything can go wrong, and an example of every registered kind."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOORED = {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.5, "floor_s": 0.1}
EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "policy": {
        "pause": {"alpha": 10.0},
        "pause-brute": {},
        "sa-pause": {"steps": 50},
        "vanilla-sa-pause": {"steps": 50},
        "genie": {},
        "random": {},
        "all": {},
        "fastest": {},
        "clustered-by-size": {},
        "clustered-by-similarity": {},
        "bsfl": {"alpha": 10.0},
        "active-fl": {},
        "oort": {"blacklist_after": 3, "window": 2},
        "pisces": {},
        "power-of-choice": {"candidates": 6},
        "fedcs": {"round_s": 3.0, "asked": 0.5},
        "refl": {"round_s": 3.0},
        "tifl": {"timeout_s": 9.0, "tiers": 3, "sync_rounds": 2},
    },
    "delay": {
        "constant": {"value_s": {"from": 0.0, "to": 1.0}},
        "gaussian": {"mean_s": {"by_group": {"a": 0.5, "b": {"from": 0.5, "to": 2.0}}}, "std_s": 0.2, "floor": "resample"},
        "shifted-exponential": {"shift_s": 0.1, "mean_excess_s": 0.5},
        "log-normal": {"median_s": 0.5, "sigma": 0.7},
        "gamma": {"mean_s": 0.6, "shape": 0.5},
        "weibull": {"scale_s": 0.6, "shape": 0.7},
        "uniform": {"low_s": 0.2, "high_s": 1.0},
        "empirical": {"path": "durations.csv"},
    },
    "noise": {"constant": {}, "log-normal": {"sigma": 0.5}, "gamma": {"shape": 2.0}},
    "bandwidth": {
        "constant": {"bytes_per_s": {"from": 50.0, "to": 500.0}},
        "trace": {"path": "bandwidth.csv", "offset": "random", "after_end": "stop", "scale": {"by_group": {"a": 1.0, "b": 2.0}}},
        "packet-trace": {"path": "packets.trace", "offset": "random", "packet_bytes": 20.0},
        "gauss-markov": {"mean_bytes_per_s": 200.0, "std_bytes_per_s": 100.0, "memory": 0.9, "step_s": 0.5},
        "markov-levels": {"levels_bytes_per_s": [50.0, 0.0, 500.0], "mean_stay_s": [1.0, 0.5, 1.0]},
    },
    "channel": {
        "perfect": {},
        "bernoulli": {"success": {"from": 0.5, "to": 1.0}},
        "gilbert-elliott": {"to_bad": 0.3, "to_good": 0.5, "loss_good": 0.05},
        "block-fading": {"distance_km": {"from": 0.1, "to": 1.0}, "threshold_db": 10.0},
    },
    "availability": {
        "always": {},
        "markov": {"mean_on_s": 8.0, "mean_off_s": 3.0},
        "trace": {"path": "presence.csv"},
        "toggles": {"path": "toggles.json", "repeat_s": 20.0},
        "fedscale": {"path": "phones.json", "phones": "drawn"},
        "diurnal": {"by_hour": [0.9, 0.1] * 12, "mean_session_s": 900.0, "time_zone_h": {"from": 0.0, "to": 12.0}},
    },
    "schedule": {
        "geometric": {"epsilon_total": 10.0, "eta": 0.1},
        "explicit": {"epsilons": [3.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1]},
    },
    "reward": {"pause-reward": {}},
}
# Parts of the other servers: policies that learn from opinions, peers, sub-channels and who fights for them.
OTHERS: dict[str, dict[str, dict[str, Any]]] = {
    "policy": {
        "super-arm-ucb": {},
        "quick-init-ucb": {},
        "round-robin": {},
        "fixed-set": {"members": [0, 3, 5]},
        "bp-index": {"mu": 0.1},
        "random-set": {},
    },
    "topology": {
        "random-geometric": {"radius_km": 0.9},
        "nearest-neighbours": {},
        "erdos-renyi": {"probability": 0.8},
        "watts-strogatz": {},
        "barabasi-albert": {},
        "grid": {},
        "complete": {},
        "graph-file": {"path": "ring.txt"},
        "overlay": {"network": "ring.csv", "overlay": "ring"},
        "ring": {},
        "star": {"link_km": 100.0},
        "torus": {"rows": 3},
        "hypercube": {},
        "exponential": {},
    },
    "protocol": {
        "d-psgd": {"timeout_s": 2.0},
        "matcha": {"budget": 0.3, "order": "combine-while-computing", "timeout_s": 2.0},
        "one-peer": {"timeout_s": 2.0},
        "ad-psgd": {"bipartite": False, "timeout_s": 2.0},
        "choco": {"gamma": 0.4, "retry_s": 0.5},
        "epidemic": {"targets": 2, "note_bytes": 20, "timeout_s": 2.0},
        "push-sum": {"timeout_s": 2.0},
        "gossip-learning": {"period_s": 0.7, "spread": 0.3, "variant": "update-merge", "merge": "by-age"},
    },
    "mixing": {
        "metropolis": {},
        "max-degree": {},
        "uniform": {},
        "given": {"weights": np.full((12, 12), 1 / 12).tolist()},
    },
    "states": {
        "stationary": {"means": [0.9, 0.7, 0.5, 0.3, 0.1]},
        "piecewise-stationary": {"breakpoints": 2},
        "adversarial": {"good": 3},
        "file": {"path": "states.csv"},
    },
    "scheduler": {
        "random": {},
        "round-robin": {},
        "random-access": {},
        "cucb": {},
        "glr-cucb": {},
        "m-exp3": {},
        "aoi-aware": {"scheduler": {"kind": "m-exp3"}},
        "means": {},
        "means-age": {},
        "csi": {},
    },
    "matcher": {"rotation": {}, "random-matching": {}, "age-first": {}, "adaptive": {}},
    "detector": {"glr-exact": {}, "glr-grid": {}, "cusum": {}, "page-hinkley": {}, "no-detection": {}},
    "jammer": {
        "sweep": {},
        "pulse": {"on": 1, "off": 2},
        "random": {},
        "file": {"path": "jams.csv"},
        "reactive": {},
    },
}
TRAINED = ("clustered-by-similarity", "active-fl", "oort", "pisces", "power-of-choice")
"""Policies that need a learner."""
BUFFERED: dict[str, Any] = {
    "name": "buffered",
    "rounds": 60,
    "clients": {"count": 9},
    "server": {"kind": "buffered", "concurrency": 5, "buffer": 3}, "payload": {"down_bytes": 10, "up_bytes": 10},
    "policy": {"kind": "pause"},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.25}, "channel": {"kind": "bernoulli", "success": 0.9}},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 1.0}},
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.5},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
        "sub_channels": 2,
    },
    "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 3.0},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
}
"""Clients at work all the time for a buffered server."""
NOBODY_SELECTS: dict[str, Any] = {key: table for key, table in BUFFERED.items() if key != "policy"}
"""The same for a server under which all clients take part."""
COMPASS: dict[str, Any] = NOBODY_SELECTS | {
    "clients": {"count": 9, "data_sizes": 100.0},
    "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
    "work": {"batch_size": 10},
    "compute": {"seconds_per_sample": 0.01, "noise": {"kind": "log-normal", "sigma": 0.5}},
}
"""And for one that gives them steps by their speed."""


def rough(group: str | None = None, kind: str | None = None, **changes: Any) -> dict[str, Any]:
    """A scenario in which everything can go wrong, with one component replaced by an example of `kind`."""
    tables: dict[str, Any] = {
        "name": "rough",
        "rounds": 25,
        "clients": {"count": 12, "groups": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]},
        "server": {"per_round": 4, "deadline_s": 3.0, "when_short": "proceed"},
        "payload": {"down_bytes": 100, "up_bytes": 100},
        "policy": {"kind": "random"},
        "downlink": {
            "delay": {"kind": "constant", "value_s": 0.1},
            "channel": {"kind": "bernoulli", "success": 0.95},
        },
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.6}},
        "uplink": {
            "delay": FLOORED,
            "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
            "sub_channels": 3,
        },
        "availability": {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 4.0},
        "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
    }
    if group is not None and kind is not None:
        component = {"kind": kind} | EXAMPLES[group][kind]
        if group == "schedule":
            tables["privacy"]["schedule"] = component
        elif group == "reward":
            tables["metrics"] = {"reward": component}
        elif group in ("delay", "bandwidth", "channel"):
            tables["uplink"][group] = component
        elif group == "noise":
            tables["clients"]["data_sizes"], tables["work"] = 20, {"batch_size": 7}
            tables["compute"] |= {"noise": component, "seconds_per_sample": 0.03}
        else:
            tables[group] = component
    if kind in TRAINED:
        tables["learner"] = {
            "data": {"kind": "digits", "samples": 200},
            "network": {"kind": "linear"},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "max_steps": 2,
        }
    return tables | changes


def other(group: str, kind: str) -> dict[str, Any]:
    """A scenario of another server, with one component replaced by an example of `kind`."""
    component = {"kind": kind} | OTHERS[group][kind]
    # A hypercube has a power of two of clients.
    tables: dict[str, Any] = {"name": "other", "rounds": 30, "clients": {"count": 16 if kind == "hypercube" else 12}}
    if group in ("protocol", "mixing"):
        tables |= {
            "server": {"kind": "peers", "protocol": {"kind": "d-psgd", "timeout_s": 2.0}},
            "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.6}},
            "payload": {"up_bytes": 100},
            "peers": {
                "topology": {"kind": "complete"},
                "bandwidth_bytes_per_s": 1000.0,
                "channel": {"kind": "bernoulli", "success": 0.9},
            },
        }
        tables["server"][group] = component
        return tables
    if group in ("policy", "topology"):
        decentral = group == "topology" or kind == "bp-index"
        tables |= {
            "server": {"kind": "fl-da" if decentral else "fl-fa", "per_round": 3},
            "slots": {"rounds": 2} | ({"start": "agreement"} if decentral else {}),
            "policy": component if group == "policy" else {"kind": "bp-index"},
            "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}},
            "compute": {"delay": {"kind": "constant", "value_s": 0.9}},
            "peers": {
                "topology": component if group == "topology" else {"kind": "complete"},
                "delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 0.01},
            },
        }
        return tables
    tables |= {
        "clients": {"count": 3},
        "server": {"kind": "asynchronous", "wait_for_compute": True},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.1}},
        "channels": {
            "count": 5,
            "states": {"kind": "stationary", "means": [0.9, 0.7, 0.5, 0.3, 0.1]},
            "delay": {"kind": "constant", "value_s": 0.05},
        },
        "scheduler": {"kind": "glr-cucb"},
        "jammers": [{"name": "jammer", "law": {"kind": "reactive"}, "budget": 20}],
    }
    if group == "states":
        tables["channels"]["states"] = component
    elif group == "scheduler":
        tables["scheduler"] = component
        tables["server"]["contention"] = kind == "random-access"
    elif group == "jammer":
        tables["jammers"][0]["law"] = component
    else:
        tables["scheduler"][group] = component
    return tables
