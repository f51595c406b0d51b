"""The check of training on a GPU, on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks import gpu_check


@pytest.mark.slow
def test_the_cpu_gives_its_own_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cpu", "--rounds", "1", "--only", "W (digits)"]) == 0
    assert "W (digits)" in capsys.readouterr().out


def test_models_that_differ_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def make(device: str, made: list[str] = []) -> gpu_check.Workload:  # noqa: B006
        made.append(device)
        work = gpu_check.workload_w()
        # The second one starts elsewhere, as if it had been trained wrongly.
        work.learner.replace_model(work.learner.model * len(made))
        return work

    monkeypatch.setitem(gpu_check.SIZES, "W (digits)", make)
    assert gpu_check.main(["--device", "cpu", "--rounds", "1", "--only", "W (digits)"]) == 1
    assert "differ by more than 0.01" in capsys.readouterr().err


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
