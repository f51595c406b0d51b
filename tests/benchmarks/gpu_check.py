"""Does training on a GPU give the results of the CPU, how fast is it, and how much memory does it take?

    python -m tests.benchmarks.gpu_check [--device cuda] [--rounds 3]

Three sizes: W (a small network on digits), a CNN on 28x28 and a residual network on 32x32. For each, the same rounds are trained
on the CPU and on the device, from the same weights and samples. Exit code 1 if both models differ by more than `TOLERANCE`,
2 if there is no such device.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from models.fl.networks.kinds import resnet18
from models.fl.training.losses import CrossEntropy
from tests.benchmarks.learning_workloads import Workload, cnn_of, made, workload_w

TOLERANCE = 0.01
"""Largest distance between the two models, as a share of the distance that training has moved the CPU's.

GPUs sum in another order, and may multiply with 10 bits of mantissa in convolutions (TF32): a step then differs by some 1e-3.
"""


def residual(device: str, a_round: int = 10) -> Workload:
    """Return rounds of ResNet-18 with group normalisation on made images of 3x32x32."""
    return Workload(
        dataset=made((3, 32, 32), 600),
        make=lambda: resnet18((3, 32, 32), 10, seed=0, norm="group"),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=a_round,
        a_round=a_round,
        steps=2,
        batch=20,
        device=device,
    )


SIZES: dict[str, Callable[[str], Workload]] = {
    "W (digits)": workload_w,
    "CNN, 1x28x28": lambda device: cnn_of((1, 28, 28), device=device)(),
    "ResNet-18, 3x32x32": residual,
}


class Checked(NamedTuple):
    """What came of one size."""

    difference: float
    """Distance of the two models over the distance that training moved the CPU's."""
    cpu_s: float
    """Seconds a round on the CPU."""
    device_s: float
    """Seconds a round on the device."""
    plain_s: float
    """Seconds a round of a plain sequential loop on the device."""


def _seconds(action: Callable[[], float], rounds: int, device: str) -> float:
    """Return the seconds of one call, mean of `rounds`."""
    began = time.perf_counter()
    for _ in range(rounds):
        action()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / rounds


def check(make: Callable[[str], Workload], device: str, rounds: int) -> Checked:
    """Train `rounds` rounds on the CPU and on `device`, compare the models, then time further rounds."""
    works = make("cpu"), make(device)
    before = works[0].learner.model.clone()
    spent = [_seconds(work.learned_round, rounds, where) for work, where in zip(works, ("cpu", device), strict=True)]
    own, other = (work.learner.model.cpu().double() for work in works)
    difference = float((own - other).norm() / (own - before.double()).norm())
    if device != "cpu":
        # The first rounds chose kernels and filled caches.
        spent[1] = _seconds(works[1].learned_round, rounds, device)
    works[1].plain_round()
    return Checked(difference, spent[0], spent[1], _seconds(works[1].plain_round, rounds, device))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_check", description="Check training on a GPU.")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu compares the CPU with itself")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--only", nargs="+", default=list(SIZES), choices=list(SIZES), metavar="SIZE")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device here: nothing was checked; run this on a machine with one", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if asked.device == "cuda" else "the CPU itself"
    print(f"{name}; torch {torch.__version__}, {torch.get_num_threads()} threads on the CPU; {asked.rounds} rounds")
    print(f"{'size':<20}{'difference':>12}{'CPU':>11}{'device':>11}{'plain loop':>12}   CPU / device, plain loop / device")
    wrong = []
    for size in asked.only:
        found = check(SIZES[size], asked.device, asked.rounds)
        shown = "".join(f"{seconds * 1e3:>8.1f} ms" for seconds in found[1:3]) + f"{found.plain_s * 1e3:>9.1f} ms"
        ratios = f"{found.cpu_s / found.device_s:.2f}, {found.plain_s / found.device_s:.2f}"
        print(f"{size:<20}{found.difference:>12.1e}{shown}   {ratios}", flush=True)
        wrong += [size] if found.difference > TOLERANCE else []
    if asked.device == "cuda":
        for clients in (1, 5, 10, 20, 40):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            residual("cuda", clients).learned_round()
            print(f"ResNet-18, {clients} clients a round: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB at most")
    for size in wrong:
        print(f"{size}: the models differ by more than {TOLERANCE:g} of what training moved them", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
