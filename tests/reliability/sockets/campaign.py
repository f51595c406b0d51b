"""Predictions of netsim beside rounds over real sockets: cases, predictions, and their errors with intervals.

`python -m tests.reliability.sockets.campaign [REPEATS]` (`make validate`) prints a table; a slow test plays two cases.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import stats

import netsim
from tests.reliability.sockets.network import Limits, why_not
from tests.reliability.sockets.rounds import Case, measure

GrowsTo: TypeAlias = Literal["nothing", "transfer", "link"]
_SHARED = 1.25e6
_SEGMENT_BYTES = 1448
_FIRST_WINDOW = 10 * _SEGMENT_BYTES
"""Bytes that TCP sends before the first acknowledgement (RFC 6928)."""
_STARTS_S = [0.0, 0.2, 0.5, 0.9, 1.4, 1.8, 2.1, 2.6]
_SIZES = [2_000_000, 300_000, 1_200_000, 600_000, 1_500_000, 400_000, 900_000, 700_000]
_HALF = [2.5e5, 1e7] * 4


def cases() -> list[Case]:
    """Return the cases of the campaign; the first two are those of the short test."""
    at_once, staggered = Limits(shared_up=_SHARED), Limits(shared_up=_SHARED, up=_HALF)
    own = Limits(up=np.linspace(1e5, 5e5, 8).tolist())
    rounds = Limits(shared_up=_SHARED, shared_down=2.5e6, up=[2e5, 1e7, 3e5, 1e7, 4e5, 1e7, 5e5, 1e7], down=[1e6] * 8)
    train = [0.1 * client for client in range(8)]
    base = [
        Case(name="8 x 1 MB at once, shared", limits=at_once, up_bytes=[1_000_000] * 8, train_s=[0.0] * 8),
        Case(name="own links, 100 to 500 kB/s, 400 kB", limits=own, up_bytes=[400_000] * 8, train_s=[0.0] * 8),
        Case(name="staggered, 0.3 to 2 MB, half limited", limits=staggered, up_bytes=_SIZES, train_s=_STARTS_S),
        Case(name="8 x 50 kB at once, shared", limits=at_once, up_bytes=[50_000] * 8, train_s=[0.0] * 8),
        Case(
            name="rounds of 8, 300 kB each way",
            limits=rounds,
            up_bytes=[300_000] * 8,
            train_s=train,
            down_bytes=300_000,
            rounds=3,
        ),
        Case(
            name="own links of 500 kB/s, 50 ms each way, 200 kB",
            limits=Limits(up=[5e5] * 8, delay_s=0.05),
            up_bytes=[200_000] * 8,
            train_s=[0.0] * 8,
        ),
        Case(
            name="own links of 1 MB/s, 100 ms each way, 500 kB",
            limits=Limits(up=[1e6] * 4, delay_s=0.1),
            up_bytes=[500_000] * 4,
            train_s=[0.0] * 4,
        ),
        Case(
            name="own links of 500 kB/s, 50 ms each way, 200 kB, 1 % of frames lost",
            limits=Limits(up=[5e5] * 8, delay_s=0.05, loss=0.01),
            up_bytes=[200_000] * 8,
            train_s=[0.0] * 8,
        ),
    ]
    return [replace(case, control=control) for case in base for control in ("cubic", "bbr")]


def scenario(case: Case, grows_to: GrowsTo = "nothing") -> dict[str, Any]:
    """Return the scenario of a case.

    `grows_to`: what TCP's window grows to before a connection has all of its rate. The whole `transfer` takes a round trip for
    each doubling, as part of the link's delay; what the `link` holds is the correction `first_window_bytes` of a network.
    """
    limits, count = case.limits, len(case.up_bytes)

    def link(own: Sequence[float] | None, shared: float | None, sizes: Sequence[int]) -> dict[str, Any]:
        growths = [2 * limits.delay_s * max(0.0, float(np.log2(max(size, 1) / _FIRST_WINDOW))) for size in sizes]
        delays = [limits.delay_s + (more if grows_to == "transfer" else 0.0) for more in growths]
        table: dict[str, Any] = {"delay": {"kind": "constant", "value_s": delays}}
        if own is not None:
            table["bandwidth_bytes_per_s"] = list(own)
        if shared is not None:
            table["shared"] = {"bandwidth_bytes_per_s": shared}
        return table

    down = [case.down_bytes] * count
    tables: dict[str, Any] = {
        "name": "sockets",
        "rounds": case.rounds,
        "clients": {"count": count},
        "server": {"per_round": count},
        "policy": {"kind": "random"},
        "payload": {"up_bytes": list(case.up_bytes), "down_bytes": case.down_bytes},
        "compute": {"delay": {"kind": "constant", "value_s": list(case.train_s)}},
        "uplink": link(limits.up, limits.shared_up, case.up_bytes),
    }
    tables["downlink"] = link(limits.down, limits.shared_down, down) if case.down_bytes else {}
    if grows_to == "link":
        assert limits.up is not None
        rates = enumerate(limits.up)
        cables = [{"a": "s", "b": f"c{i}", "delay_s": limits.delay_s, "bandwidth_bytes_per_s": rate} for i, rate in rates]
        names = [f"c{client}" for client in range(count)]
        corrections = {"first_window_bytes": float(_FIRST_WINDOW)}
        tables["network"] = {"server": "s", "clients": names, "links": cables, "corrections": corrections}
        return {name: table for name, table in tables.items() if name not in ("uplink", "downlink")}
    if not case.down_bytes and limits.delay_s:
        tables["downlink"] = {"delay": {"kind": "constant", "value_s": limits.delay_s}}
    return tables


def predict(case: Case, grows_to: GrowsTo = "nothing") -> tuple[float, float]:
    """Return the seconds to a round's last update, and the mean over its updates, as netsim predicts them."""
    run = netsim.run(scenario(case, grows_to))
    starts = run.clients["round"].map(run.rounds.set_index("round")["start_s"])
    seconds = (run.clients["upload_end_s"] - starts).groupby(run.clients["round"])
    return float(seconds.max().mean()), float(seconds.mean().mean())


