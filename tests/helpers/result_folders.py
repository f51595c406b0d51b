"""Folders of runs and sweeps written out by hand, as analysis reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.api import open_run
from analysis.results.checksums import FILES, add_checksum
from analysis.results.run import COLUMNS, Run
from analysis.results.sources import read_json
from netsim.core.rows import FORMAT, RoundRow
from netsim.records.tables import sha256_of

INTEGERS = {"round", "version", "bytes_down", "bytes_up", "client", "age_rounds"}
COUNTS = {"selected", "delivered", "lost", "late", "aborted", "in_flight"}
# Rounds close at 1, 3, 6, 10, 15 s: latencies 1..5 s. Evaluated in all but the second.
ROUNDS: dict[str, list[Any]] = {
    "round": [1, 2, 3, 4, 5],
    "start_s": [0.0, 1.0, 3.0, 6.0, 10.0],
    "end_s": [1.0, 3.0, 6.0, 10.0, 15.0],
    "delivered": [2, 2, 2, 2, 2],
    "max_leak": [0.5, 0.9, 0.9, 1.2, 1.2],
    "accuracy": [0.2, None, 0.6, 0.4, 0.8],
    "reward": [1.0, None, 2.0, 4.0, 3.0],
    "genie_reward": [3.0, None, 3.0, 3.5, 3.5],
}
EMPTY: dict[str, list[Any]] = {name: [] for name in ROUNDS}
# Round 1, 0 to 5 s: clients 0, 1, 2 hold the server 2, 3, 5 s. Round 2, 5 to 9 s: client 1 for 3 s, client 2 is late and cut off
# at the close, 4 s. Round 3, 9 to 10 s: client 0 and client 1 both 1 s, client 1 still in flight.
PARTS: dict[str, list[Any]] = {
    "round": [1, 1, 1, 2, 2, 3, 3],
    "client": [0, 1, 2, 1, 2, 0, 1],
    "outcome": ["delivered", "lost", "delivered", "delivered", "late", "delivered", "in_flight"],
    "outcome_s": [2.0, 3.0, 5.0, 8.0, 30.0, 10.0, None],
    "selected_s": [0.0, 0.0, 0.0, 5.0, 5.0, 9.0, 9.0],
    "download_start_s": [0.0, 0.0, 0.25, 5.0, 5.0, 9.0, 9.0],
    "download_end_s": [0.5, 0.5, 1.0, 5.5, 6.0, 9.25, None],
    "compute_start_s": [0.5, 0.5, 1.0, 5.5, 6.0, 9.25, None],
    "compute_end_s": [1.0, 1.5, 3.0, 7.0, 20.0, 9.5, None],
    "upload_start_s": [1.5, 2.0, 3.25, 7.0, 20.0, 9.5, None],
    "upload_end_s": [2.0, None, 5.0, 8.0, 30.0, 10.0, None],
}
FACTS = {"carries_over": False, "resends": False, "fixed_length": False, "slotted": False, "inexact": []}


def column_type(table: str, name: str) -> pa.DataType:
    if name in INTEGERS:
        return pa.int64()
    if table == "rounds" and name in COUNTS:
        return pa.int32()
    if name in {"outcome", "opened_by", "closed_by", "close_rule", "begun_by"}:
        return pa.dictionary(pa.int32(), pa.string())
    return pa.bool_() if name == "censored" else pa.float64()


def write_table(
    path: Path, table: str, columns: dict[str, list[Any]], *, format: str = str(FORMAT), drop: tuple[str, ...] = ()
) -> None:
    """A table: given columns, all others zero (nullable ones null)."""
    rows = len(next(iter(columns.values())))
    nullable = {"accuracy", "loss", "reward", "genie_reward", *RoundRow._field_defaults}
    arrays = {}
    for name in COLUMNS[table]:
        if name in drop:
            continue
        kind = column_type(table, name)
        if pa.types.is_dictionary(kind):
            word = "delivered" if name == "outcome" else "open" if name == "begun_by" else None
            arrays[name] = pa.array(columns.get(name, [word] * rows), pa.string()).dictionary_encode()
            continue
        empty = None if name in nullable else False if kind == pa.bool_() else 0
        arrays[name] = pa.array(columns.get(name, [empty] * rows), kind)
    made = pa.table(arrays).replace_schema_metadata({b"netsim.table": table.encode(), b"netsim.format": format.encode()})
    pq.write_table(made, path)


def write_run(
    path: Path,
    rounds: dict[str, list[Any]] | None = None,
    clients: dict[str, list[Any]] | None = None,
    *,
    policy: str = "pause",
    seed: int = 1,
    **summary: Any,
) -> Path:
    """A run folder; one round of two seconds unless `rounds` says otherwise."""
    path.mkdir(parents=True)
    write_table(path / "rounds.parquet", "rounds", rounds or {"round": [1], "start_s": [0.0], "end_s": [2.0]})
    if clients is not None:
        write_table(path / "clients.parquet", "clients", clients)
    # A run that states a guarantee has budgets, too.
    private = "\n[privacy]\nsensitivity = 1.0\n" if "privacy" in summary else ""
    text = f'name = "study"\nseed = {seed}\n\n[policy]\nkind = "{policy}"\n{private}'
    (path / "scenario.toml").write_text(text, encoding="utf-8")
    content = {
        "format": FORMAT,
        "name": "study",
        "coordinator": FACTS,
        "policy": policy,
        "seed": seed,
        "ended": "all rounds done",
        "versions": {"netsim": "0"},
    }
    (path / "summary.json").write_text(json.dumps(content | summary), encoding="utf-8")
    return path


def edit_summary(run: Path, **changes: Any) -> None:
    """Put other values into the summary of a run that netsim wrote, with the checksums of what is in its folder now."""
    content = read_json(run / "summary.json", "a summary") | changes
    content[FILES] = {name: sha256_of(run / name) for name in content[FILES] if (run / name).is_file()}
    (run / "summary.json").write_text(json.dumps(add_checksum(content)), encoding="utf-8")


def write_sweep(
    path: Path,
    runs: dict[str, dict[int, dict[str, list[Any]]]],
    *,
    baseline: str,
    target: float | None = None,
    simulated_s: float = 0.0,
    **labels: str,
) -> Path:
    """A sweep folder: variant -> seed -> columns of its rounds; runs go on until `simulated_s`, or until their last round."""
    listed = []
    for variant, seeds in runs.items():
        for seed, rounds in seeds.items():
            write_run(path / variant / f"seed-{seed}", rounds, policy=variant, seed=seed, simulated_s=simulated_s)
            label = labels.get(variant, variant)
            listed.append({"variant": variant, "label": label, "seed": seed, "path": f"{variant}/seed-{seed}"})
    content = {"format": 1, "name": "study", "baseline": baseline, "target_accuracy": target, "runs": listed}
    path.mkdir(exist_ok=True)
    (path / "sweep.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def run_of(folder: Path, rounds: dict[str, list[Any]] = ROUNDS, server: str = "", **rest: Any) -> Run:
    """A run of these rounds; `server`: lines of its table of that name."""
    path = write_run(folder, rounds, **rest)
    if server:
        with (path / "scenario.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n[server]\n{server}\n")
    return open_run(path)
