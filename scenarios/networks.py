"""Networks of sites by name or from a file: CSV, GraphML, GML, or JSON in the form of the included underlays."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from models.overlays.underlay import Cable, Underlay
from netsim.core.errors import ParameterError
from scenarios.schema.errors import UserError, did_you_mean

FILE = Path(__file__).parent / "library" / "networks" / "underlays.json"
_COLUMNS = ("a", "b", "km", "delay_s", "bytes_per_s")
"""Columns of a CSV file: the ends of a cable, and its numbers."""


class _CableRow(NamedTuple):
    """Cable as a file describes it."""

    place: str
    """Its line or edge in the file, for messages."""
    a: object
    """Name of one end; it may be missing."""
    b: object
    numbers: Mapping[str, float]
    """Its `km`, `delay_s` and `bytes_per_s`, as far as they are given."""


@lru_cache(maxsize=1)
def _read_shipped() -> Mapping[str, Any]:
    """Return the content of the file of included networks, by name."""
    return dict(json.loads(FILE.read_text(encoding="utf-8"))["networks"])


def shipped_networks() -> list[str]:
    """Return the names of the included networks."""
    return list(_read_shipped())


def read_network(name: str) -> Underlay:
    """Return the included network of this name, or the network in a file; raises UserError.

    A CSV file has a row for each cable, with the columns a, b, and km or delay_s, and bytes_per_s if cables differ. In GraphML
    and GML the numbers are attributes of edges. The suffix of the file names its form.
    """
    if name in _read_shipped():
        return _parse_json(name, _read_shipped()[name])
    path = Path(name)
    readers: dict[str, Callable[[Path], Underlay]] = {
        ".csv": _read_csv,
        ".json": _read_json,
        ".graphml": _read_graph,
        ".gml": _read_graph,
    }
    if path.suffix not in readers:
        words = "is no network that comes along, and no file of CSV, JSON, GraphML or GML"
        raise UserError(f"{name!r}: {words}; {did_you_mean(name, shipped_networks())}")
    try:
        return readers[path.suffix](path)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; name a network or a file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is no text in UTF-8; save it as such") from error
    except (ParameterError, ValueError) as error:
        raise UserError(f"{name}: {error}") from error


def _read_csv(path: Path) -> Underlay:
    """Return the network in a CSV file; raises ValueError that names the line."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True, strict=True)
        try:
            names = [str(field).strip() for field in rows.fieldnames or ()]
            unknown = [field for field in names if field not in _COLUMNS]
            if unknown or not {"a", "b"} <= set(names) or not {"km", "delay_s"} & set(names):
                found = ", ".join(names) or "nothing"
                raise ValueError(f"line 1 has {found}; name the columns a, b, and km or delay_s, and bytes_per_s if links differ")
            rows.fieldnames = names
            cables = []
            for row in rows:
                place = f"line {rows.line_num}"
                if None in row:
                    raise ValueError(f"{place}: has more cells than line 1 has columns; a number has no comma in it")
                cables.append(_CableRow(place, row["a"], row["b"], _cable_numbers(place, row)))
        except csv.Error as error:
            raise ValueError(f"line {rows.line_num}: {error}") from None
    return _make_underlay(path.stem, [], cables)


def _read_graph(path: Path) -> Underlay:
    """Return the network in a GraphML or GML file; raises ValueError."""
    import networkx as nx

    try:
        graph = (nx.read_graphml if path.suffix == ".graphml" else nx.read_gml)(path)
    except OSError:
        raise
    except Exception as error:  # the parsers of networkx raise errors of many kinds
        raise ValueError(f"is no {path.suffix[1:]}: {error}") from error
    labels = {node: str(data.get("name", data.get("label", node))) for node, data in graph.nodes(data=True)}
    cables = []
    for a, b, data in graph.edges(data=True):
        place = f"edge {labels[a]} - {labels[b]}"
        if not {"km", "delay_s"} & data.keys():
            raise ValueError(f"{place} has neither km nor delay_s; give every edge one of these attributes")
        cables.append(_CableRow(place, labels[a], labels[b], _cable_numbers(place, data)))
    return _make_underlay(path.stem, list(labels.values()), cables)


def _read_json(path: Path) -> Underlay:
    """Return the network in a JSON file; raises ValueError."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return _parse_json(path.stem, content)


def _parse_json(name: str, content: object) -> Underlay:
    """Return the network called `name` from the content of a JSON file; raises ValueError for another form."""
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list) or not isinstance(content.get("links"), list):
        raise ValueError('must be an object with "nodes" (names) and "links" (pairs of numbers of nodes, and km)')
    cables = []
    for number, link in enumerate(content["links"]):
        ends = link[:2] if isinstance(link, list) and len(link) == 3 else ()
        if not ends or not all(isinstance(end, int) for end in ends) or not isinstance(link[2], int | float):
            raise ValueError(f"links[{number}] = {link!r}: must be two numbers of nodes and km")
        cables.append(Cable(ends[0], ends[1], km=float(link[2])))
    return Underlay(name, tuple(str(node) for node in content["nodes"]), tuple(cables))


def _cable_numbers(place: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return `km`, `delay_s` and `bytes_per_s` of a cable, as far as `values` have them; raises ValueError that names `place`."""
    numbers = {}
    for name in ("km", "delay_s", "bytes_per_s"):
        text = values.get(name)
        if text is None or str(text).strip() == "":
            continue
        try:
            numbers[name] = float(text)
        except ValueError:
            raise ValueError(f"{place}: {name} = {text!r} is no number") from None
    if len({"km", "delay_s"} & numbers.keys()) != 1:
        raise ValueError(f"{place}: give either km or delay_s")
    return numbers


def _make_underlay(name: str, nodes: Sequence[str], rows: Sequence[_CableRow]) -> Underlay:
    """Return the network of these cables; raises ValueError.

    Its nodes are `nodes`, and then the other ends of cables in the order in which they appear.
    """
    index_of = {node: number for number, node in enumerate(nodes)}
    if len(index_of) < len(nodes):
        repeated = next(node for node in nodes if nodes.count(node) > 1)
        raise ValueError(f"two nodes are called {repeated!r}; give each a name of its own")
    cables = []
    for place, a, b, numbers in rows:
        ends = [str(end or "").strip() for end in (a, b)]
        if not all(ends):
            raise ValueError(f"{place}: names no node; give a and b")
        first, second = (index_of.setdefault(end, len(index_of)) for end in ends)
        delay_s, bytes_per_s = numbers.get("delay_s"), numbers.get("bytes_per_s")
        cables.append(
            Cable(
                first,
                second,
                km=numbers.get("km"),
                delay_ms=None if delay_s is None else delay_s * 1e3,
                bits_per_s=None if bytes_per_s is None else bytes_per_s * 8,
            )
        )
    has_km = {cable.km is not None for cable in cables}
    if len(has_km) > 1:
        raise ValueError("some links have km and others delay_s; give all of them the same")
    return Underlay(name, tuple(index_of), tuple(cables))
