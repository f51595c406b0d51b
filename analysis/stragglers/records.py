"""The rounds and attempts of a run, read from its tables and the facts of its coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.rows import ROUND_CAUSES

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

COLUMNS = (
    *("round", "client", "outcome", "selected_s", "download_start_s", "download_end_s", "compute_start_s", "compute_end_s"),
    *("upload_start_s", "upload_end_s", "outcome_s", "started_round", "group"),
    *("number", "begun_by", "begun_after", "sent_after"),
)
OLD = "was recorded before causes were: its tables do not say what closed a round; run it again"
"""End of the message about a run of format 1."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The rounds of one run and its attempts, with the facts of its coordinator that matter for reading them."""

    rounds: pd.DataFrame
    """Table with a row for each round, ascending (with slots: communication round): round, start_s, end_s and the
    `ROUND_CAUSES`.
    """
    attempts: pd.DataFrame
    """The `COLUMNS` of the attempts that began in one of these rounds, in the order of the table."""
    carries: bool
    """True if a round is about the attempts that end in it, whenever they began."""
    retries: bool
    """True if an update may take several attempts, one a round."""
    inexact: frozenset[str] = frozenset()
    """Phases whose end does not shift by as much as their start."""
    beyond: pd.DataFrame | None = None
    """Other attempts that causes may name: peers have their own rounds, which may be ahead of the run's."""
    tree: TreeRecords | None = None
    """With edges: all rounds and attempts of the tree; `rounds` then holds rounds whose members are clients.

    None without edges.
    """


@dataclass(frozen=True, slots=True)
class TreeRecords:
    """Rounds and attempts of all nodes of a tree, with common numbers, to which causes refer."""

    rounds: pd.DataFrame
    """Rounds of the server, then of edges, with the columns of `RunRecords` and term, the number of the edge's attempt."""
    attempts: pd.DataFrame
    """Attempts of clients, then of edges, with the columns of `RunRecords` and edge, the name of the edge (null: a client)."""
    servers: int
    """Number of rounds of the server."""


def run_records(run: Run) -> RunRecords:
    """Return the rounds and attempts of `run`. ValueError: it kept no records of single clients, or none of causes."""
    facts = run.summary.get("coordinator")
    if facts is None:
        raise ValueError(f"{run.source.place}: {OLD}")
    attempts = run.arrow("clients", COLUMNS).to_pandas()
    for name in ("outcome", "begun_by"):
        attempts[name] = attempts[name].astype(str)
    if len(run.rounds):
        # An attempt without an end was in flight at the end of the run.
        attempts["outcome_s"] = attempts["outcome_s"].fillna(float(run.rounds["end_s"].iloc[-1]))
    if facts.get("tiered"):
        return _tree_records(run, attempts, facts)
    rounds = run.arrow("communication_rounds").to_pandas() if facts["slotted"] else run.rounds
    if facts["slotted"]:
        # The slot in progress at the end of the run is not in the table of rounds.
        rounds = rounds[rounds["slot"] <= len(run.rounds)]
    rounds = rounds[["round", "start_s", "end_s", *ROUND_CAUSES]].reset_index(drop=True)
    for name in ("opened_by", "closed_by", "close_rule"):
        rounds[name] = rounds[name].astype(object)
    within = attempts["round"].isin(rounds["round"])
    return RunRecords(
        rounds=rounds,
        attempts=attempts[within].reset_index(drop=True),
        beyond=attempts[~within].reset_index(drop=True),
        carries=bool(facts["carries_over"]),
        retries=bool(facts["resends"]),
        inexact=frozenset(facts["inexact"]),
    )


