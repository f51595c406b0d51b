"""Files that are none, or not what they claim, wherever a scenario may name one: one message each, and no traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from models.data_files import csv_rows, text_of
from scenarios.runs.folders.replacement import check_run
from scenarios.runs.reading import load, parse, read
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

LONG = "0,0," + "9" * 200_000


def peers(path: str) -> dict[str, Any]:
    return {
        "name": "peers",
        "rounds": 2,
        "clients": {"count": 3},
        "server": {"kind": "fl-da", "per_round": 1},
        "policy": {"kind": "bp-index"},
        "opinions": {"synthetic": {"worth": 0.5}},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "peers": {"delay": {"kind": "constant", "value_s": 0.1}, "topology": {"kind": "graph-file", "path": path}},
    }


def states(path: str) -> dict[str, Any]:
    return {
        "name": "states",
        "rounds": 2,
        "clients": {"count": 3},
        "server": {"kind": "asynchronous"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "channels": {"count": 5, "states": {"kind": "file", "path": path}},
        "scheduler": {"kind": "cucb"},
    }


PLACES = {
    "presence": lambda path: small(f"availability={{kind='trace',path='{path}'}}"),
    "toggles": lambda path: small(f"availability={{kind='toggles',path='{path}'}}"),
    "durations": lambda path: small(f"uplink.delay={{kind='empirical',path='{path}'}}", "uplink.changes=[]"),
    "bandwidth": lambda path: small(f"uplink.bandwidth={{kind='trace',path='{path}'}}", "payload.up_bytes=10"),
    "devices": lambda path: small(f"clients.devices='{path}'"),
    "links": lambda path: parse(peers(path)),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("latin").write_bytes("duration_s\n\xe9\n".encode("latin-1"))


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("path", ["/dev/zero", "pipe", "folder", "missing", "latin", "x" * 300])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_text_file_is_refused(place: str, path: str) -> None:
    with pytest.raises(UserError) as error:
        build(PLACES[place](path))
    assert path[:40] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", ["durations", "bandwidth", "devices"])
def test_a_field_too_long_is_refused(place: str) -> None:
    Path("long.csv").write_text(f"client,start_s,end_s\n{LONG}\n")
    with pytest.raises(UserError, match="line 2: field larger than field limit"):
        build(PLACES[place]("long.csv"))


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(OSError, match="its name holds a NUL character"):
        text_of("a\0b")
    with pytest.raises(UserError, match="its name holds a NUL character"):
        build(small("availability={kind='trace',path=\"a\\u0000b\"}"))


def test_a_byte_order_mark_is_no_part_of_a_file() -> None:
    Path("presence.csv").write_bytes(b"\xef\xbb\xbfclient,start_s,end_s\n0,0,5\n")
    build(PLACES["presence"]("presence.csv"))
    Path("durations.csv").write_bytes(b"\xef\xbb\xbfduration_s\n1\n")
    build(PLACES["durations"]("durations.csv"))
    Path("study.toml").write_bytes(b'\xef\xbb\xbfname = "study"\n')
    assert read("study.toml") == {"name": "study"}


def test_an_array_that_claims_more_than_its_file_holds_is_refused() -> None:
    claims = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 5), }".ljust(117) + "\n"
    Path("big.npy").write_bytes(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + claims.encode())
    with pytest.raises(UserError, match=r"big.npy.*cannot be read as an array \(mmap length is greater than file size\)"):
        build(parse(states("big.npy")))


def test_graphs_with_wrong_attributes_or_entities_are_refused() -> None:
    start = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d" for="edge" attr.name="w" attr.type="double"/>'
    nodes = '<graph edgedefault="undirected"><node id="0"/><node id="1"/><node id="2"/>'
    Path("g.graphml").write_text(f'{start}{nodes}<edge source="0" target="1"><data key="d">abc</data></edge></graph></graphml>')
    with pytest.raises(UserError, match=r"cannot be read as GraphML .*check its keys and values"):
        build(parse(peers("g.graphml")))
    Path("e.graphml").write_text(f'<!DOCTYPE x [<!ENTITY a "aaaa">]>{start}{nodes}</graph></graphml>')
    with pytest.raises(UserError, match="declares entities or a document type"):
        build(parse(peers("e.graphml")))


def test_scenarios_that_are_none_or_too_deep_are_refused() -> None:
    for path in ("/dev/zero", "pipe", "folder"):
        with pytest.raises(UserError, match=f"scenario file '{path}'"):
            load(path)
    Path("deep.toml").write_text(f"[{'.'.join('a' * 3000)}]\nx = 1\n")
    with pytest.raises(UserError, match=r"'deep\.toml' has tables within each other more than 32 times"):
        load("deep.toml")
    with pytest.raises(UserError, match="has 5000 levels; no key has more than 32"):
        small(f"{'.'.join('a' * 5000)}=1")


def test_folders_whose_names_are_not_utf8_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tables can be written to folders only whose names are UTF-8"):
        check_run(Path("runs\udcff"), overwrite=False)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "latin", "pipe"]


def test_rows_of_a_table_have_the_numbers_of_their_lines() -> None:
    assert csv_rows(["a,b", "", '1,"2']) == [(1, ["a", "b"]), (2, []), (3, ["1", "2"])]
