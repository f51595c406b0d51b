"""Loads of the links of `[network]`, from the tables `transfers`, `link_loads` and `cables` of a run.

A link is a cable in one direction, `CABLE>NODE` with the node that it leads to, or a cable that both directions share (`CABLE`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

_PHASES = {"model": "download", "update": "upload"}
"""Phase of a client that a transfer is, by its kind."""
_SAME_S = 1e-9
"""Relative difference of two times that are one."""


def has_loads(run: Run) -> bool:
    """Return True if a run recorded its links, and bytes crossed one."""
    return run.source.has("cables") and run.source.has("link_loads") and run.arrow("link_loads", ["round"]).num_rows > 0


def link_table(run: Run) -> pd.DataFrame:
    """Return a row for each link that bytes crossed, indexed by its name, the busiest first.

    Columns: cable, carried_bytes, utilisation (mean over the run), peak (greatest of a round), transfers (number of transfers
    that the link limited for longest), limited_s (seconds for which it limited transfers, summed over them). ValueError: the run
    did not record its links (`has_loads`).
    """
    import pandas as pd

    loads = run.arrow("link_loads").to_pandas()
    loads["link"] = loads["link"].astype(str)
    # Bytes that the link could have carried in the round.
    loads["room_bytes"] = loads["bytes_per_s"] * (loads["end_s"] - loads["start_s"])
    loads["share"] = loads["carried_bytes"] / loads["room_bytes"]
    loads["seconds"] = loads["end_s"] - loads["start_s"]
    by_link = loads.groupby("link")
    sums = by_link[["carried_bytes", "room_bytes", "seconds"]].sum()
    whole_s = loads["end_s"].max() - loads["start_s"].min()
    limits = [(link, *numbers) for link, numbers in _limits(run).items()]
    limited = pd.DataFrame(limits, columns=["link", "transfers", "limited_s"]).set_index("link")
    table = pd.DataFrame(
        {
            "cable": [name.split(">")[0] for name in sums.index],
            "carried_bytes": sums["carried_bytes"],
            # Rounds in which nothing crossed a link have no row: assume the bandwidth of the other rounds.
            "utilisation": sums["carried_bytes"] / (sums["room_bytes"] / sums["seconds"] * whole_s),
            "peak": by_link["share"].max(),
        }
    ).join(limited)
    table = table.fillna({"transfers": 0, "limited_s": 0.0}).astype({"transfers": "int64"})
    return table.sort_values(["utilisation", "carried_bytes"], ascending=False, kind="stable")


class _Limit(NamedTuple):
    """Transfers that a link limited."""

    transfers: int
    """Transfers that it limited longer than any other link did."""
    limited_s: float
    """Seconds for which it limited any, added up over them."""


def _limits(run: Run) -> dict[str, _Limit]:
    """Return for each link the number of transfers that it limited for longest, and the seconds for which it limited any."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for piece in run.pieces("transfers", ["limit", "limits"]):
        for limit, limits in zip(piece.column("limit").to_pylist(), piece.column("limits").to_pylist(), strict=True):
            if limit is not None:
                counts[limit] += 1
                for link, limited_s in json.loads(limits).items():
                    seconds[link] += limited_s
    return {link: _Limit(counts[link], limited_s) for link, limited_s in seconds.items()}


class Utilisation(NamedTuple):
    """Utilisation of links over time."""

    edges_s: FloatArray
    """(n + 1,) ends of the intervals."""
    shares: FloatArray
    """(links, n) share of the bandwidth that was used in each interval."""


def utilisation_over_time(run: Run, links: list[str], most: int) -> Utilisation:
    """Return the utilisation of `links` over time, as means over at most `most` intervals.

    Intervals are rounds, or equal steps if there are more rounds than `most`. The bytes of a round are spread evenly over it.
    """
    loads = run.arrow("link_loads", ["link", "start_s", "end_s", "carried_bytes", "bytes_per_s"]).to_pandas()
    row_of = {link: row for row, link in enumerate(links)}
    edges = np.unique(np.concatenate([loads["start_s"], loads["end_s"]]))
    if edges.size > most + 1:
        edges = np.linspace(edges[0], edges[-1], most + 1)
    # Share of the bandwidth times seconds, of each link (row) in each interval (column).
    used_s = np.zeros((len(links), edges.size - 1))
    for link, start_s, end_s, size, rate in zip(*(loads[name].to_list() for name in loads), strict=True):
        if link not in row_of:
            continue
        first, last = np.searchsorted(edges, start_s, "right") - 1, np.searchsorted(edges, end_s, "left")
        overlap_s = np.minimum(edges[first + 1 : last + 1], end_s) - np.maximum(edges[first:last], start_s)
        used_s[row_of[link], first:last] += size / (rate * (end_s - start_s)) * overlap_s
    return Utilisation(edges, used_s / np.diff(edges))


def path_limits(run: Run, path: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds for which links limited the transfers on a critical path: a row for each phase and link.

    `path`: as `analysis.stragglers.critical_path` returns it. Columns: round, client, phase (download or upload), start_s, end_s
    (of the phase), link and limited_s. What is left of a phase is delay, or a limit of the transfer's own (link "own"). Empty
    if the run did not record its transfers.
    """
    import pandas as pd

    rows = []
    if run.source.has("transfers"):
        sent = _transfers_of_clients(run)
        steps = path[path["attempt"].notna() & path["phase"].isin(["download", "upload"])]
        for step in steps[["round", "client", "phase", "start_s", "end_s"]].to_dict("records"):
            slack_s = _SAME_S * max(step["end_s"], 1.0)
            for transfer in sent.get((int(step["client"]), step["phase"]), ()):
                if step["start_s"] - slack_s <= transfer.sent_s and transfer.end_s <= step["end_s"] + slack_s:
                    seconds = json.loads(transfer.limits)
                    rows += [step | {"link": link, "limited_s": limited_s} for link, limited_s in seconds.items()]
    return pd.DataFrame(rows, columns=["round", "client", "phase", "start_s", "end_s", "link", "limited_s"])


class _Transfer(NamedTuple):
    """Transfer of a model or an update."""

    sent_s: float
    end_s: float
    limits: str
    """Seconds for which each link limited it, as JSON."""


def _transfers_of_clients(run: Run) -> dict[tuple[int, str], list[_Transfer]]:
    """Return the transfers of models and updates by (number of the attempt, phase), the phase being download or upload."""
    transfers: dict[tuple[int, str], list[_Transfer]] = defaultdict(list)
    for piece in run.pieces("transfers", ["kind", "number", "sent_s", "end_s", "limits"]):
        for row in piece.to_pylist():
            phase = _PHASES.get(row["kind"])
            if phase is not None:
                transfers[row["number"], phase].append(_Transfer(row["sent_s"], row["end_s"], row["limits"]))
    return transfers
