"""Published completion times of flows, compared with the flows of netsim: `netsim reproduce flow_cases`.

The included file holds cases of SimGrid and dslab; docs/flows.md explains its form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsim.core.clock import Clock
from netsim.core.errors import ParameterError
from netsim.network.flows.corrections import PRESETS, Corrections
from netsim.network.flows.flows import Flows
from netsim.network.flows.sharing import Link
from netsim.network.flows.transfers import LinkData, Transfers
from scenarios.papers.study import Judgement, Reproduction, Setup, Size
from scenarios.schema.errors import UserError
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    from analysis.documents.blocks import Section

FILE = Path(__file__).parents[1] / "library" / "networks" / "flow-cases.json"
RELATIVE_TOLERANCE = 1e-6
"""Largest accepted difference, as a share of the expected value."""
_NEVER = float("inf")
_MODELS = {"raw": Corrections(), **PRESETS}
"""Corrections of each model that a case may name."""
_OPTIONS = (
    "no crosstraffic, crosstraffic, reverse traffic on the same links, split duplex, no RTT bias, weight-S NUMBER, window NUMBER"
)


@dataclass(frozen=True, slots=True)
class FlowResult:
    """End time or rate of a flow: expected and simulated, in the units of the file."""

    case: str
    flow: str
    expected: Decimal
    """Expected value, with the decimals that are printed in the file."""
    simulated: float
    tolerance: float | None = None
    """Accepted difference that the case names, or None."""

    @property
    def allowed(self) -> float:
        """Largest accepted difference: of the case, else 1e-6 of the value or half a unit of its last printed decimal."""
        if self.tolerance is not None:
            return self.tolerance
        exponent = self.expected.as_tuple().exponent
        half_unit = 0.5 * 10.0**exponent if isinstance(exponent, int) and exponent < 0 else 0.0
        return max(RELATIVE_TOLERANCE * abs(float(self.expected)), half_unit * (1 + 1e-9))

    @property
    def agrees(self) -> bool:
        """True if the simulated value is the expected one, within the accepted difference."""
        return abs(self.simulated - float(self.expected)) <= self.allowed


def parse_model(model: str) -> tuple[Corrections, bool]:
    """Return the corrections of a case's text `model`, and True if answers return over the links of the way there.

    The text is a model and options with commas between, such as "LV08, no crosstraffic". Raises ValueError for an unknown model
    or option.
    """
    name, *options = [part.strip() for part in model.split(",")]
    base, _, rest = name.partition(" ")
    if base.lower() not in _MODELS:
        raise ValueError(f"model = {model!r}: {base!r} is no model; there are raw, CM02, LV08")
    corrections, same_links = _MODELS[base.lower()], True
    for option in [*([rest] if rest else []), *options]:
        words = option.lower().split()
        match words:
            case ["no", "crosstraffic"]:
                corrections = replace(corrections, reverse_share=0.0)
            case ["crosstraffic"]:
                corrections = replace(corrections, reverse_share=0.05)
            case ["reverse", "traffic", "on", "the", "same", "links"]:
                corrections, same_links = replace(corrections, reverse_share=0.05), True
            case ["split", "duplex"]:
                same_links = False
            case ["no", "rtt", "bias"]:
                corrections = replace(corrections, rtt_fair=False)
            case ["weight-s", number]:
                corrections = replace(corrections, rtt_fair=True, weight_s=float(number))
            case ["window", number]:
                corrections = replace(corrections, window_bytes=float(number))
            case _:
                raise ValueError(f"model = {model!r}: {option!r} is no option; there are {_OPTIONS}")
    return corrections, same_links


def read_cases(path: Path | None) -> Tables:
    """Return the content of a file of cases, with numbers as printed; raises UserError.

    `path`: None for the included file.
    """
    file = path or FILE
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal, parse_int=Decimal)
    except OSError as error:
        raise UserError(f"--cases {file}: {error.strerror}; name a file of flow cases") from error
    except ValueError as error:
        raise UserError(f"--cases {file}: is no JSON ({error}); docs/flows.md shows the form") from error
    known = isinstance(content, dict) and content.keys() & {"cases", "solver_units"}
    if not known or not all(isinstance(content[name], list) for name in known):
        raise UserError(f'--cases {file}: must be an object with a list "cases"; docs/flows.md shows the form')
    return dict(content)


def play_cases(content: Mapping[str, Any], name: str) -> list[FlowResult]:
    """Simulate all cases of a file called `name` and return their flows; raises UserError for a case that cannot be played."""
    results: list[FlowResult] = []
    for number, case in enumerate(content.get("cases", []), 1):
        results += _play_case(case, f"{name}: case {number}", _simulate_flows)
    for number, unit in enumerate(content.get("solver_units", []), 1):
        case = {"name": f"rates {number}", **unit} if isinstance(unit, dict) else unit
        results += _play_case(case, f"{name}: solver unit {number}", _solve_rates)
    return results


def _play_case(case: Any, place: str, play: Callable[[Mapping[str, Any]], list[FlowResult]]) -> list[FlowResult]:
    """Return `play(case)`. Any mistake in the case becomes a UserError with its `place` in the file."""
    if not isinstance(case, dict):
        raise UserError(f"{place}: must be an object; docs/flows.md shows the form")
    named = f"{place} ({case.get('name', 'without a name')})"
    try:
        return play(case)
    except KeyError as error:
        raise UserError(f"{named}: has no {error.args[0]!r}; docs/flows.md shows the form") from error
    except ParameterError as error:
        raise UserError(f"{named}: {error}") from error
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{named}: {error or type(error).__name__}; docs/flows.md shows the form") from error


def _simulate_flows(case: Mapping[str, Any]) -> list[FlowResult]:
    """Simulate one case and return the end times of its flows with the expected ones."""
    clock = Clock()
    corrections, same_links = parse_model(case["model"])
    links = [
        LinkData(
            name=name,
            bytes_per_s=float(link["bytes_per_s"]),
            delay_s=float(link.get("latency_s", 0)),
            fat_pipe=not link.get("shared", True),
        )
        for name, link in case["links"].items()
    ]
    transfers = Transfers(clock=clock, links=links, corrections=corrections)
    flow_names: dict[int, str] = {}  # by transfer
    end_s: dict[str, float] = {}  # by name of the flow

    def start_flow(flow: Mapping[str, Any]) -> None:
        route = transfers.route(flow["route"], flow["route"] if same_links else ())
        flow_names[transfers.send(route, float(flow["bytes"]))] = flow["id"]

    def change_link(change: Mapping[str, Any]) -> None:
        numbers = {key: float(change[key]) for key in ("bytes_per_s", "latency_s") if key in change}
        transfers.change(change["link"], bytes_per_s=numbers.get("bytes_per_s"), delay_s=numbers.get("latency_s"))

    transfers.listen(lambda transfer: end_s.__setitem__(flow_names[transfer], clock.now))
    for change in case.get("changes", []):
        clock.call_at(float(change["at_s"]), change_link, change)
    flows = {flow["id"]: flow for flow in case["flows"]}
    if len(flows) < len(case["flows"]):
        raise ValueError("flows: two have one id")
    for flow in flows.values():
        clock.call_at(float(flow.get("start_s", 0)), start_flow, flow)
    expected = case["expect_end_s"]
    for name in expected:
        if name not in flows:
            raise ValueError(f"expect_end_s: {name!r} is no flow; there are {', '.join(flows)}")
    clock.run()
    tolerance = float(case["tolerance"]) if "tolerance" in case else None
    return [FlowResult(case["name"], name, value, end_s.get(name, _NEVER), tolerance) for name, value in expected.items()]


def _solve_rates(unit: Mapping[str, Any]) -> list[FlowResult]:
    """Return the rates of flows that start together, with the expected ones.

    `unit`: `capacity` of each link, `flows` with their `use` of links, `penalty` and `bound`, and the expected `rates`.
    """
    flows = Flows(clock=Clock(), links=[Link(name, float(capacity)) for name, capacity in unit["capacity"].items()])
    started = []
    # Rates do not depend on sizes: each flow has one byte, and the clock does not run.
    for number, flow in enumerate(unit["flows"]):
        uses = [(name, float(weight)) for name, weight in flow["use"].items()]
        path = flows.path(str(number), uses, float(flow.get("penalty", 1)))
        started.append(flows.start(path, 1.0, float(flow.get("bound", _NEVER))))
    pairs = zip(started, unit["rates"], strict=True)
    return [FlowResult(unit["name"], str(number), rate, flows.rate(flow)) for number, (flow, rate) in enumerate(pairs, 1)]


def judge(cases: Path | None) -> Judgement:
    """Simulate the cases of a file and compare them with its expectations; raises UserError."""
    results = play_cases(read_cases(cases), str(cases or FILE.name))
    return Judgement(_sections(results), all(result.agrees for result in results))


def _sections(results: Sequence[FlowResult]) -> list[Section]:
    """Return the section of the result: a table with a row for each flow."""
    from analysis.documents.blocks import Section, Table

    rows = [
        [
            f"{result.case}: {result.flow}",
            str(result.expected),
            "never" if result.simulated == _NEVER else f"{result.simulated:.10g}",
            "-" if result.simulated == _NEVER else f"{result.simulated - float(result.expected):.1e}",
            "agrees" if result.agrees else "DIFFERS",
        ]
        for result in results
    ]
    agreeing = sum(result.agrees for result in results)
    note = f"{agreeing} of {len(results)} agree: to {RELATIVE_TOLERANCE:g} of the value, or to the digits printed."
    header = ["flow", "expected, s", "simulated, s", "difference", "verdict"]
    table = Table("flow-cases", "Ends of flows, expected and simulated", (header, rows), note=note, words=(0, 4))
    return [Section("Verdict", [table])]


REPRODUCTIONS = (
    Reproduction(
        name="flow_cases",
        paper="SimGrid and dslab, tests of their network models",
        shows="Ends of flows: 14 small networks with flows whose completion times are known",
        metrics=(),
        judge=judge,
        takes_cases=True,
        notes="Max-min fair sharing with the corrections that each case names (docs/flows.md).",
        sizes=dict.fromkeys(Size, Setup(seeds=())),
    ),
)
