"""Bandwidths fitted to measured rates: known laws are recovered, from rates and from transfers; the scenario runs with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import netsim
from models.laws.bandwidth.paths import GaussMarkov, MarkovLevels
from netsim.core.streams import Streams
from scenarios.fit.bandwidths import Rates, fit_bandwidth
from scenarios.fit.estimate import estimate
from scenarios.fit.log import read_log
from scenarios.schema.errors import UserError

CLIENTS = 6
STEP_S = 2.0


def gauss_markov() -> GaussMarkov:
    draws = Streams(3)["bandwidth"]
    return GaussMarkov(draws=draws, mean_bytes_per_s=1e6, std_bytes_per_s=2e5, memory=0.8, step_s=STEP_S)


def levels() -> MarkovLevels:
    draws = Streams(3)["bandwidth"]
    return MarkovLevels(draws=draws, levels_bytes_per_s=[1e5, 1e6, 4e5], mean_stay_s=[30.0, 20.0, 60.0])


def measured(law: Any, steps: int) -> pd.DataFrame:
    """Return the bytes that a law carries in each interval of `STEP_S`, as rows of a log."""
    clients = np.arange(CLIENTS)
    starts = STEP_S * np.arange(steps)
    served = [law.served_bytes(np.full(CLIENTS, at), np.full(CLIENTS, at + STEP_S), clients) for at in starts.tolist()]
    table = {"client": np.tile(clients, steps), "phase": "uplink", "start_s": np.repeat(starts, CLIENTS)}
    return pd.DataFrame(table | {"seconds": STEP_S, "bytes": np.concatenate(served)})


def transfers(size_bytes: float | None = 3e6) -> pd.DataFrame:
    places = [(client, round) for client in range(CLIENTS) for round in range(1, 6)]
    rows = [{"client": c, "round": r, "phase": "upload", "seconds": 3.0 + 0.1 * r + 0.01 * c} for c, r in places]
    return pd.DataFrame(rows).assign(bytes=size_bytes)


@pytest.mark.slow
def test_a_gauss_markov_bandwidth_is_recovered_from_rates() -> None:
    law = fit_bandwidth(Rates.from_rows(measured(gauss_markov(), 600)))[0]
    assert law.kind == "gauss-markov"
    for key, truth in {"mean_bytes_per_s": 1e6, "std_bytes_per_s": 2e5, "memory": 0.8}.items():
        # 3,600 correlated rates: standard errors are 0.9 %, 2.5 % and 0.01.
        assert law.parameters[key].value == pytest.approx(truth, rel=0.06), key
        assert law.parameters[key].low < truth < law.parameters[key].high, key
    assert law.table["step_s"] == STEP_S


def test_levels_and_stays_are_recovered_though_some_intervals_hold_a_change() -> None:
    law = fit_bandwidth(Rates.from_rows(measured(levels(), 600)))[0]
    assert law.label == "markov-levels (3)"
    np.testing.assert_allclose(law.table["levels_bytes_per_s"], [1e5, 4e5, 1e6], rtol=0.01)
    # Each level is left 50 to 100 times: a standard error of 10 to 15 %.
    np.testing.assert_allclose(law.table["mean_stay_s"], [30.0, 60.0, 20.0], rtol=0.35)


def test_a_path_longer_than_a_piece_gives_the_same_levels() -> None:
    law = levels()
    one = measured(law, 2500)
    best = fit_bandwidth(Rates.from_rows(one[one["client"] == 0]))[0]
    np.testing.assert_allclose(best.table["levels_bytes_per_s"], [1e5, 4e5, 1e6], rtol=0.01)


def test_equal_rates_are_a_constant() -> None:
    rates = Rates(np.zeros(5), np.arange(5.0), np.full(5, 1e6), 1.0, True)
    (only,) = fit_bandwidth(rates)
    assert only.table == {"kind": "constant", "bytes_per_s": 1e6}


@pytest.mark.parametrize("forced", [None, "trace"])
def test_a_scenario_runs_with_the_measured_bandwidth(forced: str | None, tmp_path: Path) -> None:
    log = pd.concat([measured(levels(), 100), transfers()])
    fitted = netsim.fit(log, out=tmp_path / "out", seeds=0, laws={} if forced is None else {"uplink": forced})
    study = netsim.load(fitted.scenario)
    assert study.uplink.bandwidth.kind == (forced or "markov-levels")
    assert study.payload.up_bytes == 3_000_000
    run = netsim.run(study, seed=1)
    seconds = run.clients["upload_end_s"] - run.clients["upload_start_s"]
    if forced == "trace":
        # The first uploads begin at time 0 of the trace, which carries what was measured.
        first = run.clients["round"] == 1
        at_0 = run.clients[first].set_index("client")
        expected = levels().ends_s(np.zeros(CLIENTS), np.full(CLIENTS, 3e6), np.arange(CLIENTS))
        whole = at_0["upload_end_s"].reindex(range(CLIENTS)).to_numpy()
        np.testing.assert_allclose(whole, expected, atol=2 * STEP_S)
    # 3 MB at 0.1 to 1 MB/s.
    assert seconds.between(2.9, 31.0).all()


def test_the_spread_of_a_bandwidth_is_recovered_from_transfers_of_several_sizes() -> None:
    law, rng = gauss_markov(), np.random.default_rng(4)
    rows = []
    for client in range(CLIENTS):
        now_s = 0.0
        for round in range(1, 120):
            size = float(rng.integers(1_000_000, 3_000_000))
            end_s = float(law.ends_s(np.array([now_s]), np.array([size]), np.array([client]))[0])
            rows.append(
                {"client": client, "round": round, "phase": "upload", "start_s": now_s, "end_s": end_s + 0.2, "bytes": size}
            )
            now_s = end_s + 0.2 + float(rng.exponential(5.0))
    estimates = estimate(read_log(pd.DataFrame(rows)))
    fitted = estimates.links["uplink", "all"].law
    assert fitted.kind == "gauss-markov"
    assert fitted.table["mean_bytes_per_s"] == pytest.approx(1e6, rel=0.1)
    # A transfer of 1 to 3 s sees the mean of one or two values: a little less than the law's spread.
    assert 0.6 * 2e5 < fitted.table["std_bytes_per_s"] < 1.3 * 2e5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (transfers(None), "uplink of class all: its transfers have no sizes; give 'bytes'"),
        (transfers().assign(phase="compute"), None),
    ],
)
def test_a_bandwidth_without_transfers_of_known_size(rows: pd.DataFrame, message: str | None) -> None:
    log = read_log(pd.concat([measured(gauss_markov(), 20), rows]))
    if message is None:
        assert not estimate(log).links
        return
    with pytest.raises(UserError, match=message):
        estimate(log)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": np.nan}, "row 1: bytes = nan: is missing; a measured bandwidth is bytes in seconds"),
        ({"start_s": np.nan}, "row 1: start_s = nan: is missing; a bandwidth is measured at a time"),
        ({"seconds": 0.0}, "row 1: seconds = 0.0: must be > 0 for a measured bandwidth"),
    ],
)
def test_bad_rates_are_refused_with_row_and_remedy(change: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_log(measured(gauss_markov(), 5).assign(**change))


def test_an_unknown_law_of_bandwidth_is_refused() -> None:
    log = read_log(pd.concat([measured(gauss_markov(), 20), transfers()]))
    with pytest.raises(UserError, match="laws: uplink = 'gamma': unknown law"):
        estimate(log, laws={"uplink": "gamma"})
    with pytest.raises(UserError, match="laws: downlink: the log has no such phase"):
        estimate(log, laws={"downlink": "trace"})
