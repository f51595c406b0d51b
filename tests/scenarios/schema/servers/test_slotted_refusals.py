"""What clients that decide among themselves are refused or warned of, through the command line: one message, nothing written."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import networkx as nx
import pytest

from tests.helpers.small_scenario import Shell

RING = [(i, (i + 1) % 20) for i in range(20)]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    yield Shell(tmp_path, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def play(shell: Shell, *settings: str) -> tuple[int, str]:
    given = [part for setting in ("rounds=2", *settings) for part in ("--set", setting)]
    code, _, err = shell("run", "bp_ucb_timing", "--out", shell.out, "--quiet", *given)
    return code, err


def graph_file(name: str) -> str:
    return f'peers.topology={{ kind = "graph-file", path = "{name}" }}'


def links(name: str, pairs: list[tuple[int, int]], first_km: float = 0.1) -> str:
    lines = [f"{a} {b} {first_km if i == 0 else 0.1}" for i, (a, b) in enumerate(pairs)]
    Path(name).write_text("\n".join(lines), encoding="utf-8")
    return graph_file(name)


def graphml(name: str, pairs: list[tuple[int, int]], first_km: float = 0.1) -> str:
    graph = nx.Graph()
    for i, (a, b) in enumerate(pairs):
        graph.add_edge(a, b, distance_km=first_km if i == 0 else 0.1)
    nx.write_graphml(graph, name)
    return graph_file(name)


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (lambda: "peers.topology.radius_km=0.05", "peers.topology.allow_disconnected = False: the graph of 20 clients is in"),
        (lambda: links("two.txt", RING[:9] + RING[10:19]), "allow_disconnected = False: the graph of 20 clients is in 2 pieces"),
        (lambda: links("few.txt", RING[:5]), "the graph has 6 nodes: must have 20, one a client"),
        (lambda: graphml("few.graphml", RING[:5]), "the graph has 6 nodes: must have 20, one a client"),
        (lambda: links("short.txt", RING, -0.5), "distance_km = -0.5 of link 0-1: must be finite and >= 0 km"),
        (lambda: graphml("short.graphml", RING, -0.5), "distance_km = -0.5 of link 0-1: must be finite and >= 0 km"),
        (lambda: links("far.txt", RING, float("nan")), "distance_km = nan of link 0-1: must be finite and >= 0 km"),
        (lambda: graph_file("nowhere.graphml"), "peers.topology.path = 'nowhere.graphml': cannot be read as GraphML"),
        (lambda: "peers.topology.radius_km=-1.0", "peers.topology.radius_km = -1.0: must be"),
        (lambda: "belief.max_exchanges=0", "belief.max_exchanges = 0: must be >= 1"),
        (lambda: "belief.exchanges=0", "belief.exchanges = 0: must be >= 1"),
        (lambda: "belief.exchanges=100001", "belief.exchanges = 100001: must be <= 100000"),
        (lambda: "belief.max_exchanges=1000000000000000000", "belief.max_exchanges = 1000000000000000000: must be <= 100000"),
        (lambda: "gossip.max_repetitions=0", "gossip.max_repetitions = 0: must be >= 1"),
        (
            lambda: "peers.outages=[{ from_s = 1, to_s = 1, groups = [[0]] }]",
            "peers.outages.0.to_s = 1.0: must be after the start, 1.0",
        ),
        (lambda: "peers.outages=[{ from_s = 1 }]", "peers.outages.0.links = []: give either links or groups"),
        (lambda: "peers.outages=[{ from_s = 1, groups = [[]] }]", "peers.outages.0.groups = [[]]: holds a group of nobody"),
        (lambda: "belief={ coupling = 0.5, strict = true }", "belief.coupling = 0.5: the largest sum of tanh|J|"),
    ],
)
def test_one_message_exit_2_nothing_written(shell: Shell, setting, said: str) -> None:
    given = setting()
    before = sorted(Path().iterdir())
    code, err = play(shell, given)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(Path().iterdir()) == before


def test_a_coupling_that_breaks_the_condition_is_warned_of_and_reported(shell: Shell) -> None:
    code, err = play(shell, "belief.coupling=0.5")
    assert code == 0
    assert err.startswith("warning: belief.coupling = 0.5: the largest sum of tanh|J| over all but one")
    assert len(err.strip().splitlines()) == 1
    summary = json.loads((shell.out / "summary.json").read_text(encoding="utf-8"))
    assert summary["slots"]["convergence_constant"] > 1


def test_asynchronous_updates_that_would_multiply_are_warned_of(shell: Shell) -> None:
    code, err = play(shell, 'belief={ update = "asynchronous", max_exchanges = 10 }')
    assert code == 0
    assert err.startswith("warning: belief.work_s = 0.0: where every arrival is answered at once")
    assert len(err.strip().splitlines()) == 1


def test_pieces_are_allowed_if_asked_for(shell: Shell) -> None:
    pieces = links("two.txt", RING[:9] + RING[10:19]).replace(" }", ", allow_disconnected = true }")
    code, err = play(shell, pieces)
    assert (code, err) == (0, "")
