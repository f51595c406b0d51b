"""Published completion times of flows, compared with the flows of netsim: `netsim reproduce flow_cases`.

The included file holds cases of SimGrid and dslab; docs/flows.md explains its form.
"""

from __future__ import annotations

import json
import math
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
        text = file.read_text(encoding="utf-8")
        content: Any = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse_constant)
    except OSError as error:
        raise UserError(f"--cases {file}: {error.strerror}; name a file of flow cases") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--cases {file}: is no JSON ({error}); docs/flows.md shows the form") from error
    known = isinstance(content, dict) and content.keys() & {"cases", "solver_units"}
    if not known or not all(isinstance(content[name], list) for name in known):
        raise UserError(f'--cases {file}: must be an object with a list "cases"; docs/flows.md shows the form')
    return dict(content)


def _refuse_constant(name: str) -> None:
    """Raise ValueError: `name` is NaN, Infinity or -Infinity, which Python reads but JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")


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
    """Simulate one case: return the end times of its flows, with the expected ones, in seconds.

    Raises KeyError for a missing key, and ValueError or ParameterError for a wrong value.
    """
    corrections, same_links = parse_model(_text(case, "model"))
    flows = {_text(flow, "id"): flow for flow in _objects(case, "flows")}
    if len(flows) < len(case["flows"]):
        raise ValueError("flows: two have one id")
    expected = _object(case["expect_end_s"], "expect_end_s")
    for name in expected:
        if name not in flows:
            raise ValueError(f"expect_end_s: {name!r} is no flow; there are {', '.join(flows)}")
    clock = Clock()
    transfers = Transfers(clock=clock, links=_read_links(case), corrections=corrections)
    names: dict[int, str] = {}  # name of the flow by the number of its transfer
    end_s: dict[str, float] = {}  # by name of the flow

    def start_flow(name: str) -> None:
        route = _texts(flows[name], "route")
        transfer = transfers.send(transfers.route(route, route if same_links else ()), _number(flows[name], "bytes"))
        names[transfer] = name

    def change_link(change: Mapping[str, Any]) -> None:
        numbers = {key: _number(change, key) for key in ("bytes_per_s", "latency_s") if key in change}
        transfers.change(_text(change, "link"), bytes_per_s=numbers.get("bytes_per_s"), delay_s=numbers.get("latency_s"))

    def note_end(transfer: int) -> None:
        end_s[names[transfer]] = clock.now

    transfers.listen(note_end)
    # In one instant changes of links come before beginnings of flows, as in the order of these calls.
    for change in _objects(case, "changes") if "changes" in case else ():
        clock.call_at(_number(change, "at_s"), change_link, change)
    for name, flow in flows.items():
        clock.call_at(_number(flow, "start_s", 0.0), start_flow, name)
    clock.run()
    tolerance = _number(case, "tolerance") if "tolerance" in case else None
    return [
        FlowResult(str(case["name"]), name, _exact_number(expected, name), end_s.get(name, _NEVER), tolerance)
        for name in expected
    ]


def _read_links(case: Mapping[str, Any]) -> list[LinkData]:
    """Return the links of a case; errors as of `_simulate_flows`."""
    links = []
    for name, value in _object(case["links"], "links").items():
        link = _object(value, f"links.{name}")
        links.append(
            LinkData(
                name=name,
                bytes_per_s=_number(link, "bytes_per_s"),
                delay_s=_number(link, "latency_s", 0.0),
                fat_pipe=not link.get("shared", True),
            )
        )
    return links


def _object(value: Any, name: str) -> Mapping[str, Any]:
    """Return `value`; raises ValueError that names it if it is no JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} = {value}: must be an object")
    return value


def _objects(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the list of objects at `key`; raises KeyError if it is missing, ValueError if it is anything else."""
    if not isinstance(table[key], list):
        raise ValueError(f"{key} = {table[key]}: must be a list of objects")
    return [_object(value, f"{key}[{place}]") for place, value in enumerate(table[key])]


def _text(table: Mapping[str, Any], key: str) -> str:
    """Return the text at `key`; raises KeyError if it is missing, ValueError if it is no text."""
    value: Any = table[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} = {value}: must be text, in quotes")
    return value


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of texts at `key`; raises KeyError if it is missing, ValueError if it is anything else."""
    value: Any = table[key]
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f"{key} = {value}: must be a list of texts")
    return value


def _exact_number(table: Mapping[str, Any], key: str) -> Decimal:
    """Return the finite number at `key`, as printed; raises KeyError if it is missing, ValueError for any other value."""
    value = table[key]
    try:
        number = Decimal("NaN") if isinstance(value, bool) else Decimal(str(value))
    except ArithmeticError:
        number = Decimal("NaN")
    # A number of JSON may be too large for a float.
    if not math.isfinite(number) or not math.isfinite(float(number)):
        raise ValueError(f"{key} = {value}: must be a finite number")
    return number


def _number(table: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return the finite number at `key`, or `default` if the key is missing; errors as of `_exact_number`."""
    return default if default is not None and key not in table else float(_exact_number(table, key))


def _solve_rates(unit: Mapping[str, Any]) -> list[FlowResult]:
    """Return the rates of flows that start together, with the expected ones, in bytes/s; errors as of `_simulate_flows`.

    `unit`: `capacity` of each link, `flows` with their `use` of links, `penalty` and `bound`, and the expected `rates`.
    """
    capacity = _object(unit["capacity"], "capacity")
    flows = Flows(clock=Clock(), links=[Link(name, _number(capacity, name)) for name in capacity])
    started = []
    # Rates do not depend on sizes: each flow has one byte, and the clock does not run.
    for number, flow in enumerate(_objects(unit, "flows")):
        weights = _object(flow["use"], "use")
        path = flows.path(str(number), [(name, _number(weights, name)) for name in weights], _number(flow, "penalty", 1.0))
        started.append(flows.start(path, 1.0, _number(flow, "bound", _NEVER)))
    if not isinstance(unit["rates"], list) or len(unit["rates"]) != len(started):
        raise ValueError(f"rates: must be a list of {len(started)} numbers, one for each flow")
    expected = {f"rates[{place}]": rate for place, rate in enumerate(unit["rates"])}
    return [
        FlowResult(str(unit["name"]), str(number), _exact_number(expected, key), flows.rate(flow))
        for number, (flow, key) in enumerate(zip(started, expected, strict=True), 1)
    ]


def judge(cases: Path | None) -> Judgement:
    """Simulate the cases of a file and compare them with its expectations; raises UserError."""
    results = play_cases(read_cases(cases), str(cases or FILE.name))
    return Judgement(_sections(results), all(result.agrees for result in results))


def _sections(results: Sequence[FlowResult]) -> list[Section]:
    """Return the one section of the result: a table with a row for each flow, and a note on how many agree."""
    from analysis.documents.blocks import Section, Table

    rows = []
    for result in results:
        simulated, difference = "never", "-"
        if result.simulated < _NEVER:
            simulated, difference = f"{result.simulated:.10g}", f"{result.simulated - float(result.expected):.1e}"
        verdict = "agrees" if result.agrees else "DIFFERS"
        rows.append([f"{result.case}: {result.flow}", str(result.expected), simulated, difference, verdict])
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
