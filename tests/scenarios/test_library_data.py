"""The data files that come with the scenarios are what their scripts make."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from models.fl.data.own_data import StandInWarning, read_own
from scenarios.library.examples import bandwidth_trace, device_classes
from scenarios.library.examples.resnet_on_cifar import images


@pytest.mark.parametrize("made_by", [bandwidth_trace, device_classes])
def test_a_data_file_is_what_its_script_makes(made_by: ModuleType, tmp_path: Path) -> None:
    made_by.write(tmp_path / "made.csv")
    assert (tmp_path / "made.csv").read_text(encoding="utf-8") == made_by.FILE.read_text(encoding="utf-8")


def test_made_images_stand_in_for_missing_ones_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSIM_DATA", str(tmp_path))
    with pytest.warns(StandInWarning, match="set NETSIM_DATA"):
        train_x, train_y, test_x, test_y, classes = read_own(images)
    assert (train_x.shape, test_x.shape, classes) == ((2000, 3, 32, 32), (500, 3, 32, 32), 10)
    assert (set(train_y), set(test_y)) == (set(range(10)), set(range(10)))


def test_images_of_cifar_are_those_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    read = (*"abcd", 10)
    monkeypatch.setattr("scenarios.library.examples.resnet_on_cifar.require_files", lambda kind, root: None)
    monkeypatch.setattr("models.fl.data.datasets.read_published", lambda kind, root, download: read)
    assert images() == tuple("abcd")
