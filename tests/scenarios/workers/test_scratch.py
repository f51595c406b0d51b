"""Temporary folders are gone in the end, and where they cannot be removed the result counts."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

from scenarios.workers.scratch import temporary_folder


def test_a_temporary_folder_is_gone_with_its_block(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with temporary_folder(str(tmp_path)) as folder:
            (folder / "file").write_text("x", encoding="utf-8")
            assert folder.parent == tmp_path
        with pytest.raises(KeyError), temporary_folder(str(tmp_path)):
            raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_removed_is_named_and_nothing_else_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "rmtree", fails)
    told = r"netsim-\w+: cannot be removed \(Input/output error\); remove it yourself"
    with pytest.warns(UserWarning, match=told), temporary_folder(str(tmp_path)) as folder:
        pass
    assert folder.is_dir()
