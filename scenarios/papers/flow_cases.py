"""Published completion times of flows, compared with the flows of netsim: `netsim reproduce flow_cases`.

The file that comes along holds cases of SimGrid and dslab; docs/flows.md explains its form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
RELATIVE = 1e-6
_NEVER = float("inf")
_MODELS = {"raw": Corrections(), **PRESETS}
_OPTIONS = (
    "no crosstraffic, crosstraffic, reverse traffic on the same links, split duplex, no RTT bias, weight-S NUMBER, window NUMBER"
)


@dataclass(frozen=True, slots=True)
class End:
    """End time of a flow, or its rate: expected and simulated, in the units of the file."""

    case: str
    flow: str
    expected: Decimal
    simulated: float
    tolerance: float | None = None
    """Allowed difference that the case names, or None."""

    @property
    def allowed(self) -> float:
        """Largest difference that counts as none: 1e-6 of the value, or half a unit of the last decimal that is printed."""
        if self.tolerance is not None:
            return self.tolerance
        exponent = self.expected.as_tuple().exponent
        printed = 0.5 * 10.0**exponent if isinstance(exponent, int) and exponent < 0 else 0.0
        return max(RELATIVE * abs(float(self.expected)), printed * (1 + 1e-9))

    @property
    def agrees(self) -> bool:
        """True if the simulated value is the expected one."""
        return abs(self.simulated - float(self.expected)) <= self.allowed


def corrections_of(model: str) -> tuple[Corrections, bool]:
    """Return the corrections that the words of a case name, and True if the way back runs over the same links.

    Raises ValueError for a model or an option that is not known.
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


def ends(content: Mapping[str, Any], name: str) -> list[End]:
    """Play all cases of a file called `name`; raises UserError for a case that cannot be played."""
    result: list[End] = []
    for number, case in enumerate(content.get("cases", []), 1):
        result += _check_case(case, f"{name}: case {number}", _play)
    for number, unit in enumerate(content.get("solver_units", []), 1):
        named = {"name": f"rates {number}", **unit} if isinstance(unit, dict) else unit
        result += _check_case(named, f"{name}: solver unit {number}", _rates)
    return result


def _check_case(case: Any, place: str, play: Any) -> list[End]:
    if not isinstance(case, dict):
        raise UserError(f"{place}: must be an object; docs/flows.md shows the form")
    named = f"{place} ({case.get('name', 'without a name')})"
    try:
        return play(case)  # type: ignore[no-any-return]
    except KeyError as error:
        raise UserError(f"{named}: has no {error.args[0]!r}; docs/flows.md shows the form") from error
    except ParameterError as error:
        raise UserError(f"{named}: {error}") from error
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{named}: {error or type(error).__name__}; docs/flows.md shows the form") from error


def _play(case: Mapping[str, Any]) -> list[End]:
    """Simulate one case; return the ends of its flows beside the expected ones."""
    clock = Clock()
    corrections, same_links = corrections_of(case["model"])
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
    names: dict[int, str] = {}
    ended: dict[str, float] = {}

    def start(flow: Mapping[str, Any]) -> None:
        route = transfers.route(flow["route"], flow["route"] if same_links else ())
        names[transfers.send(route, float(flow["bytes"]))] = flow["id"]

    def change(what: Mapping[str, Any]) -> None:
        numbers = {key: float(what[key]) for key in ("bytes_per_s", "latency_s") if key in what}
        transfers.change(what["link"], bytes_per_s=numbers.get("bytes_per_s"), delay_s=numbers.get("latency_s"))

    transfers.listen(lambda transfer: ended.__setitem__(names[transfer], clock.now))
    for what in case.get("changes", []):
        clock.call_at(float(what["at_s"]), change, what)
    flows = {flow["id"]: flow for flow in case["flows"]}
    if len(flows) < len(case["flows"]):
        raise ValueError("flows: two have one id")
    for flow in flows.values():
        clock.call_at(float(flow.get("start_s", 0)), start, flow)
    expected = case["expect_end_s"]
    for name in expected:
        if name not in flows:
            raise ValueError(f"expect_end_s: {name!r} is no flow; there are {', '.join(flows)}")
    clock.run()
    tolerance = float(case["tolerance"]) if "tolerance" in case else None
    return [End(case["name"], name, end_s, ended.get(name, _NEVER), tolerance) for name, end_s in expected.items()]


def _rates(unit: Mapping[str, Any]) -> list[End]:
    """Rates of flows without sizes: `capacity` of links, `flows` with their `use` of links and `penalty`, and `rates`."""
    flows = Flows(clock=Clock(), links=[Link(name, float(capacity)) for name, capacity in unit["capacity"].items()])
    started = []
    for number, flow in enumerate(unit["flows"]):
        uses = [(name, float(weight)) for name, weight in flow["use"].items()]
        path = flows.path(str(number), uses, float(flow.get("penalty", 1)))
        started.append(flows.start(path, 1.0, float(flow.get("bound", _NEVER))))
    both = zip(started, unit["rates"], strict=True)
    return [End(unit["name"], str(number), rate, flows.rate(flow)) for number, (flow, rate) in enumerate(both, 1)]


def judge(cases: Path | None) -> Judgement:
    """Simulate the cases of a file and compare them with its expectations; raises UserError."""
    results = ends(read_cases(cases), str(cases or FILE.name))
    differing = sum(not end.agrees for end in results)
    return Judgement(_sections(results, differing), not differing)


def _sections(found: Sequence[End], differing: int) -> list[Section]:
    """Return the sections of the result: a table with a row for each flow."""
    from analysis.documents.blocks import Section, Table

    rows = [
        [
            f"{end.case}: {end.flow}",
            str(end.expected),
            "never" if end.simulated == _NEVER else f"{end.simulated:.10g}",
            "-" if end.simulated == _NEVER else f"{end.simulated - float(end.expected):.1e}",
            "agrees" if end.agrees else "DIFFERS",
        ]
        for end in found
    ]
    note = f"{len(found) - differing} of {len(found)} agree: to {RELATIVE:g} of the value, or to the digits printed."
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
