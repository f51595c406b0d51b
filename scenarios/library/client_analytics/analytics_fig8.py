"""Client analytics (Tong et al. 2024), figure 8: the beliefs of clients 0 to 4, slot by slot, averaged over seeds.

    python -m scenarios.library.client_analytics.analytics_fig8 [FOLDER] [--seeds N] [KEY=VALUE ..]

Runs `analytics_fig8.toml` once a seed, 1 .. N (10), with the keys changed as by `netsim run --set`; a run each goes to FOLDER.
Beliefs are b_n as each client computed it in the consensus phase of the slot (eq. 4); no table of a run holds them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from analysis.statistics import mean_interval
from netsim.core.protocols import FloatArray
from scenarios.build.simulation import build
from scenarios.runs.reading import load
from scenarios.runs.run import simulate

CLIENTS = 5
SLOTS = (1, 2, 3, 5, 10, 20, 50, 100, 200)


def beliefs(folder: Path, seed: int, settings: list[str]) -> FloatArray:
    """(slots, K) beliefs of a run with `seed`, run into `folder`."""
    scenario = load(Path(__file__).with_suffix(".toml"), settings).model_copy(update={"seed": seed})
    built = build(scenario)
    server: Any = built.simulation.server
    if not scenario.server.peer_to_peer:
        raise ValueError(f"server.kind = {scenario.server.kind!r}: must be fl-da, where clients have beliefs")
    heard: list[FloatArray] = []
    server.on_consensus = lambda slot, outcome: heard.append(outcome.beliefs.copy())
    simulate(built, scenario, folder / f"seed-{seed}", overwrite=True)
    return np.array(heard)


def main(folder: Path, seeds: int, settings: list[str]) -> None:
    """Run all seeds; print mean and 95 % interval of each client's belief at some slots, and of the other clients' mean."""
    found = np.array([beliefs(folder, seed, settings) for seed in range(1, seeds + 1)])
    print("slot  " + "".join(f"{f'client {n}':<16}" for n in range(CLIENTS)) + "others")
    for slot in (s for s in SLOTS if s <= found.shape[1]):
        now = found[:, slot - 1]
        columns = [mean_interval(now[:, n]) for n in range(CLIENTS)] + [mean_interval(now[:, CLIENTS:].mean(1))]
        print(f"{slot:>4}  " + "".join(f"{f'{c.mean:.4f} ± {c.half_width:.4f}':<16}" for c in columns))
    print(f"runs: {folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Beliefs of BP-UCB slot by slot.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/analytics_fig8"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_intermixed_args()
    main(given.folder, given.seeds, given.settings)
