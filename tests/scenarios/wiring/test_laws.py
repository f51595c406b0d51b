"""From the numbers of a scenario file to the laws of the engine: groups, ramps, change points, bandwidth, by hand."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.laws.delays import ByGroup, Constant
from netsim.core.streams import Streams
from scenarios.schema.errors import UserError
from scenarios.schema.per_client import read_per_client
from scenarios.schema.world import Clients
from scenarios.wiring.changes import changes_after_end
from scenarios.wiring.clients.population import Context, Population
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.network.payload import Message
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

EVERYONE = np.arange(6)
CONSTANT = "uplink.delay={kind='constant',value_s={by_group={fast=1.0,slow=2.0}}}"


def law_of(scenario, link="uplink", what="delay", payload=0, seed=1):
    context = Context(Population(scenario.clients), Streams(seed), scenario.rounds, scenario.time_limit_s)
    section = getattr(scenario, link)
    if what == "channel":
        return channel_timeline(section, link, context)
    return delay_timeline(section, link, context, Message(payload, "payload.up_bytes"))


def means(law, round=1, time_s=0.0):
    return law.at(round, time_s)[0].mean_s(EVERYONE).tolist()


def sizes(count, *groups):
    population = Population(Clients.model_validate({"count": count, "groups": list(groups)}))
    return {name: len(members) for name, members in population.members.items()}


def test_shares_and_counts_make_up_the_whole():
    assert sizes(30, {"name": "fast", "share": 0.5}, {"name": "slow", "share": 0.5}) == {"fast": 15, "slow": 15}
    assert sizes(7, {"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}) == {"a": 4, "b": 3}
    # Ends at 10/3 and 20/3, rounded to 3 and 7.
    assert sizes(10, *({"name": n, "share": 1 / 3} for n in "abc")) == {"a": 3, "b": 4, "c": 3}
    assert sizes(10, {"name": "a", "count": 3}, {"name": "b", "share": 0.7}) == {"a": 3, "b": 7}
    assert sizes(10) == {"all": 10}


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(1, 5000))
def test_each_group_is_within_one_client_of_its_share(weights, count):
    shares = [min(1.0, weight / sum(weights)) for weight in weights]
    groups = [{"name": f"g{i}", "share": share} for i, share in enumerate(shares)]
    if min(shares) * count < 1.0:
        with suppress(UserError):  # a group may be left without a client
            sizes(count, *groups)
        return
    found = sizes(count, *groups)
    assert sum(found.values()) == count
    assert all(abs(size - share * count) < 1.0 + 1e-6 * count for size, share in zip(found.values(), shares, strict=True))


def test_groups_are_consecutive_in_the_order_of_the_list():
    population = Population(small().clients)
    assert population.members["fast"].tolist() == [0, 1, 2]
    assert population.members["slow"].tolist() == [3, 4, 5]


def test_a_ramp_is_that_of_the_study():
    """PAUSE: 15 fast clients, the i-th at tau_min + (0.2 - tau_min) i/15, so 0.06 for the first and 0.2 for the last."""
    population = Population(Clients(count=15))
    ramp = population.values(read_per_client({"from": 0.05, "to": 0.2}), "mean_s")
    assert ramp[0] == pytest.approx(0.06, abs=1e-15)
    assert ramp[4] == pytest.approx(0.1, abs=1e-15)
    assert ramp[-1] == 0.2


def test_a_ramp_by_group_runs_over_the_group():
    delay = "uplink.delay={kind='constant',value_s={by_group={fast={from=0.0,to=3.0},slow={from=8.0,to=2.0}}}}"
    assert means(law_of(small(delay, "uplink.changes=[]"))) == pytest.approx([1.0, 2.0, 3.0, 6.0, 4.0, 2.0])


def test_a_change_keeps_everybody_else_as_they_were():
    scenario = small(
        CONSTANT,
        "uplink.changes=[{at_round=2,clients='fast',delay={value_s={from=0.0,to=3.0}}},"
        "{at_round=4,clients=[5,0],delay={value_s=[7.0,9.0]}},{at_round=4,clients=[1],delay={value_s=8.0}},"
        "{at_round=5,delay={value_s=4.0}},{at_round=6,delay={value_s={by_group={fast=5.0,slow=6.0}}}}]",
    )
    law = law_of(scenario)
    assert means(law, 1) == [1, 1, 1, 2, 2, 2]
    assert means(law, 2) == pytest.approx([1, 2, 3, 2, 2, 2])
    assert means(law, 3) == means(law, 2)
    assert means(law, 4) == pytest.approx([9, 8, 3, 2, 2, 7])
    assert means(law, 5) == [4] * 6
    assert means(law, 6) == [5, 5, 5, 6, 6, 6]


def test_changes_in_seconds_say_until_when_a_law_holds():
    law = law_of(small(CONSTANT, "uplink.changes=[{at_s=2.5,delay={value_s=4.0}},{at_s=9.0,delay={value_s=5.0}}]"))
    assert law.at(3, 2.4)[1] == 2.5
    assert means(law, 3, 2.5) == [4] * 6
    assert law.at(3, 2.5)[1] == 9.0
    assert law.at(3, 9.0)[1] == math.inf


def test_a_change_of_one_law_leaves_the_others_alone():
    scenario = small(
        "uplink.bandwidth_bytes_per_s=100.0",
        "uplink.changes=[{at_round=2,channel={success=0.5}},{at_round=3,clients='slow',bandwidth_bytes_per_s=50.0}]",
        "uplink.delay={kind='constant',value_s=1.0}",
    )
    delay, channel = law_of(scenario, payload=200), law_of(scenario, what="channel")
    # 200 bytes at 100 bytes a second, and one second more.
    assert means(delay, 1) == means(delay, 2) == [3.0] * 6
    assert means(delay, 3) == [3.0, 3.0, 3.0, 5.0, 5.0, 5.0]
    assert [channel.at(r, 0.0)[0].success_probability(EVERYONE)[0] for r in (1, 2, 3)] == [0.9, 0.5, 0.5]


def test_bandwidth_may_differ_between_clients():
    scenario = small(
        "uplink.bandwidth_bytes_per_s={by_group={fast=100.0,slow={from=10.0,to=40.0}}}",
        "uplink.delay={kind='constant',value_s=0.5}",
        "uplink.changes=[]",
    )
    assert means(law_of(scenario, payload=100)) == pytest.approx([1.5, 1.5, 1.5, 5.5, 100 / 30 + 0.5, 3.0])


def test_the_payload_travels_both_ways_in_a_run():
    built = build(
        small(
            "payload.down_bytes=100",
            "payload.up_bytes=100",
            "uplink.bandwidth_bytes_per_s=100.0",
            "downlink.bandwidth_bytes_per_s=50.0",
            "uplink.delay={kind='constant',value_s=0.25}",
            "compute.delay={kind='constant',value_s=4.0}",
            "uplink.changes=[]",
        )
    )
    assert built.truth.mean_latency_s(1, 0.0).tolist() == [2.0 + 4.0 + 1.0 + 0.25] * 6


BY_GROUP = (
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=1.0},"
    "slow={kind='shifted-exponential',shift_s={from=0.0,to=3.0},mean_excess_s=0.5}}}"
)


def test_each_group_has_a_law_of_its_own_kind():
    law = law_of(small(BY_GROUP, "uplink.changes=[]")).at(1, 0.0)[0]
    assert isinstance(law, ByGroup)
    assert law.mean_s(EVERYONE) == pytest.approx([1.0, 1.0, 1.0, 1.5, 2.5, 3.5])
    # Median: shift + 0.5 ln 2.
    medians = law.quantile(np.full(6, 0.5), EVERYONE)
    assert medians == pytest.approx([1.0, 1.0, 1.0, *(np.array([1.0, 2.0, 3.0]) + 0.5 * math.log(2.0))])


def test_a_parameter_changes_in_the_laws_that_have_it():
    law = law_of(
        small(BY_GROUP, "uplink.changes=[{at_round=2,delay={mean_excess_s=1.5}},{at_round=3,clients=[4],delay={shift_s=0.0}}]")
    )
    assert means(law, 2) == pytest.approx([1.0, 1.0, 1.0, 2.5, 3.5, 4.5])
    assert means(law, 3) == pytest.approx([1.0, 1.0, 1.0, 2.5, 1.5, 4.5])
    with pytest.raises(UserError, match="the law of these clients has no such parameter"):
        law_of(small(BY_GROUP, "uplink.changes=[{at_round=2,clients='fast',delay={shift_s=1.0}}]"))
    with pytest.raises(UserError, match=r"uplink.changes.0.delay: the law of client 1 has nothing of shift_s; leave that client"):
        law_of(small(BY_GROUP, "uplink.changes=[{at_round=2,clients=[4,1],delay={shift_s=1.0}}]"))


def test_parameters_that_are_no_numbers_change_for_all():
    scenario = small(
        "uplink.delay={kind='gaussian',mean_s=0.0,std_s=1.0}", "uplink.changes=[{at_round=2,delay={floor='resample'}}]"
    )
    law = law_of(scenario)
    # E max(Z, 0) = 1/sqrt(2 pi); E[Z | Z > 0] = sqrt(2/pi).
    assert means(law, 1)[0] == pytest.approx(1 / math.sqrt(2 * math.pi))
    assert means(law, 2)[0] == pytest.approx(math.sqrt(2 / math.pi))


def drawn(seed, *settings, factor="factor_low=3.0,factor_high=3.0"):
    changes = f"uplink.random_changes={{count=4,parameter='delay.value_s',{factor}}}"
    scenario = small("rounds=100", CONSTANT, "uplink.changes=[]", changes, *settings)
    law = law_of(scenario, seed=seed)
    values = [means(law, r) for r in range(1, 101)]
    return values, [r for r in range(2, 101) if values[r - 1] != values[r - 2]]


def test_drawn_changes_follow_from_the_seed_and_nothing_else():
    free = "factor_low=0.5,factor_high=4.0"
    assert drawn(1, factor=free) == drawn(1, factor=free)
    assert drawn(1, factor=free)[1] != drawn(2, factor=free)[1]
    # The rest of the scenario does not matter.
    assert drawn(1, "policy.kind=random", "server.per_round=3", factor=free) == drawn(1, factor=free)


def test_drawn_changes_multiply_the_first_value():
    values, changes = drawn(1, "uplink.random_changes.clients=fast")
    assert len(changes) == 1  # the factor is 3 each time, of the first value and not of the last
    assert values[changes[0] - 1] == [3, 3, 3, 2, 2, 2]


@pytest.mark.parametrize("seed", range(20))
def test_drawn_changes_keep_their_distance_and_their_range(seed):
    values, changes = drawn(seed, "uplink.random_changes.min_spacing=20", factor="factor_low=0.5,factor_high=4.0")
    assert len(changes) == 4
    assert min(np.diff([1, *changes])) >= 20
    factors = [values[r - 1][0] for r in changes]
    assert all(0.5 <= factor <= 4.0 for factor in factors)
    assert [values[r - 1][5] for r in changes] == pytest.approx([2 * factor for factor in factors])


def test_drawn_changes_in_seconds_fall_before_the_time_limit():
    scenario = small(
        *("time_limit_s=10.0", CONSTANT, "uplink.changes=[]"),
        "uplink.random_changes={count=3,unit='seconds',min_spacing=2.0,parameter='delay.value_s',factor_low=2.0}",
    )
    law = law_of(scenario)
    starts, now = [], 0.0
    while (until := law.at(1, now)[1]) < math.inf:
        starts.append(until)
        now = until
    assert len(starts) == 3
    assert min(np.diff([0.0, *starts])) >= 2.0
    assert starts[-1] < 10.0


def test_written_and_drawn_changes_may_be_mixed():
    scenario = small(
        *("rounds=100", CONSTANT, "uplink.changes=[{at_round=50,clients='slow',delay={value_s=9.0}}]"),
        "uplink.random_changes={count=2,parameter='delay.value_s',factor_low=3.0,factor_high=3.0,clients='fast'}",
    )
    law = law_of(scenario)
    assert means(law, 49)[3] == 2.0
    assert means(law, 50)[3] == means(law, 100)[3] == 9.0
    assert means(law, 100)[0] == 3.0


def test_a_law_that_nothing_changes_is_one_object():
    law = law_of(small(CONSTANT, "uplink.changes=[]"))
    assert law.at(1, 0.0) == law.at(100, 1e9)
    assert isinstance(law.at(1, 0.0)[0], Constant)


def test_changes_that_come_too_late_are_noted():
    scenario = small(
        "time_limit_s=9.0", "downlink.changes=[{at_s=5.0,delay={value_s=1.0}},{at_s=9.0,delay={value_s=1.0}}]", "rounds=2"
    )
    assert changes_after_end(scenario) == [
        "downlink.changes.1.at_s = 9.0: comes after time_limit_s = 9.0",
        "uplink.changes.0.at_round = 3: comes after the last of 2 rounds",
    ]
    assert changes_after_end(small()) == []
