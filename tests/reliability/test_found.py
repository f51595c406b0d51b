"""What campaigns found: scenarios that failed in the middle of a run, or that never ended. Each is refused before it begins."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.policies.random import Random
from netsim.core.streams import Streams
from netsim.network.jamming import Dwells, Jammer
from netsim.simulation import BY_EVENTS
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run
from scenarios.runs.summary.books import Accounts
from scenarios.schema.errors import UserError
from scenarios.wiring.learning import training
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import tables as learning
from tests.helpers.rough_scenarios import BUFFERED, other, rough

DROPS = {"kind": "gauss-markov", "mean_bytes_per_s": 300.0, "std_bytes_per_s": 100.0, "memory": 0.5, "step_s": 0.5}
LONG = {"kind": "constant", "value_s": 4e6}
COMING = {"kind": "markov", "mean_on_s": 1.0, "mean_off_s": 2.0}
MAST = {"name": "mast", "mean_up_s": 2.0, "mean_down_s": 1.0}
LEARNING = {
    "learner.optimizer.learning_rate": (1e39, 1e-60),
    "learner.optimizer.weight_decay": (1e39,),
    "learner.proximal": (1e39,),
    "learner.threads": (1_000_000, 257),  # a library that gets no thread ends the process, without a word
    "learner.contribution_samples": (10**9,),
    "learner.network.hidden": ([10**18], [50_000, 50_000]),
    "learner.server_optimizer": ({"kind": "fedadam", "tau": 1e-60},),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in LEARNING.items() for value in values])
def test_numbers_that_training_cannot_hold_are_refused_by_their_key(key: str, value: Any) -> None:
    with pytest.raises(UserError, match=key.removesuffix(".hidden").replace(".", r"\.")):
        build(parse(override(learning(), {key: value})), learner=False)


def test_a_network_that_the_machine_cannot_hold_in_training_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = parse(override(learning(), {"learner.device": "cpu"}))
    build(scenario)
    monkeypatch.setattr(training, "memory_bytes", lambda: 4 * 610 * 14 - 1)
    with pytest.raises(UserError, match=r"learner\.network\.kind = 'mlp': has 610 parameters; 3 updates at once take"):
        build(scenario)


def test_a_limit_of_memory_counts_as_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert training.memory_bytes() > 2**28
    monkeypatch.setattr(training.resource, "getrlimit", lambda kind: (12345, training.resource.RLIM_INFINITY))
    assert training.memory_bytes() == 12345


def test_what_is_too_small_for_its_digits_balances() -> None:
    # 5e-324 W for 7 s, added up in two orders: there is nothing smaller to tell the two by.
    assert Accounts({}, {}, {"compute_j": (3.5e-323, 2.5e-323)}).problems() == []
    assert Accounts({}, {}, {"compute_j": (3.5e-200, 2.5e-200)}).problems() != []


@pytest.mark.parametrize("key", ["mean_on_s", "mean_off_s"])
def test_times_that_draws_take_out_of_range_are_refused(key: str) -> None:
    means = {"mean_on_s": 1.0, "mean_off_s": 1.0} | {key: 1e301}
    with pytest.raises(UserError, match=rf"availability\.{key} = 1e\+301"):
        build(parse(rough(availability={"kind": "markov", **means})))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("belief.coupling", 1e308),
        ("belief.attenuation", 1e300),
        ("belief.exponent", 1e300),
        ("opinions.synthetic.noise", 1e308),
        ("peers.topology.side_km", 1e300),
        ("peers.bandwidth_bytes_per_s", 5e-324),
        ("belief.work_s", 1e308),
        ("peers.resend_after_s", 1e10),
        ("peers.speed_km_per_s", 5e-324),
    ],
)
def test_numbers_whose_powers_and_products_are_infinite_are_refused(key: str, value: float) -> None:
    tables = override(other("policy", "bp-index"), {"peers.topology": {"kind": "watts-strogatz"}})
    tables = override(tables, {key: value})
    with pytest.raises(UserError, match=re.escape(f"{key} = {value!r}")):
        build(parse(tables))


def test_a_period_whose_multiples_are_infinite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "presence.csv").write_text("client,start_s,end_s\n0,0,1\n", encoding="utf-8")
    trace = {"kind": "trace", "path": str(tmp_path / "presence.csv"), "repeat_s": 1e308}
    with pytest.raises(UserError, match=r"availability\.repeat_s = 1e\+308: must be > 0 and <= 1e\+100 seconds"):
        build(parse(rough(availability=trace)))


def test_a_time_that_is_no_number_is_refused_as_one() -> None:
    levels = {"kind": "markov-levels", "levels_bytes_per_s": [100.0, 200.0], "mean_stay_s": []}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match=r"uplink\.bandwidth"):
            build(parse(rough(uplink={"bandwidth": levels}, payload={"up_bytes": 100})))


def trains(parameters: Any, data: Any) -> None:
    """Takes too few arguments for local training."""


def test_own_training_that_takes_other_arguments_is_refused_before_the_run() -> None:
    with pytest.raises(UserError, match=r"local_training.*cannot be called with \(parameters, data, steps, generator\)"):
        build(parse(override(learning(), {"learner.local_training": f"{__name__}:trains"})))


def counts(scores: Any) -> float:
    """Takes too few arguments for a metric."""
    return float(len(scores))


def test_a_metric_that_takes_other_arguments_is_refused_before_the_run() -> None:
    with pytest.raises(UserError, match=r"learner\.metrics = .*counts.*cannot be called with \(scores, classes\)"):
        build(parse(override(learning(), {"learner.metrics": [f"{__name__}:counts"]})))


def test_a_charger_of_a_power_that_no_sum_holds_is_refused() -> None:
    battery = {"capacity_j": 10.0, "charge_w": [1.0] * 5 + [1e308], "charging": {"kind": "always"}}
    tables = rough(clients={"count": 6}, energy={"compute_w": 1.0, "battery": battery})
    with pytest.raises(UserError, match=r"energy\.battery\.charge_w = 1e\+308 for client 5: must be at most 1e\+06 watts"):
        build(parse(tables))


def test_a_power_that_is_hardly_a_number_empties_no_battery(tmp_path: Path) -> None:
    tables = rough(clients={"count": 6}, energy={"idle_w": 5e-324, "compute_w": 1.0, "battery": {"capacity_j": 1000.0}})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert run(parse(tables), tmp_path / "run")["energy"]["ran_empty"] == 0


def test_a_study_of_safa_that_picks_more_clients_than_there_are_is_refused() -> None:
    server = {"kind": "scenarios.library.validation.safa_accuracy:FedAvg", "crash": 0.1}
    for picked in (0, 7):
        tables = rough(clients={"count": 6}, server=server | {"picked": picked})
        tables.pop("policy", None)
        with pytest.raises(UserError, match=rf"picked = {picked}: must be between 1 and the 6 clients"):
            build(parse(tables))


@pytest.mark.parametrize("method", ["FedAvg", "Safa"])
def test_a_study_of_safa_that_trains_nothing_is_refused(method: str) -> None:
    kind = f"scenarios.library.validation.safa_accuracy:{method}"
    tables = rough(clients={"count": 6}, server={"kind": kind, "picked": 2, "crash": 0.1})
    for key in ("policy", "learner"):
        tables.pop(key, None)
    with pytest.raises(UserError, match=rf"server\.kind = '{kind}': who crashes does not train; give \[learner\]"):
        build(parse(tables))


def test_a_round_of_nobody_has_no_reward(tmp_path: Path) -> None:
    # A policy that selects nobody in the first rounds, and then twice the same: their reward is not that of a round before.
    tables = rough(rounds=8, policy={"kind": f"{__name__}:Hesitant"}, server={"per_round": 2})
    tables.pop("learner", None)
    tables["metrics"] = {"reward": {"kind": "pause-reward"}}
    told = run(parse(tables), tmp_path / "run")
    rounds = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pydict()
    assert told["rounds"] == 8
    nobody = [number % 3 != 0 for number in rounds["round"]]
    assert [selected == 0 for selected in rounds["selected"]] == nobody
    assert [reward == 0.0 for reward in rounds["reward"]] == nobody


class Hesitant(Random):
    """Selects two clients in every third round, and nobody in the others."""

    may_select_nobody = True

    def select(self, view: Any) -> Any:
        return np.flatnonzero(view.selectable)[:2] if view.round % 3 == 0 else np.zeros(0, np.int64)


def test_a_sensitivity_beyond_updates_is_refused() -> None:
    with pytest.raises(UserError, match=r"privacy\.sensitivity = 1e\+39"):
        parse(override(rough(), {"privacy.sensitivity": 1e39}))


def test_a_batch_of_more_samples_than_there_are_is_one_of_all(tmp_path: Path) -> None:
    run(parse(learning(batch_size=20)), tmp_path / "all")  # each of 6 clients holds 20
    run(parse(learning(batch_size=2**31 - 1)), tmp_path / "more")
    for table in ("rounds.parquet", "clients.parquet"):
        assert (tmp_path / "all" / table).read_bytes() == (tmp_path / "more" / table).read_bytes()


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        (override(rough(), {"outages": [MAST], "compute.delay.shift_s": 1e9}), "outages.0.mean_up_s"),
        (override(rough(), {"downlink.bandwidth": DROPS, "payload.down_bytes": 10**14}), "downlink.bandwidth.step_s"),
        (rough(availability=COMING, compute={"delay": LONG}), "availability.mean_on_s"),
        (
            override(other("policy", "bp-index"), {"peers.resend_after_s": 1e8, "availability": COMING}),
            "availability.mean_on_s",
        ),
        (override(other("jammer", "sweep"), {"jammers.0.dwell_s": 1e-9, "compute.delay.shift_s": 1e6}), "jammers.0.dwell_s"),
    ],
)  # fmt: skip
def test_times_that_are_too_far_apart_are_refused(tables: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=rf"{key} = .* would pass in a phase"):
        build(parse(tables))
    # A run that ends before is none of that.
    build(parse(override(tables, {"time_limit_s": 1e-6 if "jammers" in key else 100.0})))


def test_a_dwell_shorter_than_the_clock_shows_lets_it_go_on() -> None:
    class Law:
        def choose(self, view: Any) -> list[int]:
            return []

    law: Any = Law()
    dwells = Dwells(dwell_s=1e-300, start=1e9)
    target: Any = type("Target", (), {"count": 2, "begun": [0, 0], "delivered": [0, 0], "under_way": [[], []]})
    jammer = Jammer(name="short", law=law, target=target, draws=Streams(1)["jammer"], dwells=dwells)
    for _ in range(3):
        before = jammer.next_s
        jammer.decide(1, before, target)
        assert jammer.next_s > before


def test_an_event_limit_ends_what_the_clock_does_not(tmp_path: Path) -> None:
    tables = override(other("jammer", "sweep"), {"jammers.0.dwell_s": 1e-300, "jammers.0.budget": 10**9, "time_limit_s": 1.0})
    tables["compute"]["delay"] = {"kind": "constant", "value_s": 0.0}
    tables["channels"]["delay"] = {"kind": "constant", "value_s": 1e-290}
    for most in (100, 2000):
        simulation = build(parse(tables)).simulation
        simulation.limit_events(most)
        simulation.run()
        assert simulation.ended == BY_EVENTS


def test_a_limit_of_events_is_a_prefix_of_the_run() -> None:
    ends = []
    for most in (None, 200, 400):
        simulation = build(parse(BUFFERED)).simulation
        simulation.limit_events(most)
        simulation.run()
        ends.append((simulation.ended, simulation.server.round))
    assert ends[0] == ("rounds", 60)
    assert [ended for ended, _ in ends[1:]] == [BY_EVENTS, BY_EVENTS]
    assert 0 < ends[1][1] < ends[2][1] < 60


def test_a_plan_that_names_a_sub_channel_out_of_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jams.csv").write_text("0\n1,3\n")
    plan = {"name": "plan", "law": {"kind": "file", "path": str(tmp_path / "jams.csv")}, "reach": [0, 1]}
    with pytest.raises(UserError, match=r"jammers\.0\.law\.path.*line 2: '1,3' names \[3\]"):
        build(parse(override(other("jammer", "sweep"), {"jammers": [plan]})))


def test_closed_forms_are_refused_where_they_never_hold() -> None:
    tables = override(other("policy", "bp-index"), {"slots.engine": "wave"})
    build(parse(tables))
    for key, value in (("gossip.forwarding", "push"), ("belief.update", "asynchronous"), ("output.messages_table", True)):
        with pytest.raises(UserError, match=r"slots\.engine = 'wave': there is no closed form"):
            build(parse(override(tables, {key: value})))


def test_messages_that_no_column_could_add_up_are_refused() -> None:
    with pytest.raises(UserError, match=r"gossip\.header_bytes = 10+: must be"):
        parse(override(other("policy", "bp-index"), {"gossip.header_bytes": 10**18}))


def test_powers_beside_which_others_are_lost_are_refused() -> None:
    tables = rough(energy={"idle_w": [2e11, *[0.5] * 11], "compute_w": 4.0})
    with pytest.raises(UserError, match=r"energy\.idle_w = 2e\+11 for client 0: must be at most 1e\+06 watts"):
        build(parse(tables))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"availability\.path"):
        build(parse(rough(availability={"kind": "trace", "path": "x" * 5000})))


def test_an_index_that_no_square_holds_is_refused() -> None:
    with pytest.raises(UserError, match=r"policy\.mu = 1e\+200"):
        build(parse(override(other("policy", "bp-index"), {"policy.mu": 1e200})))


def test_rounds_of_a_fixed_length_in_which_clients_come_and_go_for_ever_are_refused() -> None:
    presence = {"kind": "markov", "mean_on_s": 3.0, "mean_off_s": 2.0}
    server = {"kind": "semi-synchronous", "per_round": 2, "round_s": 9e11}
    with pytest.raises(UserError, match="comings and goings would pass in a phase of 9e\\+11 s"):
        build(parse(rough(server=server, availability=presence)))
    build(parse(rough(server=server | {"round_s": 9e5}, availability=presence)))


def test_pauses_before_sendings_in_which_clients_come_and_go_for_ever_are_refused() -> None:
    presence = {"kind": "markov", "mean_on_s": 3e-3, "mean_off_s": 2e-3}
    uplink = {"channel": {"kind": "bernoulli", "success": 0.0}, "resend_after_s": 900.0, "max_resends": 1}
    build(parse(rough(uplink=uplink, availability=presence)))
    with pytest.raises(UserError, match="comings and goings would pass in a phase of 899100 s"):
        build(parse(rough(uplink=uplink | {"max_resends": 999}, availability=presence)))


LEVELS = {"kind": "markov-levels", "levels_bytes_per_s": [0.0, 9.0]}


@pytest.mark.parametrize(
    ("key", "law", "told"),
    [
        ("bandwidth", LEVELS | {"mean_stay_s": [0.0]}, r"mean_stay_s = \[0\.0\]"),
        ("bandwidth", LEVELS | {"mean_stay_s": [0.0, 0.0]}, "mean_stay_s = "),
        ("delay", {"kind": "constant", "value_s": -1.0}, r"value_s = -1\.0"),
    ],
)
def test_how_opinions_are_uploaded_is_read_where_nobody_does(key: str, law: dict[str, Any], told: str) -> None:
    # A time of zero was divided by on the way.
    tables = override(other("policy", "bp-index"), {f"opinions.{key}": law})
    with pytest.raises(UserError, match=rf"opinions\.{key}\.{told}"):
        build(parse(tables))
