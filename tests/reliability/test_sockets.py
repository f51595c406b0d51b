"""netsim beside real sockets: predictions by hand, and two cases over TCP; `make validate` plays all of them."""

from __future__ import annotations

import math
import os
import subprocess

import pytest

from tests.reliability.sockets import campaign
from tests.reliability.sockets.campaign import cases, conditions, errors, predict
from tests.reliability.sockets.network import Limits, why_not
from tests.reliability.sockets.rounds import Case


def test_the_predictions_of_the_cases_by_hand() -> None:
    by_name = {case.name: case for case in cases()}
    # 8 MB over 1.25 MB/s; all end together.
    assert predict(by_name["8 x 1 MB at once, shared"]) == pytest.approx((6.4, 6.4))
    # The slowest has 100 kB/s; the mean of 400 kB over eight rates.
    last, mean = predict(by_name["own links, 100 to 500 kB/s, 400 kB"])
    rates = [1e5 + client * 4e5 / 7 for client in range(8)]
    assert (last, mean) == pytest.approx((4.0, sum(4e5 / rate for rate in rates) / 8))
    # 50 ms each way and 200 kB at 500 kB/s.
    assert predict(by_name["own links of 500 kB/s, 50 ms each way, 200 kB"])[0] == pytest.approx(0.5)


def test_predictions_with_the_start_of_a_connection_by_hand() -> None:
    (case,) = [case for case in cases() if case.name.endswith("50 ms each way, 200 kB") and case.control == "cubic"]
    # The link holds 50 kB: log2(50,000 / 14,480) doublings of 0.1 s each, in which 35,520 bytes pass at 500 kB/s.
    doublings = math.log2(50_000 / 14_480)
    assert predict(case, "link")[0] == pytest.approx(0.5 + 0.1 * doublings - 35_520 / 5e5)
    assert predict(case, "transfer")[0] == pytest.approx(0.5 + 0.1 * math.log2(200_000 / 14_480))


def test_the_conditions_of_the_machine_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.26, 0.0, 0.0))
    monkeypatch.setattr(os, "getpriority", lambda which, who: -15)
    assert conditions().endswith("; load 3.3 at the beginning; priority -15")
    assert os.uname().release in conditions()


def test_a_machine_that_cannot_measure_says_so_before_anything_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "why_not", lambda: "has no tc")
    with pytest.raises(SystemExit, match="cannot be measured here: it has no tc"):
        campaign.main(1)
    assert capsys.readouterr().out == ""


def left_over() -> str:
    """Return the namespaces of this process that are still there."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return "".join(line for line in listed.splitlines() if line.startswith(f"netsim{os.getpid()}"))


@pytest.mark.slow
def test_the_last_update_of_a_round_is_predicted_over_tcp() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    shared, own = (case for case in cases()[:4] if case.control == "cubic")
    (shared_error,), _ = errors(shared, 1)
    (own_error,), (own_mean,) = errors(own, 1)
    assert left_over() == ""
    # A loaded machine sends late, never early: a prediction may be too small by more than it may be too large.
    assert -0.25 < shared_error < 0.1
    assert -0.15 < own_error < 0.1
    assert -0.15 < own_mean < 0.1


@pytest.mark.slow
def test_the_network_is_removed_when_a_measurement_fails() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    wrong = Case(name="wrong", limits=Limits(up=[1e6]), up_bytes=[10], train_s=[0.0], control="no-such-control")
    with pytest.raises(ConnectionError, match="wrong: a client or the server failed"):
        errors(wrong, 1)
    assert left_over() == ""
