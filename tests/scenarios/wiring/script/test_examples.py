"""The scripts that come along do what they say."""

from __future__ import annotations

import numpy as np
import pytest

import netsim
from scenarios.library.examples import reactive_jamming, scripted_latency


def test_the_fastest_leave_the_broken_network_and_come_back() -> None:
    # 40 rounds of 0.25 s end at 10 s, 20 of 1 s at 30 s, the last 40 again take 0.25 s: 40 s in all.
    run = netsim.run("scripted_latency")
    expected = np.concatenate((np.arange(1, 41) * 0.25, 10.0 + np.arange(1, 21), 30.0 + np.arange(1, 41) * 0.25))
    assert run.rounds["end_s"].to_numpy() == pytest.approx(expected, abs=1e-9)
    near = run.clients["client"] < 10
    broken = (run.clients["round"] > 40) & (run.clients["round"] <= 60)
    assert (near != broken).all()
    assert run.script[["round", "time_s", "action"]].to_numpy().tolist() == [[40, 10.0, "change"], [61, 30.0, "restore"]]


@pytest.mark.parametrize("detector", [None, {"kind": "page-hinkley", "drift": 0.1, "threshold": 0.5}])
def test_uploads_last_what_the_script_says_when_they_begin(detector: dict[str, object] | None) -> None:
    policy = {"kind": "pause", "alpha": 1.0, "gamma": 0.0, "tau_min_s": 0.25}
    run = netsim.run(netsim.load("scripted_latency", {"policy": policy if detector is None else policy | {"detector": detector}}))
    clients = run.clients
    duration_s = clients["upload_end_s"] - clients["upload_start_s"]
    broken = (clients["upload_start_s"] >= 10.0) & (clients["upload_start_s"] < run.rounds["end_s"][59])
    near = clients["client"] < 10
    expected = np.where(near, np.where(broken, 2.0, 0.25), 1.0)
    assert duration_s.to_numpy() == pytest.approx(expected, abs=1e-9)
    assert (near & broken).any()
    assert (near & ~broken).any()


def test_a_detector_lets_pause_forget_the_latencies_of_before() -> None:
    # The near clients' tau_min/tau falls from 1 to 1/8 and comes back; the far ones' is always 1/4.
    sweep = netsim.sweep("scripted_latency", jobs=1)
    phases = {}
    for run in (sweep.runs(variant)[0] for variant in ("fastest", "pause", "pause-detecting")):
        rounds = run.rounds
        latency_s = rounds["end_s"] - rounds["start_s"]
        broken, fixed = rounds["start_s"] >= 10.0, rounds["round"] > 60
        phases[run.variant] = [latency_s[phase].mean() for phase in (~broken & ~fixed, broken & ~fixed, fixed)]
    assert phases["fastest"] == pytest.approx([0.25, 1.0, 0.25])
    before, after, fixed = zip(phases["pause"], phases["pause-detecting"], strict=True)
    # Nothing is declared while nothing changes; then it is the faster one, worse and better.
    assert before[0] == before[1]
    assert after[1] < after[0]
    assert fixed[1] < fixed[0]


def test_the_reactive_jammer_hides_when_it_is_noticed_and_returns_when_it_is_forgotten() -> None:
    run = netsim.run(netsim.load("reactive_jamming", {"rounds": 600}))
    acts, detections, clients = run.script, run.detections, run.clients
    stops = acts[acts["action"] == "stop"]["round"].tolist()
    starts = acts[acts["action"] == "start"]["round"].tolist()
    noticed = set(detections["round"])
    assert starts[0] == 0
    assert len(stops) > 5
    for start, stop, again in zip(starts, stops, [*starts[1:], None], strict=False):
        assert stop in noticed or stop == start + 200
        if again is None:
            continue
        channels = detections[detections["round"] == stop]["channel"] if stop in noticed else clients["channel"]
        came = clients["channel"].isin(channels) & (clients["outcome"] == "delivered")
        between = (clients["round"] > stop) & (clients["round"] <= again)
        # Deliveries of the very instant in which it returns may be a few more.
        assert 30 <= int((came & between).sum()) <= 32
    # It jams from the round after it returned to the close of the round in which it was noticed.
    for row in run.jams.itertuples():
        begun = max(start for start in starts if start < row.round)
        assert row.round <= min((stop for stop in stops if stop > begun), default=600)


def test_their_arguments_are_keys_with_a_meaning() -> None:
    for module, names in ((scripted_latency, {"breaks_s", "fixed_from"}), (reactive_jamming, {"rest", "patience"})):
        tables = netsim.load(module.__name__.rpartition(".")[2]).script.parameters()
        assert set(tables) == names
