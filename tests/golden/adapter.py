"""The one place of the guard that knows how the project is called. Where modules move, this file is all that changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scenarios.runs.reading import override, parse
from scenarios.runs.run import INTERRUPTED, go_on
from scenarios.runs.run import run as run_scenario
from scenarios.sweeps.plan import expand_variants
from tests.helpers.whole_schema import whole_schema

Tables = dict[str, Any]


def play(tables: Mapping[str, Any], out: Path, *, cut_after: int | None = None) -> None:
    """Run a scenario into the new folder `out`; `cut_after`: interrupted as that round closes, and resumed from the disk."""
    scenario = parse(tables)
    if cut_after is None:
        run_scenario(scenario, out)
        return

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == cut_after:
            raise KeyboardInterrupt

    if run_scenario(scenario, out, after_round=interrupt)["ended"] == INTERRUPTED:
        go_on(out)


def variants(tables: Mapping[str, Any], source: str) -> dict[str, Tables]:
    """The scenario of every variant of a file's sweep, by its name; without a sweep the one that there is."""
    single = {key: value for key, value in tables.items() if key != "sweep"}
    return {name: override(single, changes) for name, (_, changes) in expand_variants(parse(tables, source), source).items()}


def changed(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> Tables:
    """A copy with dotted keys replaced, as by `--set`."""
    return override(tables, changes)


def complete(tables: Mapping[str, Any]) -> Tables:
    """The scenario with all defaults filled in."""
    whole: Tables = parse(tables).model_dump(exclude_none=True, by_alias=True)
    return whole


def schema() -> Tables:
    """What `netsim schema` prints: every key that a scenario file may have."""
    return whole_schema()
