"""What runs and can hardly be meant is warned of: before the run, after it, in the summary; with --strict it is an error."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import override, parse, read, shipped_files
from scenarios.runs.run import run
from scenarios.schema.cautions import Caution, collect_warnings
from scenarios.sweeps.sweep import plan
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

QUICK = {
    "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": {"by_group": {"near": 1.0, "far": 2.0}}, "mean_excess_s": 1}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.5}},
}
GROUPS = {"count": 4, "groups": [{"name": "near", "count": 2}, {"name": "far", "count": 2}]}
BASE: dict[str, Any] = {"name": "doubtful", "rounds": 8, "clients": GROUPS, **QUICK}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 2}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 2, "buffer": 3}, "policy": {"kind": "random"}},
    "compass": {"server": {"kind": "compass"}},
    "asynchronous": {"server": {"kind": "asynchronous"}, "scheduler": {"kind": "random"}, "channels": {"count": 4}},
    "fl-fa": {
        "server": {"kind": "fl-fa", "per_round": 2},
        "policy": {"kind": "random"},
        "slots": {"rounds": 3},
        "opinions": {"synthetic": {}},
    },
}


class Lowest:
    """Always client 0, whatever it is asked for."""

    needs_updates = False

    def __init__(self, *, clients: int) -> None: ...

    def select(self, view: Any) -> np.ndarray:
        return np.zeros(1, np.int64)

    def observe(self, outcome: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def told(kind: str, *changes: tuple[str, Any]) -> list[Caution]:
    return list(build(parse(override(BASE | SERVERS[kind], changes))).cautions)


def names(cautions: list[Caution]) -> list[str]:
    return [caution.name for caution in cautions]


# The shortest possible update takes 0.25 + 1 + 0.5 = 1.75 s near by and 2.75 s far off.
@pytest.mark.parametrize("kind", ["synchronous", "fl-fa"])
def test_a_deadline_that_all_must_miss_or_one_group(kind):
    assert told(kind, ("server.deadline_s", 1.75), ("clients.groups", [*GROUPS["groups"][:1], {"name": "far", "count": 2}])) == [
        Caution(
            "deadline-too-short",
            "server.deadline_s = 1.75: is below the shortest possible update of group 'far', 2.75 s; "
            "nothing of it can ever be delivered; give more time than that",
        )
    ]
    assert [c.text for c in told(kind, ("server.deadline_s", 1.7499))] == [
        "server.deadline_s = 1.7499: is below the shortest possible update of any client, 1.75 s; nothing can ever be delivered; "
        "give more time than that"
    ]
    assert told(kind, ("server.deadline_s", 2.75)) == []


def test_a_deadline_that_a_change_makes_possible_is_none():
    faster = [{"at_round": 4, "clients": [3], "delay": {"shift_s": 0.5}}]
    assert names(told("synchronous", ("server.deadline_s", 1.5))) == ["deadline-too-short"]
    assert told("synchronous", ("server.deadline_s", 1.5), ("compute.changes", faster)) == [
        Caution(
            "deadline-too-short",
            "server.deadline_s = 1.5: is below the shortest possible update of group 'near', 1.75 s; "
            "nothing of it can ever be delivered; give more time than that",
        )
    ]


def test_a_shared_medium_and_a_payload_take_time_as_well():
    shared = (("payload", {"down_bytes": 100, "up_bytes": 100}), ("uplink.shared", {"bandwidth_bytes_per_s": 50.0}))
    assert "3.75 s" in told("synchronous", ("server.deadline_s", 3.0), *shared)[0].text
    link = (("payload", {"down_bytes": 100, "up_bytes": 100}), ("downlink.bandwidth_bytes_per_s", 50.0))
    assert "3.75 s" in told("synchronous", ("server.deadline_s", 3.0), *link)[0].text


def test_a_round_of_fixed_length_in_which_no_transmission_ends():
    channels = ("channels.delay", {"kind": "constant", "value_s": 0.25})
    text = told("asynchronous", ("server.round_s", 0.7), channels)[0].text
    assert text.startswith("server.round_s = 0.7: is below the shortest possible transmission of any client, 0.75 s; nothing can")
    assert told("asynchronous", ("server.round_s", 0.75), channels) == []


@pytest.mark.parametrize(
    ("kind", "changes", "shortest"),
    [
        # The second of two that are waited for is near by, too; of three, one is far off. Own policies may select fewer.
        ("synchronous", (), 1.75),
        ("synchronous", (("server.per_round", 3),), 2.75),
        ("synchronous", (("server.per_round", 3), ("server.first", 2)), 1.75),
        ("synchronous", (("server.per_round", 3), ("server.deadline_s", 2.0)), 2.0),
        ("synchronous", (("server.per_round", 3), ("policy", {"kind": "tests.scenarios.schema.test_cautions:Lowest"})), 1.75),
        ("buffered", (), 2.75),
        ("buffered", (("server.buffer", 1),), 1.75),
        ("asynchronous", (), 1.75),
        ("asynchronous", (("server.round_s", 4.0),), 4.0),
        ("fl-fa", (), 3 * 1.75),
        ("fl-fa", (("policy", {"kind": "quick-init-ucb"}),), 3 * 1.75),
    ],
)
def test_a_time_limit_below_one_round(kind, changes, shortest, tmp_path):
    def of(limit: float) -> list[Caution]:
        return [c for c in told(kind, *changes, ("time_limit_s", limit)) if c.name == "time-limit-too-short"]

    assert of(shortest) == []
    assert of(shortest - 1e-3)[0].text == (
        f"time_limit_s = {shortest - 1e-3!r}: is below the shortest possible round, {shortest:g} s; no round can be completed, "
        "and the tables stay empty; give more time"
    )
    # It is true: the run is over before a round is.
    tables = override(BASE | SERVERS[kind], [*changes, ("time_limit_s", shortest - 1e-3)])
    summary = run(parse(tables), tmp_path / "run")
    assert summary["rounds"] == 0
    assert [kept["name"] for kept in summary["warnings"]][-1] == "no-round"


@pytest.mark.parametrize(
    "change",
    [
        ("downlink.channel", {"kind": "bernoulli", "success": 0.1}),
        ("outages", [{"name": "mast", "from_s": 0.1}]),
        ("availability", {"kind": "markov", "mean_on_s": 0.3, "mean_off_s": 0.3}),
    ],
    ids=lambda change: change[0],
)
def test_where_updates_break_off_a_round_may_be_shorter(change):
    limit = ("time_limit_s", 1.0)
    assert "time-limit-too-short" in names(told("synchronous", limit))
    assert "time-limit-too-short" not in names(told("synchronous", limit, change))


SLOW = {"delay": {"kind": "constant", "value_s": {"by_group": {"near": 1.0, "far": 100.0}}}}


@pytest.mark.parametrize(
    ("tables", "limit_s"),
    [
        # Who makes a part of the passes takes 5 s of at least 13.
        (
            {
                "clients": GROUPS | {"data_sizes": 4.0},
                "work": {"epochs": 3, "partial_share": 1.0},
                "compute": {"samples_per_s": 1.0},
            },
            10.0,
        ),
        # FedCS selects those near by alone, 1.75 s, where three of four are asked for.
        ({"server": {"per_round": 3, "deadline_s": 60.0}, "policy": {"kind": "fedcs", "round_s": 9.0, "asked": 1.0}}, 50.0),
        # A battery is empty after 10 s.
        ({"server": {"per_round": 4}, "energy": {"compute_w": 1.0, "battery": {"capacity_j": 10.0, "threshold": 0.5}}}, 50.0),
        # Nothing comes through after 2 s, which ends what is under way.
        *(
            ({"payload": {"down_bytes": 1000, "up_bytes": 1}, "downlink": link}, 50.0)
            for trace in [{"kind": "trace", "time_s": [0.0], "bytes_per_s": [1.0], "end_s": 2.0, "after_end": "stop"}]
            for link in [{"bandwidth": trace}, {"shared": {"bandwidth": trace}}]
        ),
        ({"script": "tests.scenarios.schema.test_cautions:hurry"}, 10.0),
    ],
    ids=["partial work", "fedcs", "battery", "trace", "shared trace", "script"],
)
def test_no_warning_of_a_round_that_may_be_shorter(tables, limit_s, tmp_path):
    study = override(BASE | SERVERS["synchronous"] | {"compute": SLOW} | tables, {"time_limit_s": limit_s})
    assert [c.text for c in build(parse(study)).cautions if "time_limit_s" in c.text] == []
    assert run(parse(study), tmp_path / "run")["rounds"] > 0


def hurry(world: Any) -> Any:
    world.scale("compute.delay", value_s=0.01)
    yield world.until_round(1)


def test_no_warning_of_a_deadline_that_partial_work_meets():
    work = (("clients", GROUPS | {"data_sizes": 4.0}), ("compute", {"samples_per_s": 1.0}), ("server.deadline_s", 6.0))
    assert names(told("synchronous", *work, ("work", {"epochs": 3}))) == ["deadline-too-short"]
    assert told("synchronous", *work, ("work", {"epochs": 3, "partial_share": 1.0})) == []


@pytest.mark.parametrize(
    ("kind", "key", "value", "unless", "why"),
    [
        ("synchronous", "stragglers", "cancel", {"first": 1}, "as a round waits for all its updates; give deadline_s or first,"),
        ("synchronous", "reselect_busy", True, {"deadline_s": 9.0}, "as a round waits for all its updates; give deadline_s or"),
        ("fl-fa", "stragglers", "cancel", {"deadline_s": 9.0}, "as a round waits for all its updates; give deadline_s, or"),
        ("asynchronous", "wait_for_compute", True, None, "as server.round_s = 9.0 is the length of a round; leave one"),
    ],
)
def test_a_key_of_the_server_that_has_no_effect(kind, key, value, unless, why):
    more = [("server.round_s", 9.0)] if unless is None else []
    (caution,) = told(kind, *more, (f"server.{key}", value))
    assert caution.name == "without-effect"
    assert caution.text.startswith(f"server.{key} = {value!r}: has no effect, {why}")
    assert told(kind, *((f"server.{name}", given) for name, given in (unless or {}).items()), (f"server.{key}", value)) == []


def test_planned_work_has_no_effect_where_the_server_gives_the_steps():
    def told_of(**work: Any) -> list[str]:
        speed = (("compute", {"samples_per_s": 10.0}), ("work", {"batch_size": 10, **work}))
        held = (("clients", GROUPS | {"data_sizes": 100.0}),) if "steps" not in work else ()
        texts = [caution.text for caution in told("compass", *speed, *held)]
        why = ": has no effect, as server.kind = 'compass' says how many steps an update has; leave it out"
        assert all(text.endswith(why) for text in texts)
        return [text.removesuffix(why) for text in texts]

    assert told_of() == []
    assert told_of(epochs=3, partial_share=0.5) == ["work.epochs", "work.partial_share"]
    assert told_of(steps=3) == []
    held = (("clients", GROUPS | {"data_sizes": 100.0}), ("compute", {"samples_per_s": 10.0}))
    assert names(told("compass", *held, ("work", {"steps": 3}))) == ["without-effect"]
    assert told("buffered", *held, ("work", {"steps": 3})) == []


@pytest.mark.needs_torch
def test_how_long_the_learner_trains_has_no_effect_where_the_server_gives_the_steps():
    def told_of(**keys: Any) -> list[str]:
        learner = {"data": {"kind": "digits"}, "network": {"kind": "svm"}, "loss": "hinge", "batch_size": 10, **keys}
        learner |= {"optimizer": {"kind": "sgd", "learning_rate": 0.1}, "aggregation": {"kind": "fixed-share"}}
        speed = ("compute", {"samples_per_s": 10.0})
        return [caution.text.split(":")[0] for caution in told("compass", speed, ("learner", learner))]

    assert told_of() == []
    assert told_of(epochs=1) == []
    assert told_of(epochs=3, max_steps=7) == ["learner.epochs = 3", "learner.max_steps = 7"]


def test_a_weight_on_privacy_where_none_is_lost():
    assert small().privacy is not None
    assert build(small()).cautions == ()
    without = small().model_copy(update={"privacy": None})
    assert [c.text for c in build(without).cautions] == [
        "policy.gamma = 5.0: weighs privacy, and there is no [privacy], so that none is ever lost; describe the mechanism in "
        "[privacy], or set gamma = 0"
    ]
    none = build(small("privacy.mechanism=none")).cautions
    assert 'privacy.mechanism is "none"' in none[0].text
    for policy in ("pause-brute", "sa-pause", "vanilla-sa-pause", "genie"):
        assert names(list(build(small(f"policy.kind={policy}", "privacy.mechanism=none")).cautions)) == ["gamma-without-privacy"]
    for setting in ("policy.gamma=0", "policy.kind=random", "policy.kind=fastest"):
        assert build(small(setting, "privacy.mechanism=none")).cautions == ()


def test_a_group_that_nothing_came_from_is_told_after_the_run(tmp_path):
    def late(name: str, **changes: Any) -> list[str]:
        tables = BASE | SERVERS["synchronous"] | changes
        summary = run(parse(tables), tmp_path / name)
        assert all(kept["name"] == "never-delivered" for kept in summary["warnings"])
        return [kept["text"] for kept in summary["warnings"]]

    assert late("all") == []
    lossy = {**QUICK["uplink"], "channel": {"kind": "bernoulli", "success": {"by_group": {"near": 1.0, "far": 0.0}}}}
    assert late("lost", uplink=lossy) == [
        'clients.groups.1.name = "far": no update of this group was ever delivered; each was lost, late, aborted or still under '
        "way at the end"
    ]
    never = 'clients.groups.1.name = "far": no update of this group was ever delivered; it was never selected'
    assert late("unselected", policy={"kind": "fastest"}, rounds=20) == [never]
    # Too short to say.
    assert late("short", policy={"kind": "fastest"}, rounds=19) == []
    nothing = {**QUICK["uplink"], "channel": {"kind": "bernoulli", "success": 0.0}}
    assert late("nothing", uplink=nothing) == ["clients: no update of any client was ever delivered"]


def test_the_sums_behind_a_late_warning_survive_an_interrupt(tmp_path):
    from scenarios.runs.run import go_on

    def stop(simulation: Any) -> None:
        if simulation.server.round == 4:
            raise KeyboardInterrupt

    study = parse(BASE | SERVERS["synchronous"] | {"policy": {"kind": "fastest"}, "rounds": 20})
    assert run(study, tmp_path / "cut", after_round=stop)["warnings"] == []
    assert go_on(tmp_path / "cut")["warnings"] == run(study, tmp_path / "whole")["warnings"] != []


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("file", shipped_files(), ids=lambda file: file.stem)
def test_shipped_scenarios_are_not_doubtful(file, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    # Their data need not be there.
    monkeypatch.setattr("scenarios.wiring.simulation.check_learner", lambda scenario: None)
    tables = read(file)
    # A million clients say the same as a thousand, more slowly.
    tables["clients"]["count"] = min(tables["clients"]["count"], 1000)
    for key in ("grid", "baseline"):
        tables.get("sweep", {}).pop(key, None)
    assert plan(tables, file.name).cautions == {}


def test_other_peoples_warnings_are_left_alone():
    found: list[Caution] = []
    with pytest.warns(UserWarning, match="theirs"), collect_warnings(found):
        warnings.warn("theirs", UserWarning, stacklevel=1)
    assert found == []


LONGER = {"count": 4, "delay": {"kind": "constant", "value_s": 0.1}, "changes": [{"at_round": 4, "delay": {"value_s": 0.4}}]}


def test_a_change_that_no_detector_of_sub_channels_can_see():
    def told_of(scheduler: dict[str, Any], channels: dict[str, Any], *further: tuple[str, Any]) -> list[str]:
        return names(told("asynchronous", ("channels", channels), ("scheduler", scheduler), *further))

    detecting = [{"kind": "glr-cucb"}, {"kind": "aoi-aware", "scheduler": {"kind": "glr-cucb", "detector": {"kind": "cusum"}}}]
    for scheduler in detecting:
        assert told_of(scheduler, LONGER) == ["unseen-change"]
        # What a round cuts off does not arrive, and that is seen.
        assert told_of(scheduler, LONGER, ("server.round_s", 3.0)) == []
        both = [*LONGER["changes"], {"at_round": 5, "channel": {"success": 0.5}}]
        assert told_of(scheduler, LONGER | {"channel": {"kind": "bernoulli", "success": 0.9}, "changes": both}) == []
    assert told_of({"kind": "cucb"}, LONGER) == []
    assert told_of({"kind": "glr-cucb", "detector": {"kind": "no-detection"}}, LONGER) == []


@pytest.mark.parametrize("link", ["downlink", "uplink"])
def test_a_pause_before_sendings_that_do_not_occur_is_warned_of(link: str) -> None:
    pause = (f"{link}.resend_after_s", 5.0)
    (caution,) = told("synchronous", pause)
    assert str(caution.text).startswith(f"{link}.resend_after_s = 5.0: has no effect, as nothing is sent again")
    again, channel = (f"{link}.max_resends", 1), f"{link}.channel"
    lossy = (channel, {"kind": "bernoulli", "success": 0.9})
    assert told("synchronous", pause, again, lossy) == []
    for lossless in ({"kind": "perfect"}, {"kind": "bernoulli", "success": 1.0}):
        (caution,) = told("synchronous", pause, again, (channel, lossless))
        assert str(caution.text).startswith(f"{link}.max_resends = 1: has no effect, as nothing is lost on this link")
    jammer = ("jammers", [{"name": "van", "law": {"kind": "random"}, "jams": link}])
    outage = ("outages", [{"name": "mast", "mean_up_s": 9.0, "mean_down_s": 1.0}])
    assert told("synchronous", pause, again, jammer) == told("synchronous", pause, again, outage) == []


def test_sendings_again_on_sub_channels_are_warned_of() -> None:
    assert [caution.name for caution in told("asynchronous", ("uplink.max_resends", 2))] == ["resends-in-vain"]
    assert told("asynchronous") == []