def errors(case: Case, repeats: int) -> tuple[list[float], list[float]]:
    """Return predicted over measured - 1 of each repeat: of the last update of a round, and of the mean over its updates."""
    last, mean = predict(case)
    found = [np.array(measure(case)) for _ in range(repeats)]
    return [last / times.max(axis=1).mean() - 1.0 for times in found], [mean / times.mean() - 1.0 for times in found]


def _percent(values: Sequence[float]) -> str:
    """Return the mean of `values` with its 95 % interval, in percent."""
    mean = 100.0 * float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.1f} %"
    reach = 100.0 * float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return f"{mean:+.1f} ± {reach:.1f} %"


def conditions() -> str:
    """Return the conditions of the machine that errors may depend on: kernel, cores, load, and the priority of this process."""
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    system = f"{os.uname().sysname} {os.uname().release}"
    return f"{system}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at the beginning; priority {priority}"


HEADER = ["case", "control", "last update", "mean of updates", "start-up of the transfer", "start-up of the link", "load"]
"""Errors of a row: as netsim predicts, and of the mean of updates with two corrections for the start of a connection."""
REPEATS = 5


def measure_rows(repeats: int) -> Iterator[list[str]]:
    """Return an iterator that measures case after case: errors with intervals, and the load in the minute in which it ended.

    SystemExit, before anything is measured: the machine cannot. From here on SIGTERM ends the process as an exception does.
    """
    reason = why_not()
    if reason is not None:
        sys.exit(f"cannot be measured here: it {reason}")
    # Namespaces are removed as the stack unwinds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return (_row(case, repeats) for case in cases())


def _row(case: Case, repeats: int) -> list[str]:
    """Measure a case and return its row of the table."""
    last, mean = errors(case, repeats)
    started = ["", ""]
    if case.limits.delay_s:
        plain, growths = predict(case)[1], (predict(case, "transfer")[1], predict(case, "link")[1])
        started = [_percent([(1.0 + error) * growth / plain - 1.0 for error in mean]) for growth in growths]
    return [case.name, case.control, _percent(last), _percent(mean), *started, f"{os.getloadavg()[0]:.1f}"]


def main(repeats: int) -> None:
    """Measure every case and print the table of the page."""
    rows = measure_rows(repeats)
    print(f"{conditions()}; {repeats} repeats")
    print(f"| {' | '.join(HEADER)} |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)
