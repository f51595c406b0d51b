"""One run: a scenario played into a folder, by the contract of a run (see the README)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from netsim.simulation import Simulation
from netsim.trace import FORMAT, ParquetRecorder
from scenarios.build import Built, build
from scenarios.errors import UserError
from scenarios.folders import check_run, open_run
from scenarios.interrupts import stop_requests
from scenarios.reading import to_toml
from scenarios.registry import is_own
from scenarios.schema import Scenario
from scenarios.summary import Summing, Totals, change_points_s, summary

INTERRUPTED = "interrupted"


def run(
    scenario: Scenario,
    out: str | Path,
    *,
    overwrite: bool = False,
    after_round: Callable[[Simulation], None] | None = None,
) -> dict[str, Any]:
    """Play `scenario` into the folder `out` and return its summary.

    Ctrl-C or SIGTERM ends the run in good order, as the round closes: the files hold the rounds done, and the summary says so.
    Raises UserError, with nothing written and nothing deleted, for whatever the user can mend.
    """
    check_run(Path(out), overwrite)
    return play(build(scenario), scenario, Path(out), overwrite=overwrite, after_round=after_round)


def play(
    built: Built,
    scenario: Scenario,
    out: Path,
    *,
    overwrite: bool = False,
    after_round: Callable[[Simulation], None] | None = None,
) -> dict[str, Any]:
    """As `run`, for a simulation that is built already (and perhaps changed by a script)."""
    simulation = built.simulation
    check_run(out, overwrite)
    open_run(out)
    (out / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
    totals = Totals(starts_s=change_points_s(simulation.server))
    tables = ParquetRecorder(
        out,
        clients=scenario.output.clients_table,
        jams=bool(scenario.jammers),
        detections=scenario.server.kind == "asynchronous",
        messages=scenario.output.messages_table,
    )
    recorder = Summing(tables, totals)
    simulation.record_to(recorder)
    _write_partition(getattr(simulation.server, "learner", None), out)
    started = time.perf_counter()
    try:
        with stop_requests() as stop:

            def between_rounds(simulation: Simulation) -> None:
                if after_round is not None:
                    after_round(simulation)
                stop.check()

            simulation.run(after_round=between_rounds)
        ended = simulation.ended or INTERRUPTED
    except KeyboardInterrupt:
        ended = INTERRUPTED
    except ValueError as error:
        refused = _of_own_class(scenario, str(error))
        if refused is None:
            raise
        raise UserError(refused) from error
    except MemoryError as error:
        raise UserError(f"learner.{error}") from error
    finally:
        simulation.close()
    told = summary(built, scenario, totals, ended, time.perf_counter() - started)
    (out / "summary.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return told


def _of_own_class(scenario: Scenario, text: str) -> str | None:
    """The engine's complaint of what a class of the user's own returned, as one about its key; None if it is none."""
    deciding = "scheduler" if scenario.server.kind == "asynchronous" else "policy"
    asked = [(deciding, deciding, f"{deciding}: ", scenario.method.kind, "select" if deciding == "policy" else "assign")]
    for i, jammer in enumerate(scenario.jammers):
        asked.append(("jammer", f"jammers.{i}.law", f"jammer {jammer.name!r}: ", jammer.law.kind, "choose"))
    for group, path, prefix, kind, method in asked:
        if is_own(group, kind) and text.startswith(prefix):
            return f"{path}.kind = {kind!r}: {text.removeprefix(prefix)}; mend its {method}"
    return None


def _write_partition(learner: Any, out: Path) -> None:
    """`partition.parquet`: how many training samples of each label each client holds, a row where it holds any."""
    counts = getattr(learner, "label_counts", None)
    if counts is None:
        return
    clients, labels = np.nonzero(counts)
    kinds = {"client": pa.int64(), "label": pa.int32(), "samples": pa.int64()}
    schema = pa.schema(list(kinds.items()), metadata={"netsim.table": "partition", "netsim.format": str(FORMAT)})
    values = (clients, labels, counts[clients, labels])
    columns = [pa.array(column, type=kind) for column, kind in zip(values, kinds.values(), strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), out / "partition.parquet", compression="zstd")