def _tree_records(run: Run, clients: pd.DataFrame, facts: dict[str, Any]) -> RunRecords:
    """Return the records of a run with edges. Their rounds and attempts share numbers with those of the server and clients."""
    import pandas as pd

    edges = run.arrow("edges").to_pandas().astype({"edge": str, "outcome": str, "begun_by": str})
    edge_rounds, server = run.arrow("edge_rounds").to_pandas().astype({"edge": str}), run.rounds
    edge_rounds = edge_rounds.assign(term=terms_of(edge_rounds, edges))
    edges["outcome_s"] = edges["outcome_s"].fillna(float(server["end_s"].iloc[-1])) if len(server) else edges["outcome_s"]
    clients = clients.assign(coordinator=run.arrow("clients", ["edge"]).to_pandas()["edge"].astype(str), edge=None)
    edges = edges.rename(columns={"term_start_s": "compute_start_s", "term_end_s": "compute_end_s"})
    absent = {"client": -1, "started_round": np.nan, "group": None, "sent_after": np.nan}
    edges = edges.assign(coordinator=edges["above"].astype(object), **absent)
    # The number of an edge's attempt follows those of all clients' attempts; a round is known by its node and its number.
    first = int(clients["number"].max()) if len(clients) else 0
    edges["number"] += first
    edge_rounds["term"] = np.where(edge_rounds["term"] > 0, edge_rounds["term"] + first, 0)
    rounds = pd.concat([server.assign(edge=None, term=0), edge_rounds], ignore_index=True)
    # `edge != edge` is true for NaN, with which pandas marks the rounds of the server.
    nodes = [None if edge != edge or edge is None else str(edge) for edge in rounds["edge"]]
    ids = {key: index + 1 for index, key in enumerate(zip(nodes, rounds["round"].tolist(), strict=True))}
    client_nodes = set(clients["coordinator"])

    def common_number(kind: str, after: float, node: str | None) -> float:
        """Return the number in the joint table of the round or attempt `after`, which caused something at `node`; NaN if unknown.

        Nodes number their own rounds and attempts, while the joint table numbers those of all nodes together. `kind` says what
        was caused, and so what `after` numbers.
        """
        if kind in ("open", "close"):
            return ids.get((node, int(after)), np.nan)
        if kind == "term" or (kind == "end" and node not in client_nodes):
            return after + first
        return after

    for side in ("opened", "closed"):
        causes = zip(rounds[f"{side}_by"].astype(str), rounds[f"{side}_after"].astype(float), nodes, strict=True)
        rounds[f"{side}_after"] = [common_number(*cause) for cause in causes]
    rounds["round"] = np.arange(1, len(rounds) + 1)
    attempts = pd.concat([clients, edges], ignore_index=True)
    above = [None if node != node or node is None else str(node) for node in attempts["coordinator"]]
    begun = zip(attempts["begun_by"].astype(str), attempts["begun_after"].astype(float), above, strict=True)
    attempts["begun_after"] = [common_number(*cause) for cause in begun]
    attempts["round"] = [ids.get(key, 0) for key in zip(above, attempts["round"].tolist(), strict=True)]
    for name in ("opened_by", "closed_by", "close_rule"):
        rounds[name] = rounds[name].astype(object)
    columns = ["round", "start_s", "end_s", *ROUND_CAUSES]
    tree = TreeRecords(rounds[[*columns, "term"]], attempts[[*COLUMNS, "edge"]], len(server))
    leaves = rounds[[node in client_nodes for node in nodes]][columns].reset_index(drop=True)
    client_attempts = attempts[attempts["edge"].isna() & attempts["round"].isin(leaves["round"])][list(COLUMNS)].reset_index(
        drop=True
    )
    return RunRecords(
        rounds=leaves, attempts=client_attempts, carries=False, retries=False, inexact=frozenset(facts["inexact"]), tree=tree
    )


def terms_of(edge_rounds: pd.DataFrame, edges: pd.DataFrame) -> list[int]:
    """Return for each row of `edge_rounds` (n,) the number of the edge's attempt for which the round counts; 0 if there is none.

    An edge may go on with rounds after the end of its term, while its model travels: these count for its next attempt.
    `edge_rounds`, `edges`: the tables of these names.
    """
    ends_s = dict(zip(edges["number"].tolist(), edges["term_end_s"].tolist(), strict=True))
    following: dict[int, int] = {}  # number of an attempt to that of the next attempt of the same edge
    for _, numbers in edges.sort_values("number").groupby("edge")["number"]:
        following |= dict(pairwise(numbers.tolist()))
    rounds = zip(edge_rounds["term"].tolist(), edge_rounds["end_s"].tolist(), strict=True)
    return [following.get(term, 0) if end_s > ends_s.get(term, np.inf) else term for term, end_s in rounds]


def updates_begun_s(attempts: pd.DataFrame) -> FloatArray:
    """Return the time (n,) at which each attempt's update began: the first selection of its client with it."""
    if attempts["started_round"].isna().all():
        return attempts["selected_s"].to_numpy(np.float64)
    return attempts.groupby(["client", "started_round"])["selected_s"].transform("min").to_numpy(np.float64)
