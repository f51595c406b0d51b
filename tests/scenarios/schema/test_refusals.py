"""What a user may get wrong in a scenario: exit code 2, one message with key, value and remedy, and nothing written."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from scenarios.runs.reading import parse, read_file, shipped_files
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.mistakes import CASES
from tests.helpers.small_scenario import TEXT, Shell
from tests.helpers.suites import each_nth


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NETSIM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield Shell(tmp_path, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def refused(shell: Shell, *fragments: str, settings: tuple[str, ...] = (), lines: int = 1) -> str:
    code, out, err = shell.run(*(text for setting in settings for text in ("--set", setting)))
    assert code == 2, (out, err)
    assert out == ""
    assert err.count("\n") == lines, err
    assert "Traceback" not in err
    for fragment in fragments:
        assert fragment in err
    assert not shell.out.exists()
    return err


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("setting", CASES)
def test_one_wrong_key_is_told_with_value_and_remedy(shell, setting):
    err = refused(shell, CASES[setting], settings=(setting,))
    assert err.startswith(f"{shell.file}: ")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("name = \nrounds = 3", "is not valid TOML: Invalid value (at line 1, column 8); fix the file at that place"),
        ("rounds = 1\nrounds = 2", "is not valid TOML: Cannot overwrite a value"),
        ("x = " + "9" * 5000, "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        (TEXT.replace("rounds = 6", "rounds = 0x1G"), "is not valid TOML"),
    ],
    ids=["no-value", "twice", "long-number", "deep", "odd-number"],
)
def test_a_file_that_is_not_toml(shell, text, fragment):
    shell.file.write_text(text, encoding="utf-8")
    refused(shell, f"scenario file {str(shell.file)!r} {fragment}")


def test_a_file_that_is_not_text(shell):
    shell.file.write_bytes(b"name = \xff\xfe")
    refused(shell, "cannot be read", "name a text file in UTF-8")


def test_a_byte_order_mark_is_no_mistake(shell):
    shell.file.write_text(TEXT, encoding="utf-8-sig")
    assert shell("check", shell.file)[0] == 0


def test_an_empty_file_lacks_all_that_is_required(shell):
    shell.file.write_text("", encoding="utf-8")
    keys = ("name", "rounds", "clients", "server")
    refused(shell, *(f"{key} is missing; add it" for key in keys), lines=len(keys))


def test_many_mistakes_are_told_at_once_but_not_all_of_them(shell):
    settings = tuple(
        f"{key}=-1" for key in ("rounds", "seed", "time_limit_s", "server.per_round", "server.deadline_s", "server.first")
    )
    refused(shell, "rounds = -1: must be >= 1", "and 1 more", settings=settings, lines=6)


def test_a_scenario_that_does_not_exist(shell):
    for name, remedy in {
        "quikstart": "did you mean 'quickstart'?",
        "smal.toml": "did you mean 'small.toml'?",
        "x" * 300: "cannot",
    }.items():
        code, _, err = shell("run", name, "--out", shell.out)
        assert code == 2
        assert remedy in err
        assert err.count("\n") == 1
    code, _, err = shell("run", shell.folder, "--out", shell.out)
    assert (code, "is a folder; name a .toml file" in err) == (2, True)
    assert not shell.out.exists()


@pytest.mark.needs_torch
def test_data_that_are_not_there(shell):
    learner = "learner={data={kind='mnist'},network={kind='linear'},optimizer={kind='adam',learning_rate=0.1}}"
    refused(shell, "learner.data.kind = 'mnist': missing", "train-images-idx3-ubyte", "set NETSIM_DATA", settings=(learner,))
    code, _, err = shell("check", shell.file, "--set", learner)
    assert (code, "set NETSIM_DATA" in err) == (2, True)


def test_the_bytes_of_a_round_fit_into_64_bits(shell):
    settings = ("clients.count=10000000", "payload.up_bytes=1000000000000")
    refused(shell, "payload.up_bytes = 1000000000000.0: must be less; a round of all clients", settings=settings)


def test_data_sizes_are_the_partitions_business_where_there_is_a_learner(shell):
    learner = "learner={network={kind='linear'},optimizer={kind='adam',learning_rate=0.1}}"
    refused(shell, "clients.data_sizes = 2.0: leave it out", settings=(learner, "clients.data_sizes=2.0"))


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--set", "alpha"], "--set 'alpha': must be of the form KEY=VALUE, such as policy.alpha=10"),
        (["--set", "=3"], "--set '=3': must be of the form KEY=VALUE"),
        (["--set", "policy..alpha=3"], "--set 'policy..alpha=3': must be of the form KEY=VALUE"),
        (["--set", "name.x=3"], "name.x = 3: name is not a table, so it has no key 'x'"),
        (["--set", "name.x.y=3"], "name.x.y: name is not a table, so it has no key 'x'"),
        (["--set", "clients.groups.2.share=1"], "clients.groups.2.share: '2' must be a position in a list of 2, counted from 0"),
        (["--set", "clients.groups.x.share=1"], "'x' must be a position in a list of 2, counted from 0"),
        (["--seed", "-1"], "seed = -1: must be >= 0"),
        (["--seed", "x"], "Invalid value for '--seed'"),
        (["--sed", "1"], "No such option"),
    ],
)
def test_options_of_run(shell, arguments, fragment):
    code, _, err = shell.run(*arguments)
    assert code == 2
    assert fragment in err
    assert not shell.out.exists()


@pytest.mark.each_nth(2)
@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--grid", "policy.alpha"], "--grid 'policy.alpha': must be of the form KEY=VALUE"),
        (["--grid", "policy.alpha=[]"], "--grid 'policy.alpha=[]': gives no values; list them"),
        (["--grid", "policy.alpha="], "gives no values; list them"),
        (["--grid", "policy.alpha=1,1"], "two variants are named 'pause+alpha=1'; give each its own name, each value once"),
        (["--grid", "policy.alpa=1,2"], "(variant pause+alpa=1): policy.alpa = 1: unknown key; did you mean 'alpha'?"),
        (["--grid", "rounds=1,x"], '(variant pause+rounds=x): rounds = "x": must be a whole number'),
        (["--grid", "uplink.delay.std_s=0.1,-1"], "(variant pause+std_s=-1): uplink.delay.std_s = -1.0: must be finite"),
        (["--grid", "seed=1,2"], "variant 'pause+seed=1' sets seed, which all share; set it outside of it"),
        (["--grid", f"policy.alpha={list(range(2000))}"], "sweep.grid: makes 4,000 variants; at most 1,000 are allowed"),
        (["--set", "sweep=3", "--grid", "policy.alpha=1,2"], "sweep is not a table"),
        (["--set", "sweep.grid={'policy.alpha'=3}"], "sweep.grid.policy.alpha = 3: must be a list"),
        (["--set", "sweep.grid={'policy.alpha'=[]}"], "sweep.grid.policy.alpha = []: must hold at least 1"),
        (["--seeds", "x"], "--seeds 'x': must be a list such as 1,2,3 or a range such as 1..10"),
        (["--seeds", "3..1"], "--seeds '3..1': must be a list"),
        (["--seeds", "-2..1"], "--seeds '-2..1': must be a list"),
        (["--seeds", "1..99999999999"], "of 10,000 at most"),
        (["--seeds", "1,1"], "sweep.seeds = [1, 1]: names a seed twice; give each once"),
        (["--set", "sweep.seeds=[]"], "sweep.seeds = []: must hold at least 1"),
        (["--set", "sweep.baseline=best"], "sweep.baseline = 'best': no such variant; known: pause, random"),
        (["--set", "sweep.variants.1.name=pause"], "two variants are named 'pause'; give each its own name"),
        (["--set", "sweep.variants.1.label=pause"], "pause and random have the same label 'pause'; tell them apart"),
        (["--set", "sweep.variants.1.name='..'"], 'sweep.variants.1.name = "..": must match the pattern'),
        (["--set", "sweep.variants.1.name=figures"], "'figures' is taken by a file of the sweep; rename the variant"),
        (["--set", "sweep.variants.1.set={'policy.kind'='pose'}"], '(variant random): policy.kind = "pose": unknown policy'),
        (["--set", "sweep.variants.1.set={'policy.x.y'=1}"], '(variant random): policy.x = {"y": 1}: unknown key'),
        (["--set", "sweep.variants.1.set={'name.x'=1}"], "(variant random): name.x = 1: name is not a table"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_options_of_sweep(shell, arguments, fragment):
    code, _, err = shell.sweep(*arguments)
    assert code == 2
    assert fragment in err
    assert "Traceback" not in err
    assert not shell.out.exists()


def test_a_fault_of_netsim_is_no_mistake_of_the_user(shell, monkeypatch):
    def broken(*arguments, **keywords):
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr("models.laws.delays.per_client", broken)
    with pytest.raises(ValueError, match="broadcast"):
        shell.run()


@pytest.mark.parametrize("settings", [["clients.count=1", "clients.groups=[]", "server.per_round=1"], ["server.per_round=6"]])
def test_the_least_and_the_most_clients_a_round_are_allowed(shell, settings):
    delay = "uplink.delay={kind='gaussian',mean_s=0.5,std_s=0.1}"
    code, _, err = shell.run(*(t for s in [*settings, delay, "uplink.changes=[]"] for t in ("--set", s)))
    assert (code, err) == (0, "")


NONSENSE: list[Any] = [
    *("x", "", True, -1, 0, 0.5, 1.5, math.nan, math.inf, 1e300, 2**63 - 1, 10**12, 10**30, -(10**400)),
    *([], {}, [1], [-1.0], ["a"], [[1.0]], {"kind": "nope"}, {"a": 1}),
    *({"by_group": {}}, {"from": 1, "to": 2}, {"from": -1, "to": 0.0}),
]


def places(table: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key and every position in a scenario's tables."""
    entries = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for name, value in entries:
        yield (*above, name)
        yield from places(value, (*above, name))


SHIPPED = shipped_files()


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("first", "file"),
    each_nth(13, [(n, file) for file in SHIPPED for n in (0, 6, 12, 18)]),
    ids=lambda value: getattr(value, "stem", value),
)
def test_nonsense_anywhere_in_a_shipped_scenario_is_taken_or_refused_but_never_fatal(file, first, monkeypatch):
    """One value at every place, another at the next. Places of one key differ from file to file, so that it gets many values."""
    monkeypatch.setattr("scenarios.wiring.learning.training.require_files", lambda kind, folder: None)
    tables = {key: value for key, value in read_file(file).items() if key != "sweep"}
    for i, place in enumerate(places(tables)):
        nonsense = NONSENSE[(i + first) % len(NONSENSE)]
        changed = deepcopy(tables)
        table: Any = changed
        for name in place[:-1]:
            table = table[name]
        table[place[-1]] = nonsense
        try:
            build(parse(changed, file.name), learner=False)
        except UserError:
            continue
        except Exception as error:
            raise AssertionError(f"{place} = {nonsense!r}: {error!r}") from error
