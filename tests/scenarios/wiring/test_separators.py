"""Tables whose values are not separated by commas, and lines and numbers that are too long, are refused by one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small


def refusal(tmp_path: Path, content: str, *settings: str) -> str:
    file = tmp_path / "table.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as refused:
        build(small(*(setting.replace("FILE", str(file)) for setting in settings)))
    return str(refused.value)


SEPARATED = {
    "presence": ("client;start_s;end_s\n0;0;1\n", ['availability={kind="trace", path="FILE"}']),
    "bandwidth": (
        "time_s;bytes_per_s\n0;10\n",
        ["payload={up_bytes=1, down_bytes=1}", 'uplink={bandwidth={kind="trace", path="FILE"}}'],
    ),
    "durations": ("duration_s;client\n1;0\n", ['uplink={delay={kind="empirical", path="FILE"}}']),
    "devices": ("# classes\nclass;share\nslow;0.5\n", ["clients.groups=[]", "clients.devices='FILE'", "uplink={}"]),
}


@pytest.mark.parametrize("name", SEPARATED)
@pytest.mark.parametrize(("sign", "word"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_is_named(tmp_path: Path, name: str, sign: str, word: str) -> None:
    content, settings = SEPARATED[name]
    told = refusal(tmp_path, content.replace(";", sign), *settings)
    line = 2 if name == "devices" else 1
    assert f"line {line}: its values are separated by {word}; separate them by commas" in told


def test_a_cell_longer_than_a_reader_of_csv_allows_is_refused_with_its_line(tmp_path: Path) -> None:
    content = f"client,start_s,end_s\n0,0,1\n1,0,{'x' * 140_000}\n"
    told = refusal(tmp_path, content, 'availability={kind="trace", path="FILE"}')
    assert "line 3: '1,0,xxx" in told
    assert len(told) < 400


def test_a_number_of_thousands_of_digits_in_a_packet_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    settings = ["payload={up_bytes=1, down_bytes=1}", 'uplink={bandwidth={kind="packet-trace", path="FILE"}}']
    told = refusal(tmp_path, f"1\n{'9' * 5000}\n", *settings)
    assert "line 2: 99999999999999999999.. ms: must be at most 10^9" in told
