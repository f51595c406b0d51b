"""Networks of sites by name or from a file: CSV, GraphML, GML, or JSON in the form of the included underlays."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.overlays.underlay import Cable, Underlay
from netsim.core.errors import ParameterError
from scenarios.schema.errors import UserError, did_you_mean

FILE = Path(__file__).parent / "library" / "networks" / "underlays.json"
_COLUMNS = ("a", "b", "km", "delay_s", "bytes_per_s")


@lru_cache(maxsize=1)
def _read_shipped() -> Mapping[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8"))["networks"])


def shipped_networks() -> list[str]:
    """Return the names of the networks that come along."""
    return list(_read_shipped())


def read_network(name: str) -> Underlay:
    """Return the included network of this name, or the network in a file; raises UserError.

    A CSV file has the columns a, b and km or delay_s, and bytes_per_s if cables differ; GraphML and GML have them as attributes
    of edges. The suffix says which.
    """
    if name in _read_shipped():
        return _from_json(name, _read_shipped()[name])
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
            links = []
            for row in rows:
                place = f"line {rows.line_num}"
                if None in row:
                    raise ValueError(f"{place}: has more cells than line 1 has columns; a number has no comma in it")
                links.append((place, row["a"], row["b"], _attributes(place, row)))
        except csv.Error as error:
            raise ValueError(f"line {rows.line_num}: {error}") from None
    return _network(path.stem, [], links)


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
    links = []
    for a, b, data in graph.edges(data=True):
        place = f"edge {labels[a]} - {labels[b]}"
        if not {"km", "delay_s"} & data.keys():
            raise ValueError(f"{place} has neither km nor delay_s; give every edge one of these attributes")
        links.append((place, labels[a], labels[b], _attributes(place, data)))
    return _network(path.stem, list(labels.values()), links)


def _read_json(path: Path) -> Underlay:
    content = json.loads(path.read_text(encoding="utf-8"))
    return _from_json(path.stem, content)


def _from_json(name: str, content: object) -> Underlay:
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list) or not isinstance(content.get("links"), list):
        raise ValueError('must be an object with "nodes" (names) and "links" (pairs of numbers of nodes, and km)')
    cables = []
    for number, link in enumerate(content["links"]):
        ends = link[:2] if isinstance(link, list) and len(link) == 3 else ()
        if not ends or not all(isinstance(end, int) for end in ends) or not isinstance(link[2], int | float):
            raise ValueError(f"links[{number}] = {link!r}: must be two numbers of nodes and km")
        cables.append(Cable(ends[0], ends[1], km=float(link[2])))
    return Underlay(name, tuple(str(node) for node in content["nodes"]), tuple(cables))


def _attributes(place: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a cable among `values`; raises ValueError that names `place`."""
    attributes = {}
    for name in ("km", "delay_s", "bytes_per_s"):
        text = values.get(name)
        if text is None or str(text).strip() == "":
            continue
        try:
            attributes[name] = float(text)
        except ValueError:
            raise ValueError(f"{place}: {name} = {text!r} is no number") from None
    if len({"km", "delay_s"} & attributes.keys()) != 1:
        raise ValueError(f"{place}: give either km or delay_s")
    return attributes


def _network(name: str, nodes: Sequence[str], links: Sequence[tuple[str, Any, Any, Mapping[str, float]]]) -> Underlay:
    """Return the network of these links; nodes in the order in which they are named."""
    numbers = {node: number for number, node in enumerate(nodes)}
    if len(numbers) < len(nodes):
        twice = next(node for node in nodes if nodes.count(node) > 1)
        raise ValueError(f"two nodes are called {twice!r}; give each a name of its own")
    cables = []
    for place, a, b, values in links:
        ends = [str(end or "").strip() for end in (a, b)]
        if not all(ends):
            raise ValueError(f"{place}: names no node; give a and b")
        at = [numbers.setdefault(end, len(numbers)) for end in ends]
        delay_s, bytes_per_s = values.get("delay_s"), values.get("bytes_per_s")
        cables.append(
            Cable(
                at[0],
                at[1],
                km=values.get("km"),
                delay_ms=None if delay_s is None else delay_s * 1e3,
                bits_per_s=None if bytes_per_s is None else bytes_per_s * 8,
            )
        )
    measured = {cable.km is not None for cable in cables}
    if len(measured) > 1:
        raise ValueError("some links have km and others delay_s; give all of them the same")
    return Underlay(name, tuple(numbers), tuple(cables))
