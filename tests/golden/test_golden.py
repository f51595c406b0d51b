"""Every scenario file leaves the tables that were recorded, with an interruption in the middle and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.cases import case, names
from tests.golden.coverage import LEFT_OUT, offered, used
from tests.golden.record import RECORDED, changes, recorded
from tests.golden.tables import EXACT, TRAINED, Column, differences, from_text, to_text

QUICK = frozenset(
    {
        *("quickstart", "unreliable", "shared_medium", "jammed", "random_access"),
        *("feature-buffered", "feature-peers", "feature-slots", "feature-learning_asynchronous", "feature-learning_slots"),
    }
)
"""Cases of the default suite, one or more of every server, with a learner and without."""
MOST_BYTES = 5_500_000


def told(name: str, folder: Path, resumed: bool) -> str:
    if any("learner" in tables for tables in case(name).variants.values()):
        pytest.importorskip("torch", reason="needs torch, which is not installed: pip install 'netsim[fl]'")
    if any("flower" in tables for tables in case(name).variants.values()):
        pytest.importorskip("flwr", reason="needs flwr, which is not installed: pip install 'netsim[flower]'")
    found = list(changes(name, folder, (resumed,)))
    return "\n".join([f"{len(found)} differences; if they are meant, `make golden` records them:", *found[:40]] if found else [])


@pytest.mark.parametrize("name", sorted(QUICK))
def test_the_tables_are_those_recorded(name: str, tmp_path: Path) -> None:
    found = told(name, tmp_path, resumed=False)
    assert not found, found


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_so_are_those_of_all_cases_which_are_interrupted_where_they_can_be(name: str, tmp_path: Path) -> None:
    found = told(name, tmp_path, resumed=True)
    assert not found, found


@pytest.mark.slow
def test_every_kind_and_choice_occurs() -> None:
    missing = offered() - used() - LEFT_OUT.keys()
    assert not missing, f"add a variant to a file of tests/golden/features for {sorted(missing)}"


def test_nothing_is_left_out_that_occurs() -> None:
    assert LEFT_OUT.keys() <= offered()


def test_the_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in RECORDED.iterdir()) < MOST_BYTES
    assert {file.stem for file in RECORDED.iterdir()} == set(names())


def columns(**values: list[object]) -> dict[str, dict[str, Column]]:
    kinds = {int: "int", float: "float", bool: "bool", str: "text"}
    tables = {}
    for name, held in values.items():
        kind = kinds[type(next(v for v in held if v is not None))]
        tolerance = (TRAINED if name == "accuracy" else EXACT) if kind == "float" else 0.0
        tables[name] = Column(kind, tolerance, held)
    return {"rounds.parquet": tables}


BEFORE = columns(
    round=[1, 2, 3, 4],
    end_s=[0.1, 2.0, None, float("nan")],
    start_s=[0.1, 2.0, None, float("nan")],
    accuracy=[0.5, 0.75, 0.875, 0.9],
    outcome=["lost", "lost", "lost", "late"],
    good=[True, False, None, True],
)


def test_a_recording_comes_back_from_its_text() -> None:
    held = {"clients.parquet": columns(client=list(range(30)))["rounds.parquet"]} | BEFORE
    text = to_text({"a": held, "b": held})
    assert text.count("27,28,29") == 1, "what was recorded before is referred to"
    back = from_text(text)
    for variant in ("a", "b"):
        assert list(differences(back[variant], held)) == []
        assert list(differences(held, back[variant])) == []


CHANGED: dict[str, tuple[dict[str, list[object]], str | None]] = {
    "another integer": ({"round": [1, 2, 3, 5]}, "round: row 3: 4 before, 5 now (1 of 4 rows)"),
    "an integer that became a float": ({"round": [1.0, 2.0, 3.0, 4.0]}, "round: row 0: 1 before, 1.0 now"),
    "another word": ({"outcome": ["lost", "late", "lost", "late"]}, "outcome: row 1: 'lost' before, 'late' now"),
    "another truth": ({"good": [True, True, None, True]}, "good: row 1: False before, True now"),
    "a float within its tolerance": ({"end_s": [0.1 + 5e-10, 2.0 - 1e-9, None, float("nan")]}, None),
    "a float beyond it": ({"end_s": [0.1, 2.0 + 3e-9, None, float("nan")]}, "end_s: row 1"),
    "a number in place of nothing": ({"end_s": [0.1, 2.0, 0.0, float("nan")]}, "end_s: row 2: None before, 0.0 now"),
    "a number in place of nan": ({"end_s": [0.1, 2.0, None, 0.0]}, "end_s: row 3: nan before, 0.0 now"),
    "what weights decide, within its tolerance": ({"accuracy": [0.50005, 0.75, 0.875, 0.9]}, None),
    "what weights decide, beyond it": ({"accuracy": [0.5003, 0.75, 0.875, 0.9]}, "accuracy: row 0"),
    "a row less": ({"round": [1, 2, 3]}, "round: 4 rows before, 3 now"),
    "a column more": ({"energy_j": [1.0, 2.0, 3.0, 4.0]}, None),
}


@pytest.mark.parametrize("change", CHANGED)
def test_what_counts_as_a_difference(change: str) -> None:
    values, told = CHANGED[change]
    now = {"rounds.parquet": BEFORE["rounds.parquet"] | columns(**values)["rounds.parquet"], "new.parquet": {}}
    found = list(differences(BEFORE, now))
    if told is None:
        assert found == []
    else:
        (line,) = found
        assert line.startswith(f"rounds.parquet: {told}")


def test_what_is_no_longer_written_is_told() -> None:
    without = {"rounds.parquet": {k: v for k, v in BEFORE["rounds.parquet"].items() if k != "round"}}
    assert list(differences(BEFORE, without)) == ["rounds.parquet: round: is no longer written"]
    assert list(differences(BEFORE, {})) == ["rounds.parquet: is no longer written"]


def test_another_recording_is_told_from_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay of a case against a recording in which one number is another one."""
    from tests.golden import record

    known = recorded("scripted_latency")
    variant = next(iter(known))
    known[variant]["clients.parquet"]["client"].values[3] += 1
    monkeypatch.setattr(record, "recorded", lambda name: known)
    lines = list(changes("scripted_latency", tmp_path))
    assert [line.split(": row 3: ")[0] for line in lines] == [
        f"scripted_latency: {variant}: clients.parquet: client",
        f"scripted_latency: {variant} (resumed): clients.parquet: client",
    ]
