"""The command that compares overlays of silos on a network: overlays."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scenarios.cli.output import out_console
from scenarios.schema.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from models.overlays.silos import Silos
    from scenarios.overlays import CycleTime

_OPTIONS = {
    "model_bits": "--model-bits",
    "compute_ms": "--compute-ms",
    "steps": "--steps",
    "up_bits_per_s": "--up-gbps",
    "down_bits_per_s": "--down-gbps",
    "core_bits_per_s": "--core-gbps",
}
"""Options of the command by the parameters of `Silos`, for messages."""


def overlays(
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="Network that comes with netsim, or a file of links.")],
    model_bits: Annotated[float, typer.Option("--model-bits", help="Bits of a model.")] = 44_961_717,
    compute_ms: Annotated[float, typer.Option("--compute-ms", help="Milliseconds of a local step.")] = 25.4,
    steps: Annotated[int, typer.Option("--steps", help="Local steps of a round.")] = 1,
    up_gbps: Annotated[float, typer.Option("--up-gbps", help="Gbit/s from each silo.")] = 10.0,
    down_gbps: Annotated[float, typer.Option("--down-gbps", help="Gbit/s to each silo.")] = 10.0,
    core_gbps: Annotated[float, typer.Option("--core-gbps", help="Gbit/s of a link without a bandwidth of its own.")] = 1.0,
    chosen: Annotated[str | None, typer.Option("--overlays", metavar="LIST", help="Overlays, with commas between them.")] = None,
    sharing: Annotated[str, typer.Option("--sharing", help="by-degree: fixed shares; fluid: flows share links.")] = "by-degree",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how long a round takes on each overlay of a network. Times are exact and simulated; the best overlay is named."""
    from models.errors import ParameterError
    from models.overlays.silos import Silos
    from scenarios.networks import read_network
    from scenarios.overlays import cycle_times

    names, sharing = _names(chosen), _sharing(sharing)
    try:
        silos = Silos(
            read_network(network), model_bits, compute_ms, steps, up_gbps * 1e9, down_gbps * 1e9, core_gbps * 1e9
        )
    except ParameterError as error:
        scale = 1e9 if error.name.endswith("_per_s") else 1.0  # options are in Gbit/s, parameters in bit/s
        raise UserError(f"{_OPTIONS[error.name]} {error.value / scale:g}: {error.reason}") from error  # type: ignore[operator]
    cycles = cycle_times(silos, names, fluid=sharing == "fluid")
    if as_json:
        content = {"network": silos.underlay.name, "overlays": {cycle.name: cycle.to_json() for cycle in cycles}}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        _show(silos, cycles, fluid=sharing == "fluid")


def _names(chosen: str | None) -> list[str]:
    """Return the overlays that `--overlays` lists, each once; the usual ones without it. Raises UserError."""
    from scenarios.overlays import OVERLAYS, USUAL

    names = list(USUAL) if chosen is None else [name.strip() for name in chosen.split(",")]
    for name in names:
        if name not in OVERLAYS:
            raise UserError(f"--overlays {name!r}: is no overlay; {did_you_mean(name, list(OVERLAYS))}")
    return list(dict.fromkeys(names))


def _sharing(text: str) -> Literal["by-degree", "fluid"]:
    """Return the value of `--sharing`, checked; raises UserError."""
    if text == "by-degree":
        return "by-degree"
    if text == "fluid":
        return "fluid"
    raise UserError(f"--sharing {text!r}: must be by-degree or fluid")


def _show(silos: Silos, cycles: list[CycleTime], fluid: bool) -> None:
    """Print the cycle times of overlays as a table, and the best overlay. `fluid`: flows share all links, with a column."""
    from analysis.documents.terminal import terminal_table

    header = ["overlay", "arcs", "round, ms", "simulated, ms", *(["flows, ms"] if fluid else [])]
    rows = [
        [cycle.name, str(len(cycle.arcs)), f"{cycle.cycle_ms:.3f}", f"{cycle.simulated_ms:.3f}"]
        + ([f"{cycle.fluid_ms:.3f}"] if cycle.fluid_ms is not None else [])
        for cycle in cycles
    ]
    best = min(cycles, key=lambda cycle: cycle.best_ms)
    links = len(silos.underlay.cables)
    note = f"{silos.count} silos, {links} links, {silos.model_bits:,.0f} bits a model, {silos.work_ms:g} ms of local work. "
    note += "Round: at fixed shares of access links, and a core private to each pair" + (
        "; flows: max-min fair rates on all links, shared by all." if fluid else "."
    )
    out_console.print(terminal_table(f"Overlays on {silos.underlay.name}", note, (header, rows)))
    out_console.print(f"best: {best.name}, {best.best_ms:.3f} ms a round", highlight=False)
