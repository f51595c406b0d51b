"""Small scenarios with a learner, and the command run on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tomli_w

from scenarios.cli import main as cli
from scenarios.runs.reading import parse
from scenarios.runs.run import run

TRAINED: dict[str, Any] = {
    "name": "trained",
    "rounds": 2,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
    "downlink": {"bandwidth_bytes_per_s": 100.0},
    "uplink": {"bandwidth_bytes_per_s": 50.0},
    "learner": {
        "data": {"kind": "digits", "samples": 80, "test_samples": 40},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "max_steps": 1,
    },
}
"""A study that trains two of four clients a round, over links of known bandwidths."""


def tables(**learner):
    return {
        "name": "small",
        "rounds": 3,
        "clients": {"count": 6},
        "server": {"per_round": 3},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "learner": {
            "data": {"kind": "digits", "samples": 120},
            "network": {"kind": "mlp", "hidden": [8]},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            **learner,
        },
    }


def to_toml(path: Path, content: dict) -> str:
    path.write_text(tomli_w.dumps(content))
    return str(path)


def play(tmp_path: Path, name: str = "out", **learner) -> dict:
    return run(parse(tables(**learner)), tmp_path / name)


def netsim(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    """Exit code and what was said on standard error."""
    monkeypatch.setattr(sys, "argv", ["netsim", *words])
    try:
        cli.main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, capsys.readouterr().err.strip()
