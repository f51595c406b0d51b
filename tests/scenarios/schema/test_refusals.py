"""What a user may get wrong in a scenario: exit code 2, one message with key, value and remedy, and nothing written."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from scenarios.build.simulation import build
from scenarios.runs.reading import FOLDER, parse, read_file
from scenarios.schema.errors import UserError
from tests.helpers.small_scenario import TEXT, Shell


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


UNKNOWN_KEYS = {
    "rund=3": "rund = 3: unknown key; did you mean 'rounds'?",
    "server.per_roud=3": "server.per_roud = 3: unknown key; did you mean 'per_round'?",
    "clients.groups.0.shar=1": "clients.groups.0.shar = 1: unknown key; did you mean 'share'?",
    "uplink.dely=3": "uplink.dely = 3: unknown key; did you mean 'delay'?",
    "uplink.delay.mean=3": "uplink.delay.mean = 3: unknown key; did you mean 'mean_s'?",
    "uplink.delay.mean_s={by_grop={}}": "uplink.delay.mean_s.by_grop = {}: unknown key; did you mean 'by_group'?",
    "uplink.delay.mean_s.by_group.fast.form=1": "uplink.delay.mean_s.by_group.fast.form = 1: unknown key; did you mean 'from'?",
    "uplink.changes.0.at_ruond=4": "uplink.changes.0.at_ruond = 4: unknown key; did you mean 'at_round'?",
    "uplink.changes.0.delay.men_s=1": "uplink.changes.0.delay: the law has no parameter 'men_s'; did you mean 'mean_s'?",
    "policy.alpa=1": "policy.alpa = 1: unknown key; did you mean 'alpha'?",
    "privacy.schedule.et=1": "privacy.schedule.et = 1: unknown key; did you mean 'eta'?",
    "metrics.reward.alpa=1": "metrics.reward.alpa = 1: unknown key; did you mean 'alpha'?",
    "sweep.variants.1.nam=1": "sweep.variants.1.nam = 1: unknown key; did you mean 'name'?",
    "availability={kind='markov',mean_on=3}": "availability.mean_on = 3: unknown key; did you mean 'mean_on_s'?",
    "uplink.delay={kind='by-group',groups={fast={kind='constant',valu_s=1},slow={kind='constant',value_s=1}}}": (
        "uplink.delay.groups.fast.valu_s = 1: unknown key; did you mean 'value_s'?"
    ),
    "learner={network={kind='mlp',hiden=[3]},optimizer={kind='adam',learning_rate=0.1}}": (
        "learner.network.hiden = [3]: unknown key; did you mean 'hidden'?"
    ),
}

WRONG_TYPES = {
    "rounds=many": 'rounds = "many": must be a whole number',
    "rounds=true": "rounds = true: must be a whole number",
    "rounds=6.0": "rounds = 6.0: must be a whole number",
    "name=3": "name = 3: must be a string",
    "server.reselect_busy=1": "server.reselect_busy = 1: must be true or false",
    "policy.alpha=x": 'policy.alpha = "x": must be a number',
    "policy.alpha=true": "policy.alpha = true: must be a number",
    "policy.alpha=[1.0]": "policy.alpha = [1.0]: must be a number",
    "policy=random": 'policy = "random": must be a table with a key kind, one of: pause,',
    "policy={alpha=1}": "must be a table with a key kind",
    "policy.kind=3": "must be a table with a key kind",
    "uplink=3": "uplink = 3: must be a table",
    "uplink.changes=3": "uplink.changes = 3: must be a list",
    "uplink.changes=[3]": "uplink.changes.0 = 3: must be a table",
    "uplink.delay.std_s=true": "uplink.delay.std_s = true: must be a finite number, { from = .., to = .. }",
    "uplink.delay.std_s=x": 'uplink.delay.std_s = "x": must be a finite number',
    "uplink.delay.mean_s=[]": "uplink.delay.mean_s = []: must be a finite number",
    "uplink.delay.mean_s={}": "uplink.delay.mean_s = {}: must be a finite number",
    "uplink.delay.mean_s=[1,2,true,4,5,6]": "must be a finite number",
    "uplink.delay.mean_s={by_group={fast=1,slow=[1,2]}}": "uplink.delay.mean_s.by_group.slow = [1, 2]: must be a finite",
    "uplink.delay.mean_s={by_group=3}": "uplink.delay.mean_s.by_group = 3: must be a table",
    "uplink.delay={kind='empirical',values_s=['a']}": 'uplink.delay.values_s.0 = "a": must be a number',
    "uplink.changes.0.clients=[1.5]": "uplink.changes.0.clients = [1.5]: must be a group's name, or a list of client numbers",
    "uplink.changes.0.delay={mean_s='x'}": "uplink.changes.0.delay.mean_s = 'x': must be a finite number",
    "privacy.schedule={kind='explicit',epsilons=3}": "privacy.schedule.epsilons = 3: must be a list",
    "learner={network={kind='mlp',hidden=3},optimizer={kind='sgd',learning_rate=0.1}}": (
        "learner.network.hidden = 3: must be a list"
    ),
}

WRONG_VALUES = {
    "rounds=0": "rounds = 0: must be >= 1",
    "rounds=99999999999999999999999": "rounds = 99999999999999999999999: must be <= 1e+12",
    "seed=-1": "seed = -1: must be >= 0",
    "seed=9999999999999999999999": "seed = 9999999999999999999999: must be <= 9.2",
    "name='..'": 'name = "..": must match the pattern',
    "name='a/b'": 'name = "a/b": must match the pattern',
    "time_limit_s=0": "time_limit_s = 0: must be > 0",
    "time_limit_s=inf": "time_limit_s = Infinity: must be a finite number",
    "clients.count=1": "server.per_round = 2: must be at most the 1 clients of clients.count",
    "clients.count=60000000000": "clients.count = 60000000000: must be <= 1e+07",
    "clients.data_sizes=0": "clients.data_sizes = 0.0 for client 0: every client must hold more than 0 samples",
    "clients.data_sizes=[1,2]": "clients.data_sizes: has 2 numbers for 6 clients; give one for each",
    "server.per_round=7": "server.per_round = 7: must be at most the 6 clients of clients.count",
    "server.first=3": "server.first = 3: must be at most the 2 clients of server.per_round",
    "server.deadline_s=-1": "server.deadline_s = -1: must be > 0",
    "server.deadline_s=nan": "server.deadline_s = NaN: must be a finite number",
    "server.when_short=never": "server.when_short = \"never\": must be 'wait' or 'proceed'",
    "server.payload_bytes=100": "server.payload_bytes = 100: is no key any more; set payload.down_bytes and payload.up_bytes",
    "payload.down_bytes=-1": "payload.down_bytes = -1.0: must be >= 0 bytes",
    "payload.header_bytes=-1": "payload.header_bytes = -1: must be >= 0",
    "payload.header_bytes=99999999999999999999999": "payload.header_bytes = 99999999999999999999999: must be <= 1e+12",
    "payload.up_bites=1": "payload.up_bites = 1: unknown key; did you mean 'up_bytes'?",
    "uplink.bandwidth_bytes_per_s=10.0": "uplink.bandwidth_bytes_per_s: a message of 0 bytes takes no",
    "uplink.sub_channels=0": "uplink.sub_channels = 0: must be >= 1",
    "uplink.bandwidth_bytes_per_s=0": "uplink.bandwidth_bytes_per_s = 0.0: must be finite and > 0 bytes per second",
    "uplink.bandwidth_bytes_per_s=1e-320": "uplink.bandwidth_bytes_per_s = 1e-320: must be finite and >= 1e-12 bytes per second",
    "uplink.delay.std_s=-1": "uplink.delay.std_s = -1.0: must be finite and >= 0 seconds",
    "uplink.delay.std_s=nan": "uplink.delay.std_s = NaN: must be a finite number",
    "uplink.delay.std_s=1e400": "uplink.delay.std_s = Infinity: must be a finite number",
    "uplink.delay.mean_s=1e308": "uplink.delay: takes 1e+308 s on average for client 0; must be at most 1e+12 s",
    "uplink.delay.floor=cut": "uplink.delay.floor = \"cut\": must be 'clip' or 'resample'",
    "uplink.delay.mean_s=[1,2]": "uplink.delay.mean_s: has 2 numbers for 6 clients; give one for each",
    "uplink.delay.mean_s={from=1,to=-2}": "uplink.delay.mean_s = -0.5 for client 2: must be finite and >= 0 seconds",
    "uplink.delay.mean_s={from=1,to=inf}": "uplink.delay.mean_s.to = Infinity: must be a finite number",
    "uplink.delay.mean_s={from=1}": "uplink.delay.mean_s.to is missing; add it",
    "uplink.delay={kind='empirical',path='nowhere.csv'}": "uplink.delay.path = 'nowhere.csv': cannot be read",
    "uplink.channel.success=1.5": "uplink.channel.success = 1.5: must be finite and in [0, 1]",
    "uplink.channel.success=-0.5": "uplink.channel.success = -0.5: must be finite and in [0, 1]",
    "availability={kind='markov',mean_on_s=0,mean_off_s=1}": (
        "availability.mean_on_s = 0.0: must be finite and in [1e-06, 1e+300] seconds"
    ),
    "availability={kind='trace',path='nowhere.csv'}": "availability.path = 'nowhere.csv': cannot be read",
    "availability={kind='trace',path='nowhere.csv',repeat_s=0}": "availability.repeat_s = 0.0: must be finite and > 0 seconds",
    "availability={kind='toggles',path='nowhere.json'}": "availability.path = 'nowhere.json': cannot be read as a text file",
    "availability={kind='fedscale',path='nowhere.json'}": "availability.path = 'nowhere.json': cannot be read as a text file",
    "availability={kind='diurnal',by_hour=[0.5],mean_session_s=60}": "availability.by_hour has 1 entries: must hold 24 numbers",
    "policy.alpha=-1": "policy.alpha = -1.0: must be finite and >= 0",
    "privacy.sensitivity=0": "privacy.sensitivity = 0: must be > 0",
    "privacy.schedule.eta=0": "privacy.schedule.eta = 0.0: must be > 0 and <= 700",
    "privacy.schedule={kind='explicit',epsilons=[]}": "privacy.schedule.epsilons = []: must hold at least one budget",
    "metrics.reward.tau_min_s=0": "metrics.reward.tau_min_s = 0.0: must be finite and > 0",
    "sweep.target_accuracy=80": "sweep.target_accuracy = 80: must be <= 1",
}

UNKNOWN_NAMES = {
    "policy.kind=pose": "unknown policy 'pose'; did you mean 'pause'?, or name a class as 'package.module:Class'",
    "uplink.delay={kind='gausian'}": "unknown delay 'gausian'; did you mean 'gaussian'?",
    "uplink.channel={kind='by-group',groups={}}": "unknown channel 'by-group'; known: bernoulli,",
    "learner={network={kind='mlpp'},optimizer={kind='adam',learning_rate=0.1}}": "unknown network 'mlpp'; did you mean 'mlp'?",
    "learner={network={kind='linear'},optimizer={kind='adm',learning_rate=0.1}}": "unknown optimizer 'adm'; did you mean 'adam'?",
    "learner={network={kind='svm'},optimizer={kind='sgd',learning_rate=1},partition={kind='a:B'}}": "'a:B' cannot be imported",
}

GROUPS = {
    "clients.groups.0.share=0.7": "clients.groups: hold 7.2 clients, clients.count is 6; make counts and shares add up",
    "clients.groups.0.share=0.3": "clients.groups: hold 4.8 clients, clients.count is 6; make counts and shares add up",
    "clients.groups.0.share=0.01": "clients.groups.0.share = 0.01: is no client of 6",
    "clients.groups.1={name='slow',count=2}": "clients.groups: hold 5 clients",
    "clients.groups.1={name='fast',share=0.5}": "clients.groups.1.name = 'fast': is used twice; give every group its own name",
    "clients.groups.0={name='fast'}": "give either share or count",
    "clients.groups.0={name='fast',share=0.5,count=3}": "give either share or count",
    "clients.groups.0.name='1st'": 'clients.groups.0.name = "1st": must match the pattern',
    "uplink.delay.mean_s={by_group={fast=1}}": "uplink.delay.mean_s.by_group: gives no value for slow; name every group",
    "uplink.delay.mean_s={by_group={fast=1,slo=2}}": "uplink.delay.mean_s.by_group = 'slo': unknown group; did you mean 'slow'?",
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=1}}}": (
        "uplink.delay.groups: gives no law for slow; name every group"
    ),
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=-1},slow={kind='constant',value_s=1}}}": (
        "uplink.delay.groups.fast.value_s = -1.0: must be finite and >= 0 seconds"
    ),
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=1},slow={kind='by-group',groups={}}}}": (
        "uplink.delay.groups.slow.kind = \"by-group\": unknown delay 'by-group'"
    ),
}

CHANGES = {
    "uplink.changes=[{at_round=5,delay={mean_s=1}},{at_round=3,delay={mean_s=2}}]": (
        "uplink.changes.1: comes before the change above it; write changes in order of time"
    ),
    "uplink.changes.0.at_round=1": "uplink.changes.0.at_round = 1: must be >= 2",
    "uplink.changes.0.at_s=3": "give either at_round or at_s",
    "uplink.changes=[{delay={mean_s=1}}]": "give either at_round or at_s",
    "uplink.changes=[{at_round=3}]": "changes nothing: give delay, channel, bandwidth_bytes_per_s or bandwidth",
    "uplink.changes=[{at_round=3,bandwidth={scale=2}}]": (
        'uplink.changes.0.bandwidth = {"scale": 2}: there is no law of bandwidth; give bandwidth, or change bandwidth_bytes_per_s'
    ),
    "compute.changes=[{at_round=3,bandwidth={scale=2}}]": "compute.changes.0: local training has neither channel nor bandwidth",
    "uplink.bandwidth={kind='packet-trace'}": "uplink.bandwidth.path is missing",
    "uplink.bandwidth={kind='trace',path='nowhere.csv'}": "uplink.bandwidth.path = 'nowhere.csv': cannot be read as a text file",
    "uplink.bandwidth={kind='constant',bytes_per_s=0}": "uplink.bandwidth.bytes_per_s = 0.0: must be finite and > 0",
    "uplink={bandwidth={kind='constant',bytes_per_s=1},bandwidth_bytes_per_s=3}": (
        "uplink.bandwidth_bytes_per_s = 3.0: leave it out where bandwidth is given"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},changes=[{at_s=3,bandwidth_bytes_per_s=3}]}": (
        "uplink.changes.0.bandwidth_bytes_per_s = 3.0: leave it out where the link has a bandwidth"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},changes=[{at_s=3,bandwidth={bytes_per_s=0}}]}": (
        "uplink.changes.0.bandwidth.bytes_per_s = 0.0: must be finite and > 0"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},random_changes={count=1,parameter='bandwidth.rate'}}": (
        "uplink.random_changes.parameter = 'bandwidth.rate': the law has no parameter 'rate'"
    ),
    "uplink.shared={bandwidth={kind='by-group',groups={}}}": 'uplink.shared.bandwidth.kind = "by-group"',
    "uplink.shared={bandwidth={kind='constant',bytes_per_s=1},bandwidth_bytes_per_s=3}": (
        "uplink.shared.bandwidth_bytes_per_s = 3.0: leave it out where bandwidth is given"
    ),
    "downlink.shared={}": "downlink.shared.bandwidth_bytes_per_s is missing",
    "uplink.changes.0.clients=fats": "uplink.changes.0.clients = 'fats': unknown group; did you mean 'fast'?",
    "uplink.changes.0.clients=[6]": "uplink.changes.0.clients = [6]: must name some clients between 0 and 5, each once",
    "uplink.changes.0.clients=[]": "must name some clients between 0 and 5, each once",
    "uplink.changes.0.clients=[1,1]": "must name some clients between 0 and 5, each once",
    "uplink.changes.0.delay.mean_s=-1": "uplink.changes.0.delay.mean_s = -1.0 for client 0: must be finite and >= 0 seconds",
    "uplink.changes.0.channel={success=2}": "uplink.changes.0.channel.success = 2.0 for client 0: must be finite and in [0, 1]",
    "uplink.changes.0.channel={loss=2}": "uplink.changes.0.channel: the law has no parameter 'loss'; known: success",
    "uplink.changes.0.delay={floor='clip'}": "uplink.changes.0.delay.floor: is the same for all clients of a law",
    "uplink.changes=[{at_round=3,delay={floor='cut'}}]": "uplink.changes.0.delay.floor = 'cut'",
    "uplink.changes.0.bandwidth_bytes_per_s=5": "there was none before; set uplink.bandwidth_bytes_per_s",
    "downlink.changes=[{at_round=3,channel={success=0.5}}]": "the law has no parameter 'success'; there are none",
    "compute.changes=[{at_round=3,channel={success=1}}]": "compute.changes.0: local training has neither channel nor bandwidth",
    "compute.changes=[{at_round=3,delay={value_s=1}},{at_s=3,delay={value_s=1}}]": (
        "compute: changes of delay are in rounds and in seconds; use one unit for one law"
    ),
    "uplink.random_changes={count=1,parameter='mean_s'}": (
        "uplink.random_changes.parameter = 'mean_s': must be delay.NAME or channel.NAME"
    ),
    "uplink.random_changes={count=1,parameter='delay.men_s'}": "the law has no parameter 'men_s'; did you mean 'mean_s'?",
    "uplink.random_changes={count=1,parameter='delay.floor'}": "parameter 'floor' cannot be multiplied",
    "uplink.random_changes={count=6,parameter='delay.mean_s'}": "uplink.random_changes.count = 6: 6 segments",
    "uplink.random_changes={count=2,min_spacing=4,parameter='delay.mean_s'}": "do not fit into 6 rounds; ask for fewer",
    "uplink.random_changes={count=9999999999,parameter='delay.mean_s'}": "uplink.random_changes.count = 9999999999: must be <= 1",
    "uplink.random_changes={count=1,factor_low=3,parameter='delay.mean_s'}": (
        "uplink.random_changes.factor_high = 2.0: must be at least factor_low = 3.0"
    ),
    "uplink.random_changes={count=1,unit='seconds',parameter='delay.mean_s'}": (
        "uplink.random_changes.horizon is missing; give it in seconds, or set time_limit_s"
    ),
    "uplink.random_changes={count=1,parameter='channel.success'}": (
        "uplink.random_changes.factor_high = 2.0: takes channel.success out of what is allowed"
    ),
    "compute.random_changes={count=1,parameter='channel.success'}": "compute.random_changes.parameter = 'channel.success': must",
}

CASES = {**UNKNOWN_KEYS, **WRONG_TYPES, **WRONG_VALUES, **UNKNOWN_NAMES, **GROUPS, **CHANGES}


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
        (["--sed", "1"], "No such option: --sed"),
    ],
)
def test_options_of_run(shell, arguments, fragment):
    code, _, err = shell.run(*arguments)
    assert code == 2
    assert fragment in err
    assert not shell.out.exists()


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


SHIPPED = sorted(FOLDER.rglob("*.toml"))


@pytest.mark.parametrize("first", [pytest.param(n, marks=[pytest.mark.slow] * (n > 1)) for n in range(len(NONSENSE))])
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_nonsense_anywhere_in_a_shipped_scenario_is_taken_or_refused_but_never_fatal(file, first, monkeypatch):
    """One value at every place, another at the next; with every `first`, all values come to all places."""
    monkeypatch.setattr("scenarios.build.training.require_files", lambda kind, folder: None)
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
