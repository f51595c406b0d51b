"""A small latency study that the tests of scenarios, command line and sweeps change to their needs; it runs in milliseconds."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from analysis import open_run
from scenarios.cli.main import main
from scenarios.runs.reading import override, parse, parse_assignment
from scenarios.schema.scenario import Scenario

TEXT = """
name = "small"
rounds = 6

[clients]
count = 6
groups = [{ name = "fast", share = 0.5 }, { name = "slow", share = 0.5 }]

[server]
per_round = 2

[policy]
kind = "pause"

[uplink]
channel = { kind = "bernoulli", success = 0.9 }

[uplink.delay]
kind = "gaussian"
mean_s.by_group = { fast = { from = 0.05, to = 0.2 }, slow = 0.7 }
std_s = 0.05

[[uplink.changes]]
at_round = 3
clients = "fast"
delay = { mean_s = 1.0 }

[privacy]
sensitivity = 0.01
schedule = { kind = "geometric", epsilon_total = 40.0, eta = 0.04 }

[metrics]
reward = { kind = "pause-reward" }

[sweep]
seeds = [1, 2]

[[sweep.variants]]
name = "pause"

[[sweep.variants]]
name = "random"
set = { "policy.kind" = "random" }
"""


def small(*settings: str) -> Scenario:
    """The study with `KEY=VALUE` overrides."""
    return parse(small_tables(*settings))


def small_tables(*settings: str) -> dict[str, Any]:
    """The study's tables with `KEY=VALUE` overrides."""
    return override(tomllib.loads(TEXT), [parse_assignment(text) for text in settings])


class Shell:
    """The command line in this process: exit code, standard output, error output."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.file = folder / "small.toml"
        self.file.write_text(TEXT, encoding="utf-8")
        self.out = folder / "out"
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["netsim", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        """`netsim run` of the study into `out`."""
        return self("run", self.file, "--out", self.out, "--quiet", *arguments)

    def sweep(self, *arguments: str | Path) -> tuple[int, str, str]:
        """`netsim sweep` of the study into `out`, one process, no figures."""
        return self("sweep", self.file, "--out", self.out, "--quiet", "--jobs", "1", "--no-figures", *arguments)


def selected_in(place: Path, number: int) -> list[int]:
    """The clients that an attempt of a round is of, ascending."""
    rows = open_run(place).clients
    return sorted(int(client) for client in rows.loc[rows["round"] == number, "client"])
