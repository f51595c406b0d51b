"""A user's models.py, analysis/, ...: one message that names both paths and the ways out, from the command and from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netsim.collisions import FOLDERS
from scenarios.registry.kinds import load_own
from scenarios.schema.errors import UserError

ROOT = Path(__file__).parents[1]
COMMAND = "import sys; sys.argv = ['netsim', 'list']; from netsim import _command; _command()"


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that looks in `folder` first, as one started there does, and then where netsim is."""
    code = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)


def theirs(name: str, shape: str, folder: Path) -> Path:
    if shape == "module":
        (folder / f"{name}.py").write_text("", encoding="utf-8")
        return folder / f"{name}.py"
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("", encoding="utf-8")
    return folder / name / "__init__.py"


@pytest.mark.parametrize(("name", "shape"), [("models", "module"), ("analysis", "package"), ("scenarios", "module")])
def test_both_paths_and_the_ways_out_are_told(name: str, shape: str, tmp_path: Path) -> None:
    hidden_by = theirs(name, shape, tmp_path)
    from_python = python("import netsim", tmp_path)
    assert from_python.returncode == 1
    last = from_python.stderr.splitlines()[-1]
    assert last.startswith("netsim.collisions.NameCollisionError: ")
    from_command = python(COMMAND, tmp_path)
    assert from_command.returncode == 2
    assert from_command.stdout == ""
    (told,) = from_command.stderr.splitlines()
    assert last.endswith(told)
    for word in (repr(name), str(hidden_by), str(ROOT / name / "__init__.py"), f"my_{name}", "another folder", "PYTHONPATH"):
        assert word in told


def test_it_is_an_import_error(tmp_path: Path) -> None:
    theirs("models", "module", tmp_path)
    code = "try:\n    import netsim\nexcept ImportError as error:\n    print(error.name, error.path)"
    assert python(code, tmp_path).stdout.split() == ["models", str(tmp_path / "models.py")]


def test_one_that_is_imported_already_is_told_too(tmp_path: Path) -> None:
    theirs("analysis", "module", tmp_path)
    done = python(f"import analysis; sys.path.remove({str(tmp_path)!r}); import netsim", tmp_path)
    assert str(tmp_path / "analysis.py") in done.stderr.splitlines()[-1]


def test_other_names_and_folders_without_code_are_nobodys_business(tmp_path: Path) -> None:
    for name in FOLDERS:
        theirs(f"my_{name}", "module", tmp_path)
        (tmp_path / name).mkdir()  # results, checkpoints: no package, and netsim's own is found all the same
    done = python("import netsim, analysis.files, models.errors, scenarios.arguments; print(netsim.__name__)", tmp_path)
    assert done.stdout == "netsim\n", done.stderr


@pytest.mark.parametrize("shape", ["module", "package"])
def test_a_kind_in_a_module_that_netsims_hides(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = theirs("models", shape, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as told:
        load_own("models:Mine")
    for word in (str(hidden), str(ROOT / "models" / "__init__.py"), "rename yours, such as my_models"):
        assert word in str(told.value)
