"""Tables of a run that are known before it begins: training samples of clients, links between clients, cables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from netsim.core.rows import FORMAT
from netsim.network.routed.cables import Cable
from netsim.records.columns import column
from scenarios.schema.scenario import Scenario
from scenarios.wiring.world import World

NAMES = ("partition", "links", "cables")


def make_fixed_tables(built: World, scenario: Scenario) -> dict[str, pa.Table]:
    """Return the fixed tables of the run by name; a subset of `NAMES`."""
    tables = {}
    if built.trained is not None:
        tables["partition"] = partition_table(built.trained.label_counts)
    if built.graph is not None and scenario.output.beliefs_table:
        tables["links"] = links_table(built.graph)
    network = built.network
    if network is not None and scenario.output.transfers_table:
        tables["cables"] = cables_table(network.network.cables, network.layout.client_nodes)
    return tables


def partition_table(counts: NDArray[Any]) -> pa.Table:
    """Return the table `partition` from `counts` (K, labels), the training samples of each label that each client holds."""
    clients, labels = np.nonzero(counts)
    kinds = {"client": pa.int64(), "label": pa.int32(), "samples": pa.int64()}
    return _table("partition", kinds, (clients, labels, counts[clients, labels]))


def links_table(graph: Any) -> pa.Table:
    """Return the table `links` of a `models.peers.graph.PeerGraph`: a row for each link, from its lower client to the higher."""
    # The graph has each link twice, once for each direction.
    links = np.flatnonzero(graph.source < graph.target)
    links = links[np.lexsort((graph.target[links], graph.source[links]))]
    source, target = graph.source[links], graph.target[links]
    positions_km = np.full((graph.clients, 2), np.nan) if graph.positions_km is None else graph.positions_km
    source_x_km, source_y_km = positions_km[source].T
    target_x_km, target_y_km = positions_km[target].T
    lengths = dict.fromkeys(("distance_km", "source_x_km", "source_y_km", "target_x_km", "target_y_km"), pa.float64())
    kinds = {"source": pa.int64(), "target": pa.int64()} | lengths
    values = (source, target, graph.distance_km[links], source_x_km, source_y_km, target_x_km, target_y_km)
    return _table("links", kinds, values)


def cables_table(cables: Sequence[Cable], client_nodes: Sequence[str]) -> pa.Table:
    """Return the table `cables` of a network. `client_nodes`: node of each client."""
    clients = Counter(client_nodes)
    kinds = {"cable": pa.string(), "a": pa.string(), "b": pa.string(), "delay_s": pa.float64()}
    kinds |= {"clients_at_a": pa.int64(), "clients_at_b": pa.int64()}
    rows = [(cable.name, cable.a, cable.b, cable.delay_s, clients[cable.a], clients[cable.b]) for cable in cables]
    return _table("cables", kinds, list(zip(*rows, strict=True)))


def _table(name: str, kinds: dict[str, pa.DataType], values: Sequence[Sequence[object] | NDArray[Any]]) -> pa.Table:
    """Return a table from the `values` of each column, in the order of `kinds`, with its name and format as metadata."""
    schema = pa.schema(list(kinds.items()), metadata={"netsim.table": name, "netsim.format": str(FORMAT)})
    columns = [column(list(entries), kind) for entries, kind in zip(values, kinds.values(), strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)
