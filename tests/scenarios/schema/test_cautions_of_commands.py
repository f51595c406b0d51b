"""How commands tell of warnings, and what --strict makes of them."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.sweeps.sweep import plan
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import Shell


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    return Shell(tmp_path, monkeypatch, capsys)


DOUBTFUL = ("--set", "server.deadline_s=1e-9", "--set", "uplink.delay.floor_s=0.01")
DEADLINE = (
    "server.deadline_s = 1e-09: is below the shortest possible update of any client, 0.01 s; nothing can ever be delivered; give "
    "more time than that"
)
NOTHING = "clients: no update of any client was ever delivered"


def test_run_warns_before_and_after_and_keeps_it(shell):
    code, out, err = shell.run(*DOUBTFUL)
    assert (code, err) == (0, f"warning: {DEADLINE}\nwarning: {NOTHING}\n")
    assert "results:" in out
    kept = json.loads((shell.out / "summary.json").read_text(encoding="utf-8"))["warnings"]
    assert kept == [{"name": "deadline-too-short", "text": DEADLINE}, {"name": "never-delivered", "text": NOTHING}]


@pytest.mark.parametrize("command", ["run", "sweep", "check"])
def test_strict_makes_an_error_of_it_and_nothing_is_written(shell, command):
    before = sorted(shell.folder.rglob("*"))
    where = [] if command == "check" else ["--quiet", "--out", shell.out]
    where += ["--jobs", "1", "--no-figures"] if command == "sweep" else []
    code, out, err = shell(command, shell.file, "--strict", *where, *DOUBTFUL)
    assert (code, out) == (2, "")
    place = f"{shell.file}: " if command == "run" else f"{shell.file} (variant pause): "
    assert err == f"{place}{DEADLINE} (a warning, which --strict makes an error)\n"
    assert sorted(shell.folder.rglob("*")) == before
    assert shell(command, shell.file, "--strict", *where)[0] == 0


def test_strict_after_a_run_keeps_the_results_and_says_so(shell):
    lost = ("--set", "uplink.channel.success=0.0")
    code, out, err = shell.run("--strict", *lost)
    assert (code, err) == (2, f"warning: {NOTHING}\n--strict: there were warnings; the results are complete\n")
    assert "results:" in out
    code, _, err = shell.sweep("--strict", "--overwrite", *lost, "--out", shell.folder / "sweep")
    assert (code, err) == (2, f"warning: {NOTHING}\n--strict: there were warnings; the results are complete\n")


def test_check_and_sweep_name_the_variants_that_it_is_about(shell):
    shown = "warning: pause: policy.gamma = 5.0: weighs privacy"
    code, out, err = shell("check", shell.file, "--set", "privacy.mechanism=none")
    assert (code, err.startswith(shown), err.count("\n")) == (0, True, 1)
    assert "can be run, with 1 warning." in out
    assert "good" not in out
    code, _, err = shell.sweep(
        "--set", "privacy.mechanism=none", "--set", "uplink.channel.success={by_group={fast=1.0,slow=0.0}}"
    )
    never = 'clients.groups.1.name = "slow": no update of this group was ever delivered; each was lost, late, aborted or still'
    lines = err.splitlines()
    assert (code, len(lines), lines[0].startswith(shown)) == (0, 2, True)
    # Of all runs alike, so that none is named.
    assert lines[1].startswith(f"warning: {never}")


def test_strict_looks_at_what_every_seed_draws():
    # Whether the couplings are too strong follows from the graph, which follows from the seed.
    tables: dict[str, Any] = {
        "name": "drawn",
        "rounds": 2,
        "clients": {"count": 8},
        "server": {"kind": "fl-da", "per_round": 2},
        "policy": {"kind": "bp-index"},
        "opinions": {"synthetic": {}},
        "peers": {"topology": {"kind": "erdos-renyi", "probability": 0.5, "allow_disconnected": True}},
        "belief": {"coupling": 0.21},
    }
    cautions = {seed: build(parse(tables | {"seed": seed})).cautions for seed in range(1, 20)}
    told = {seed: [caution.name for caution in found] for seed, found in cautions.items()}
    calm = next(seed for seed, found in told.items() if not found)
    wild = next(seed for seed, found in told.items() if found == ["belief-convergence"])
    swept = tables | {"seed": calm, "sweep": {"seeds": [calm, wild]}}
    assert plan(swept, "x").cautions == {}
    with pytest.raises(UserError, match=rf"x, seed {wild}: belief\.coupling = 0\.21: the largest sum .*which --strict makes"):
        plan(swept, "x", strict=True)


def test_workers_of_a_sweep_do_not_warn_for_themselves(shell, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: said.append(str(message)))
    shell.file.write_text(
        'name = "peers"\nrounds = 2\n[clients]\ncount = 8\n[server]\nkind = "fl-da"\nper_round = 2\n[policy]\nkind = "bp-index"\n'
        '[opinions]\nsynthetic = {}\n[peers]\ntopology = { kind = "complete" }\n[belief]\ncoupling = 0.5\n',
        encoding="utf-8",
    )
    code, _, err = shell.sweep("--seeds", "1,2")
    assert (code, said) == (0, [])
    assert (err.startswith("warning: belief.coupling = 0.5: the largest sum"), err.count("\n")) == (True, 1)
