"""Topologies of peers: the neighbours, places and distances of the clients.

Every function returns a `PeerGraph` of the given number of clients; random choices come from the generator. Positions are drawn
first, client by client, so that one more client at the end moves no other. Random graphs without geometry (Erdos-Renyi,
Watts-Strogatz, Barabasi-Albert) are NetworkX's; their clients, like those of the complete graph, are at uniformly random places
of the square. A graph in several pieces is refused unless `allow_disconnected`.
"""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any
from xml.etree.ElementTree import ParseError

import numpy as np
from annotated_doc import Doc

from models.data_files import bytes_of, lines_of
from models.errors import ParameterError
from models.peers.graph import FloatArray, IntArray, PeerGraph

Side = Annotated[float, Doc("Side in km of the square in which clients are placed at random.")]
AllowDisconnected = Annotated[bool, Doc("True: accept a graph in several pieces.")]


def random_geometric(
    *,
    clients: int,
    generator: np.random.Generator,
    radius_km: Annotated[float, Doc("Clients within this distance of one another, in km, are neighbours.")] = 0.5,
    side_km: Side = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    """Random geometric graph: clients at random places of a square are linked within a distance of `radius_km`.

    Example:
        >>> import numpy as np
        >>> random_geometric(clients=4, generator=np.random.default_rng(1), radius_km=0.9).degree
        array([3, 3, 3, 3])
    """
    from scipy.spatial import KDTree

    places = _scatter(clients, side_km, generator)
    _check_positive("radius_km", radius_km, "km")
    links = KDTree(places).query_pairs(radius_km, output_type="ndarray")
    return PeerGraph.from_links(clients=clients, links=links, positions_km=places, allow_disconnected=allow_disconnected)


def nearest_neighbours(
    *,
    clients: int,
    generator: np.random.Generator,
    neighbours: Annotated[int, Doc("Number n: clients are neighbours if either is among the n nearest of the other.")] = 4,
    side_km: Side = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    """Place clients at random in a square; i and j are neighbours if either is among the `neighbours` nearest of the other.

    Example:
        >>> import numpy as np
        >>> nearest_neighbours(clients=4, generator=np.random.default_rng(1), neighbours=2).degree
        array([3, 2, 3, 2])
    """
    from scipy.spatial import KDTree

    places = _scatter(clients, side_km, generator)
    _check_between("neighbours", neighbours, 1, clients - 1)
    near = np.asarray(KDTree(places).query(places, k=neighbours + 1)[1], np.int64)
    # A client is not its own neighbour. If several clients share a place, a client may not find itself first, or at all: then
    # its farthest neighbour is left out instead.
    owner = np.arange(clients)[:, None]
    keep = near != owner
    keep[keep.all(axis=1), -1] = False
    pairs = np.stack((np.repeat(owner[:, 0], neighbours), near[keep]), axis=1)
    links = _unique_links(pairs, clients)
    return PeerGraph.from_links(clients=clients, links=links, positions_km=places, allow_disconnected=allow_disconnected)


def erdos_renyi(
    *,
    clients: int,
    generator: np.random.Generator,
    probability: Annotated[float, Doc("Probability that a pair is linked.")] = 0.3,
    side_km: Side = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    """Random graph in which every pair is linked with `probability` (Gilbert 1959, Erdos and Renyi 1959).

    Places are at random in a square, as for all graphs whose links do not depend on distances.

    Example:
        >>> import numpy as np
        >>> erdos_renyi(clients=4, generator=np.random.default_rng(1), probability=1.0).degree
        array([3, 3, 3, 3])
    """
    import networkx as nx

    places = _scatter(clients, side_km, generator)
    if not 0.0 <= probability <= 1.0:
        raise ParameterError("probability", probability, "must lie in [0, 1]")
    graph = nx.fast_gnp_random_graph(clients, probability, seed=generator)
    return _convert(graph, places, allow_disconnected)


def watts_strogatz(
    *,
    clients: int,
    generator: np.random.Generator,
    neighbours: Annotated[int, Doc("Number of nearest clients on the ring that each client is linked with; even.")] = 4,
    rewiring: Annotated[float, Doc("Probability that a link is moved.")] = 0.1,
    side_km: Side = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    """Small-world graph (Watts and Strogatz 1998): a ring in which some links are moved at random.

    Each client is linked with its `neighbours` nearest on the ring; then each link is moved with probability `rewiring`.

    Example:
        >>> import numpy as np
        >>> watts_strogatz(clients=6, generator=np.random.default_rng(1), neighbours=2, rewiring=0.0).degree
        array([2, 2, 2, 2, 2, 2])
    """
    import networkx as nx

    places = _scatter(clients, side_km, generator)
    _check_between("neighbours", neighbours, 2, clients - 1)
    if neighbours % 2:
        raise ParameterError("neighbours", neighbours, "must be even, half of them on either side")
    if not 0.0 <= rewiring <= 1.0:
        raise ParameterError("rewiring", rewiring, "must lie in [0, 1]")
    graph = nx.watts_strogatz_graph(clients, neighbours, rewiring, seed=generator)
    return _convert(graph, places, allow_disconnected)


def barabasi_albert(
    *,
    clients: int,
    generator: np.random.Generator,
    attachments: Annotated[int, Doc("Links with which each client joins.")] = 2,
    side_km: Side = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    """Let clients join one by one with `attachments` links each, to neighbours drawn in proportion to their degree (1999).

    Example:
        >>> import numpy as np
        >>> barabasi_albert(clients=5, generator=np.random.default_rng(1), attachments=1).edges
        8
    """
    import networkx as nx

    places = _scatter(clients, side_km, generator)
    _check_between("attachments", attachments, 1, clients - 1)
    return _convert(nx.barabasi_albert_graph(clients, attachments, seed=generator), places, allow_disconnected)


def grid(
    *,
    clients: int,
    rows: Annotated[int | None, Doc("Rows of the lattice; absent: as nearly square as the number of clients allows.")] = None,
    side_km: Annotated[float, Doc("Length of the lattice's longer side in km.")] = 1.0,
) -> PeerGraph:
    """Return a lattice of `rows` rows, neighbours to the left, right, above and below, evenly spaced; its longer side is
    `side_km`.

    `rows` None: as nearly square as `clients` allows. Nothing is random.

    Example:
        >>> grid(clients=6).degree
        array([2, 3, 2, 2, 3, 2])
    """
    _check_positive("side_km", side_km, "km")
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if rows is None:
        rows = max(divisor for divisor in range(1, math.isqrt(clients) + 1) if clients % divisor == 0)
    if rows < 1 or clients % rows:
        raise ParameterError("rows", rows, f"must be >= 1 and divide the number of clients, {clients}")
    number = np.arange(clients).reshape(rows, -1)
    across = np.stack((number[:, :-1].ravel(), number[:, 1:].ravel()), axis=1)
    down = np.stack((number[:-1].ravel(), number[1:].ravel()), axis=1)
    intervals = max(1, *(side - 1 for side in number.shape))
    # (column, row) of each client, in the order of their numbers.
    lattice = np.argwhere(number >= 0)[:, ::-1]
    places = side_km / intervals * lattice.astype(np.float64)
    return PeerGraph.from_links(clients=clients, links=np.concatenate((across, down)), positions_km=places)


def complete(*, clients: int, generator: np.random.Generator, side_km: Side = 1.0) -> PeerGraph:
    """Complete graph, with places at random in a square.

    Example:
        >>> import numpy as np
        >>> complete(clients=4, generator=np.random.default_rng(1)).degree
        array([3, 3, 3, 3])
    """
    places = _scatter(clients, side_km, generator)
    links = np.array(list(combinations(range(clients), 2)), np.int64).reshape(-1, 2)
    return PeerGraph.from_links(clients=clients, links=links, positions_km=places)


def graph_file(
    *,
    clients: int,
    generator: np.random.Generator,
    path: Annotated[str, Doc("File with the graph: GraphML (.graphml, .xml), or a list of links, two clients a line.")],
    side_km: Annotated[
        float,
        Doc("Side in km of the square in which clients are placed at random if the file gives no places."),
    ] = 1.0,
    allow_disconnected: AllowDisconnected = False,
) -> PeerGraph:
    r"""Return the graph in a file: GraphML if its name ends in .graphml or .xml, otherwise a list of links.

    GraphML: an undirected graph. Its nodes are the clients 0..K-1 if they are named so, else in the order of the file. Nodes
    may carry `x_km` and `y_km` (all of them or none), links `distance_km` (all or none). List: one link a line, two client
    numbers and, on all lines or none, the distance in km; a number alone is a client without a link; # begins a comment. A link
    may be named in both directions.

    Raises:
        ParameterError: names the file and the fault, also if the number of nodes is not `clients`.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "links.txt")
        ...     _ = path.write_text("0 1 0.5\n1 2 0.3\n")
        ...     graph = graph_file(clients=3, generator=np.random.default_rng(1), path=str(path))
        >>> graph.degree
        array([1, 2, 1])
    """
    import networkx as nx

    places = _scatter(clients, side_km, generator)
    graphml = Path(path).suffix.lower() in (".graphml", ".xml")
    try:
        graph = _read_graphml(path) if graphml else _read_links(path)
    except (OSError, UnicodeDecodeError, ParseError, nx.NetworkXException) as error:
        kind = "GraphML" if graphml else "a list of links"
        raise ParameterError("path", path, f"cannot be read as {kind} ({error})") from None
    names = list(graph.nodes)
    if len(names) != clients:
        raise ParameterError("path", path, f"the graph has {len(names)} nodes: must have {clients}, one a client")
    # The client of each node, by name: nodes called 0, 1, .. are these clients, other nodes count in the order of the file.
    client_of = {str(client): client for client in range(clients)}
    other_names = [name for name in names if name not in client_of]
    if other_names:
        if not graphml:
            raise ParameterError("path", path, f"{other_names[0]!r}: clients must be numbered 0..{clients - 1}")
        client_of = {name: client for client, name in enumerate(names)}
    stated_places = _node_places(path, graph, client_of)
    lengths_km = _link_lengths(path, graph)
    links = np.array([(client_of[a], client_of[b]) for a, b in graph.edges], np.int64).reshape(-1, 2)
    try:
        return PeerGraph.from_links(
            clients=clients,
            links=links,
            distance_km=lengths_km,
            positions_km=places if stated_places is None else stated_places,
            allow_disconnected=allow_disconnected,
        )
    except ValueError as error:
        raise ParameterError("path", path, f"{error}") from None


def _read_graphml(path: str) -> Any:
    """Return the NetworkX graph of a GraphML file. Raises ParameterError for a directed graph or repeated links."""
    import networkx as nx

    text = bytes_of(path)
    if b"<!ENTITY" in text or b"<!DOCTYPE" in text:
        raise ParameterError("path", path, "declares entities or a document type, which a graph has no need of; leave them out")
    try:
        graph = nx.parse_graphml(text.decode("utf-8-sig"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ParameterError("path", path, f"cannot be read as GraphML ({error}); check its keys and values") from None
    if graph.is_directed():
        raise ParameterError("path", path, "the graph is directed: must be undirected, peers hear each other")
    if graph.is_multigraph():
        raise ParameterError("path", path, "some nodes have several links with each other: each link must be named once")
    return graph


def _read_links(path: str) -> Any:
    """Return the NetworkX graph of a text file with a link on each line: two clients, and perhaps a distance.

    Blanks or commas separate; "#" begins a comment. A line with one name adds a client without links. Raises ParameterError that
    names the line.
    """
    import networkx as nx

    graph = nx.Graph()
    for number, line in enumerate(lines_of(path), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if len(words) > 3:
            raise ParameterError("path", path, f"line {number}: {line.strip()!r}: must be two clients and perhaps a distance")
        if len(words) == 1:
            graph.add_node(words[0])
        if len(words) < 2:
            continue
        first, second, *distance = words
        attributes = {"distance_km": distance[0]} if distance else {}
        # A link may stand twice, in both directions, if its distance is the same.
        if graph.has_edge(first, second) and graph.edges[first, second] != attributes:
            raise ParameterError("path", path, f"line {number}: {line.strip()!r}: this link was given otherwise before")
        graph.add_edge(first, second, **attributes)
    return graph


def _node_places(path: str, graph: Any, number: dict[str, int]) -> FloatArray | None:
    """Return the places (K, 2) of the nodes in km, or None if no node has one. `number`: the client of each node, by name."""
    placed = [name for name, data in graph.nodes(data=True) if "x_km" in data and "y_km" in data]
    if not placed:
        return None
    if len(placed) < len(graph):
        raise ParameterError("path", path, f"{len(placed)} of {len(graph)} nodes have x_km and y_km: must be all or none")
    places = np.empty((len(graph), 2))
    for name, data in graph.nodes(data=True):
        places[number[name]] = _read_number(path, "x_km", data["x_km"]), _read_number(path, "y_km", data["y_km"])
    return places


def _link_lengths(path: str, graph: Any) -> FloatArray | None:
    """Return the lengths (L,) of the links, or None if no link has one."""
    lengths = [data.get("distance_km") for _, _, data in graph.edges(data=True)]
    stated = [length for length in lengths if length is not None]
    if not stated:
        return None
    if len(stated) < len(lengths):
        raise ParameterError("path", path, f"{len(stated)} of {len(lengths)} links have a distance_km: must be all or none")
    return np.array([_read_number(path, "distance_km", length) for length in stated])


def _read_number(path: str, name: str, value: Any) -> float:
    """Return `value` as a number. Raises ParameterError that names the file."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ParameterError("path", path, f"{name} = {value!r}: must be a number of km") from None


def _convert(graph: Any, places: FloatArray, allow_disconnected: bool) -> PeerGraph:
    """Return the PeerGraph of a NetworkX graph."""
    links = np.array(graph.edges, np.int64).reshape(-1, 2)
    return PeerGraph.from_links(clients=len(places), links=links, positions_km=places, allow_disconnected=allow_disconnected)


def _unique_links(pairs: IntArray, clients: int) -> IntArray:
    """Return each link of `pairs` (n, 2) once, in whichever direction and however often it is named."""
    # Sorting takes a fraction of the time of np.unique, which hashes.
    keys = np.sort(pairs.min(axis=1) * clients + pairs.max(axis=1))
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.stack((keys // clients, keys % clients), axis=1)


def _scatter(clients: int, side_km: float, generator: np.random.Generator) -> FloatArray:
    """Return random places (K, 2) in the square."""
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    _check_positive("side_km", side_km, "km")
    return side_km * generator.random((clients, 2))


def _check_positive(name: str, value: float, unit: str) -> None:
    """Raise ParameterError unless 0 < `value` <= 1e9: powers of longer distances would overflow."""
    if not 0 < value <= 1e9:
        raise ParameterError(name, value, f"must be finite and > 0 {unit}, at most 1e+09")


def _check_between(name: str, value: int, low: int, high: int) -> None:
    """Raise ParameterError unless `low` <= `value` <= `high`."""
    if not low <= value <= high:
        raise ParameterError(name, value, f"must be between {low} and {high}, one less than the number of clients")
