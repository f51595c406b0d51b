"""Members of a Protocol that a class of one's own may leave out: it gets their defaults where it is found, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from netsim.core.protocols import ChannelStates, DelayLaw
from netsim.core.scheduling import ChannelScheduler
from netsim.servers.kinds.slotted import OpinionPolicy
from scenarios.registry.kinds import BUILT_IN, resolve
from scenarios.registry.protocols import PROTOCOLS, add_defaults, member_names, optional_members

ROOT = Path(__file__).parents[3]
OWN = """
import numpy as np


class Quiet:
    def __init__(self, *, clients: int):
        self.asked = clients

    def assign(self, view):
        return np.arange(self.asked)

    def observe(self, view, channels, good):
        pass


class Loud(Quiet):
    contends = True

    def __init__(self, *, clients: int):
        super().__init__(clients=clients)
        self.declared = [(0, "mine", 3)]


class Chooser:
    def __init__(self, *, per_round: int):
        self.first = np.arange(per_round)

    def select(self, view):
        return self.first
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_quiet.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda group, name: resolve(group, f"own_quiet:{name}")


def test_what_may_be_left_out():
    assert optional_members(ChannelScheduler) == {"contends": False, "declared": (), "detects": ChannelScheduler.detects}
    assert optional_members(DelayLaw) == {"constant": False}
    assert optional_members(ChannelStates) == {"unit": "rounds", "starts": (), "segment_means": None, "fixed": False}
    assert set(optional_members(OpinionPolicy)) == {"observe_opinions", "notes"}


def test_a_class_of_ones_own_is_given_the_defaults_and_keeps_what_it_has(own):
    quiet, loud = own("scheduler", "Quiet"), own("scheduler", "Loud")
    assert (quiet.contends, quiet(clients=2).declared) == (False, ())
    assert (loud.contends, loud(clients=2).declared) == (True, [(0, "mine", 3)])
    policy = own("policy", "Chooser")(per_round=2)
    assert policy.notes() == {}
    assert policy.observe_opinions(1, policy.first, policy.first) is None
    before = dict(vars(quiet))
    add_defaults("scheduler", quiet)
    assert dict(vars(quiet)) == before


# Among built-in states there are sequences fixed beforehand, of which the builder makes the law of a channel.
@pytest.mark.parametrize("group", sorted(PROTOCOLS.keys() - {"states"}))
def test_built_in_classes_have_all_that_is_called_themselves(group):
    for kind in BUILT_IN[group]:
        target = resolve(group, kind)
        asked = PROTOCOLS[group][:1]
        if group == "policy" and not hasattr(target, "observe"):
            asked = PROTOCOLS[group][2:] if hasattr(target, "index") else PROTOCOLS[group][1:2]
        source = (ROOT / f"{target.__module__.replace('.', '/')}.py").read_text(encoding="utf-8")
        for name in (name for protocol in asked for name in member_names(protocol)):
            assert hasattr(target, name) or f"self.{name}" in source, (kind, name)
