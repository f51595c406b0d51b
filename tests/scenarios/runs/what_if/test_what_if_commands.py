"""`netsim stragglers` and `netsim what-if`: what they answer, keep and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from analysis.documents.blocks import Table, Text
from analysis.documents.numbers import format_number
from analysis.stragglers.savings import client_table, savings
from analysis.stragglers.section import straggler_sections
from tests.helpers.small_scenario import Shell, selected_in


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_the_commands_answer_and_keep_what_they_found_out(shell: Shell) -> None:
    assert shell.run()[0] == 0
    before = {path.name: path.read_bytes() for path in shell.out.iterdir() if path.suffix == ".parquet"}
    code, out, _ = shell("stragglers", shell.out, "--quiet", "--rounds", "2..5")
    assert code == 0
    assert "critical path" in out
    assert "no client takes the place" in out
    run = netsim.open_run(shell.out)
    table = run.arrow("what_ifs").to_pandas()
    assert set(table["round"]) == {2, 3, 4, 5}
    told = savings(run)
    assert told["rounds"].sum() == len(table) == 8
    assert told["saved_s"].sum() == pytest.approx(table["saved_s"].sum())
    assert (client_table(run)["rounds"] >= told["rounds"].reindex(client_table(run).index, fill_value=0)).all()
    # The run's own files are as they were, and it still comes out the same.
    assert all((shell.out / name).read_bytes() == data for name, data in before.items())
    (client, other_one) = selected_in(shell.out, 3)
    code, out, _ = shell("what-if", shell.out, "--round", "3", "--without", str(client), "--deadline", "0.25", "--quiet")
    assert code == 0
    assert f"without client {client}" in out
    assert "deadline 0.25 s" in out
    assert out.count(str(other_one)) >= 1


def test_rounds_restrict_every_table_of_the_command(shell: Shell) -> None:
    shell.run()
    run = netsim.open_run(shell.out)
    _, whole, _ = shell("stragglers", shell.out, "--quiet", "--no-exact")
    _, some, _ = shell("stragglers", shell.out, "--quiet", "--no-exact", "--rounds", "3..4")
    total_s = run.rounds["end_s"].iloc[-1]
    both_s = run.rounds["end_s"].iloc[3] - run.rounds["end_s"].iloc[1]
    assert f"critical path, {total_s:.2f} s up to the last close" in whole
    assert f"critical path, {both_s:.2f} s in rounds 3 to 4" in some
    two = client_table(run, rounds=(3, 4))
    selected = run.clients[run.clients["round"].isin([3, 4])]
    assert two["rounds"].sum() == len(selected) < client_table(run)["rounds"].sum()
    assert set(two.index) == set(selected["client"])
    # What the last of a round cost the others, by hand: with its end taken away the round's last end is the next one.
    ends = selected.groupby("round")["outcome_s"].apply(lambda one: one.nlargest(2).diff())
    assert two["stretch_s"].sum() == pytest.approx(-ends.sum())
    assert "by: by how much all others had ended earlier" in some
    code, _, error = shell("stragglers", shell.out, "--no-exact", "--rounds", "4..9", "--quiet")
    assert code == 2
    assert "--rounds 4..9: must lie in 1..6" in error
    # A report says of which rounds its savings are.
    shell("stragglers", shell.out, "--quiet", "--rounds", "3..4")
    (section,) = straggler_sections(netsim.open_run(shell.out))
    assert "earlier rounds 3 to 4 would have closed" in section.blocks[1].note  # type: ignore[union-attr]


def test_a_report_says_who_held_the_run_up(shell: Shell) -> None:
    shell.run()
    run = netsim.open_run(shell.out)
    (section,) = straggler_sections(run)
    words, table = section.blocks
    assert isinstance(words, Text)
    assert isinstance(table, Table)
    assert "saved (s)" not in table.cells[0]
    total_s = float(run.rounds["end_s"].iloc[-1])
    assert f"took {format_number(total_s)} s" in words.text
    shell("stragglers", shell.out, "--quiet")
    (section,) = straggler_sections(netsim.open_run(shell.out))
    table = section.blocks[1]
    assert isinstance(table, Table)
    assert table.cells[0][-1] == "saved (s)"
    assert shell("report", shell.out)[0] == 0
    report = next((shell.out / "report").glob("report.*")).read_text(encoding="utf-8")
    assert "Who held the run up" in report
    assert "What changes did" in report


def test_what_cannot_be_asked_is_refused_and_nothing_is_written(shell: Shell) -> None:
    shell.run()
    absent = next(client for client in range(6) if client not in selected_in(shell.out, 2))
    files = sorted(path.name for path in shell.out.iterdir())
    for arguments, words in (
        (("--round", "9", "--without", "1"), "--round 9: must be in 1..6"),
        (("--round", "2", "--without", str(absent)), f"--without {absent}: takes no part in round 2"),
        (("--round", "2", "--deadline", "-1"), "--deadline -1: must be > 0 seconds"),
        (("--round", "2", "--bandwidth", "2"), "--bandwidth 2: the scenario limits no bandwidth"),
        (("--round", "2"), "nothing is different; give --without"),
    ):
        code, _, error = shell("what-if", shell.out, *arguments, "--quiet")
        assert code == 2
        assert words in error
    code, _, error = shell("stragglers", shell.out, "--rounds", "4..9", "--quiet")
    assert code == 2
    assert "--rounds 4..9: must lie in 1..6" in error
    assert sorted(path.name for path in shell.out.iterdir()) == files
    assert shell("what-if", shell.folder / "none", "--round", "1", "--without", "1")[0] == 2
