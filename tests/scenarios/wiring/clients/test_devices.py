"""Device tables: three classes with every phase time worked out, single clients, and every mistake with its file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse, to_toml
from scenarios.schema.errors import UserError
from scenarios.schema.world import Clients
from scenarios.wiring.clients.population import Population
from scenarios.wiring.simulation import build
from tests.helpers.small_worlds import World

CLASSES = """\
class, share, samples_per_s, down_bytes_per_s, up_bytes_per_s
phone, 0.5, 4, 100, 50
tablet, 0.25, 8, 200, 100
laptop, 0.25, 32, 1000, 400
"""
TABLES: dict[str, Any] = {
    "clients": {"count": 4, "devices": "devices.csv", "data_sizes": [16, 8, 16, 32]},
    "server": {"per_round": 4},
    "work": {"epochs": 2, "batch_size": 5},
    "payload": {"down_bytes": 400, "up_bytes": 200},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.csv").write_text(CLASSES, encoding="utf-8")


def world(**tables: Any) -> World:
    return World([[0, 1, 2, 3]], **TABLES | tables)


PHASES = ("client", "group", "download_end_s", "compute_end_s", "upload_end_s", "samples", "steps")


def test_three_classes_with_every_phase_by_hand() -> None:
    # Clients 0 and 1 are phones: 400 bytes at 100 a second take 4 s, 32 and 16 samples at 4 a second 8 and 4 s, 200 bytes at 50
    # a second 4 s. Client 2 is a tablet: 2 s, 32/8 = 4 s, 2 s. Client 3 is a laptop: 0.4 s, 64/32 = 2 s, 0.5 s.
    it = world().play()
    assert sorted(it.rows(*PHASES)) == [
        (0, "phone", 4, 12, 16, 32, 8),
        (1, "phone", 4, 8, 12, 16, 4),
        (2, "tablet", 2, 6, 8, 32, 8),
        (3, "laptop", 0.4, 2.4, 2.9, 64, 14),
    ]


def test_a_line_for_each_client() -> None:
    Path("devices.csv").write_text(
        "# measured\nclient,class,samples_per_s,up_bytes_per_s\n2,b,8,100\n\n0,a,4,50\n3,b,16,200\n1,a,2,25\n", encoding="utf-8"
    )
    it = world(downlink={"bandwidth_bytes_per_s": 400.0}).play()
    assert sorted(it.rows(*PHASES[:5])) == [(0, "a", 1, 9, 13), (1, "a", 1, 9, 17), (2, "b", 1, 5, 7), (3, "b", 1, 5, 6)]
    # Groups need not be one after the other.
    Path("devices.csv").write_text("client,class,samples_per_s\n0,b,1\n1,a,2\n2,b,4\n3,a,8\n", encoding="utf-8")
    it = world(uplink={"delay": {"kind": "constant", "value_s": {"by_group": {"a": 1.0, "b": 2.0}}}}).play()
    spent = sorted((row.client, row.group, row.upload_end_s - row.upload_start_s) for row in it.records.updates)
    assert spent == [(0, "b", 2), (1, "a", 1), (2, "b", 2), (3, "a", 1)]


def test_missing_columns_take_the_scenarios_values_and_columns_take_their_place() -> None:
    Path("devices.csv").write_text("class,share,up_bytes_per_s\nphone,0.5,50\nlaptop,0.5,400\n", encoding="utf-8")
    it = world(compute={"seconds_per_sample": 0.25}, uplink={"bandwidth_bytes_per_s": 1.0}).play()
    assert sorted(it.rows("client", "compute_end_s", "upload_end_s")) == [(0, 8, 12), (1, 4, 8), (2, 8, 8.5), (3, 16, 16.5)]
    # A speed in the table takes the place of one that the scenario gives in another way, and noise goes with it.
    Path("devices.csv").write_text(CLASSES, encoding="utf-8")
    it = world(compute={"seconds_per_sample": 9.0, "noise": {"kind": "log-normal", "sigma": 0.0}}).play()
    assert sorted(it.rows("client", "compute_end_s"))[0] == (0, 12)


def test_groups_of_the_scenario_may_say_how_many_there_are() -> None:
    Path("devices.csv").write_text("class,samples_per_s\nlaptop,32\nphone,4\n", encoding="utf-8")
    clients = TABLES["clients"] | {"groups": [{"name": "phone", "count": 3}, {"name": "laptop", "count": 1}]}
    it = world(clients=clients).play()
    assert sorted(it.rows("client", "group", "compute_end_s")) == [
        (0, "phone", 8),
        (1, "phone", 4),
        (2, "phone", 8),
        (3, "laptop", 2),
    ]


def test_a_summary_says_how_much_each_class_took_part() -> None:
    # The round closes at 10 s: both phones are late.
    tables = {"name": "classes", "rounds": 2, "policy": {"kind": "all"}} | TABLES
    deadline = {"per_round": 4, "deadline_s": 10.0, "stragglers": "cancel"}
    scenario = parse(tables | {"server": deadline})
    finished = run_in_memory(build(scenario), scenario)
    assert finished.summary()["groups"] == {
        "phone": {"clients": 2, "selected": 4, "delivered": 0, "clients_delivered": 0},
        "tablet": {"clients": 1, "selected": 2, "delivered": 2, "clients_delivered": 1},
        "laptop": {"clients": 1, "selected": 2, "delivered": 2, "clients_delivered": 1},
    }
    # Every group that nothing came from is named in a warning.
    assert ["phone" in caution["text"] for caution in finished.summary()["warnings"]] == [True, True]


def test_a_scenario_is_written_and_read_with_its_table() -> None:
    scenario = parse({"name": "x", "rounds": 1, "policy": {"kind": "all"}} | TABLES)
    assert 'devices = "devices.csv"' in to_toml(scenario)


def test_a_table_of_a_million_clients() -> None:
    section = Clients.model_validate({"count": 1_000_000, "devices": "devices.csv"})
    population = Population(section)
    assert [len(members) for members in population.members.values()] == [500_000, 250_000, 250_000]
    assert population.names_of(np.array([499_999, 500_000, 999_999])) == ["phone", "tablet", "laptop"]


HEAD = "class,share,samples_per_s\n"
REFUSED = {
    "line 3: samples_per_s is missing": HEAD + "a,0.5,1\nb,0.5,\n",
    "line 3: has 4 values for 3 columns": HEAD + "a,0.5,1\nb,0,5,2\n",
    "line 2: battery_j = 0: must be finite and > 0": "class,share,battery_j\na,1,0\n",
    "line 2: samples_per_s = -1: must be finite and > 0": HEAD + "a,1,-1\n",
    "line 2: samples_per_s = inf: must be finite and > 0": HEAD + "a,1,inf\n",
    "line 4: samples_per_s = 'fast': must be a number": HEAD + "# slow ones\n\na,1,fast\n",
    "line 2: idle_w = -0.5: must be finite and >= 0": "class,share,idle_w\na,1,-0.5\n",
    "line 1: unknown column 'sample_per_s'; did you mean 'samples_per_s'?": "class,share,sample_per_s\na,1,1\n",
    "line 1: column 'share' is there twice": "class,share,share\na,1,1\n",
    "line 1: no column is class or client": "share,samples_per_s\n1,1\n",
    "line 1: give either client": "client,share\n0,1\n",
    "line 3: class 'a' is there twice": HEAD + "a,0.5,1\na,0.5,2\n",
    "line 2: class 'a' has no share": "class,samples_per_s\na,1\n",
    "the shares add up to 0.75; make it 1": HEAD + "a,0.5,1\nb,0.25,2\n",
    "line 3: client = 4: must be below clients.count = 4": "client,samples_per_s\n0,1\n4,1\n",
    "line 2: client = 0: is there 2 times": "client,samples_per_s\n0,1\n0,1\n",
    "line 2: client = 'x': must be the number of a client": "client,samples_per_s\nx,1\n",
    "has no line for client 2": "client,samples_per_s\n0,1\n1,1\n3,1\n",
    "must hold a line of column names and at least one": HEAD,
    "share = 0.01: is no client of 4": HEAD + "a,0.99,1\nb,0.01,1\n",
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_table_is_refused_with_file_and_line(message: str) -> None:
    Path("devices.csv").write_text(REFUSED[message], encoding="utf-8")
    with pytest.raises(UserError) as caught:
        world()
    assert message in str(caught.value)
    assert "devices.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_without_clients_is_named_with_its_file_whatever_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a{x}.csv").write_text(CLASSES.replace("0.5,", "0.01,").replace("tablet, 0.25", "tablet, 0.74"))
    clients = TABLES["clients"] | {"devices": "a{x}.csv"}
    with pytest.raises(UserError, match=r"a\{x\}\.csv: class 'phone': share = 0\.01: is no client of 4"):
        world(clients=clients)


def test_a_speed_whose_reciprocal_is_no_number_is_refused() -> None:
    Path("devices.csv").write_text(HEAD + "a,1,1e-320\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^compute.samples_per_s: a sample takes inf s; must be at most"):
        world()


def test_a_change_of_a_law_that_the_table_replaces_is_refused() -> None:
    uplink = {"bandwidth": {"kind": "constant", "bytes_per_s": 9.0}}
    assert (0, 16) in world(uplink=uplink).play().rows("client", "upload_end_s")
    why = r"clients.devices gives uplink.bandwidth_bytes_per_s in place of the law"
    with pytest.raises(UserError, match=rf"^uplink.changes.0.bandwidth = {{'bytes_per_s': 3.0}}: {why}"):
        world(uplink=uplink | {"changes": [{"at_round": 2, "bandwidth": {"bytes_per_s": 3.0}}]})


@pytest.mark.parametrize(
    ("clients", "table", "message"),
    [
        ({"devices": "nowhere.csv"}, CLASSES, "clients.devices = 'nowhere.csv': cannot be read as a text file"),
        (
            {"groups": [{"name": "phone", "share": 1.0}]},
            "class,samples_per_s\nphon,1\n",
            "line 2: unknown class 'phon'; did you mean 'phone'? (clients.groups)",
        ),
        ({"groups": [{"name": "phone", "share": 1.0}]}, HEAD + "phone,1,1\n", "line 2: leave the column share out"),
        (
            {"groups": [{"name": "phone", "share": 0.5}, {"name": "laptop", "share": 0.5}]},
            "class,samples_per_s\nphone,1\n",
            "has no line for group 'laptop'",
        ),
        ({"groups": [{"name": "a", "share": 1.0}]}, "client,idle_w\n0,1\n1,1\n2,1\n3,1\n", "clients.groups: leave them out"),
    ],
)
def test_a_table_that_does_not_go_with_the_scenario_is_refused(clients: dict[str, Any], table: str, message: str) -> None:
    Path("devices.csv").write_text(table, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        world(clients=TABLES["clients"] | clients)
    assert message in str(caught.value)
