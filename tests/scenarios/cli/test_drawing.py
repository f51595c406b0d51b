"""The options of commands that draw: the same everywhere, checked before anything is run, and none that does nothing."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

from analysis.api import open_run
from scenarios.cli.drawing import Drawing, Looks
from scenarios.cli.main import app
from tests.helpers.result_folders import ROUNDS, write_sweep
from tests.helpers.small_scenario import Shell

LOOK = ("--figures", "svg", "--size", "4x3", "--title", "", "--no-note", "--font-size", "7")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def check_figures(folder: Path, *formats: str) -> None:
    """Check the figures in `folder`: of all formats, in the size, without title and note."""
    files = {path.name for path in folder.iterdir() if path.suffix not in (".csv", ".parquet")}
    names = {name.partition(".")[0] for name in files}
    assert {"latency", "leak"} <= names
    assert files == {f"{name}.{format}" for name in names for format in formats}
    text = (folder / "leak.svg").read_text(encoding="utf-8")
    assert 'width="288pt" height="216pt"' in text
    assert "Largest privacy leak" not in text
    assert "interval" not in text


def test_all_commands_that_draw_have_the_same_options() -> None:
    options = {command.callback.__name__: command.callback for command in app.registered_commands if command.callback}
    for names, kind in ((("figure", "report", "compare", "sweep", "reproduce"), Drawing), (("breakpoints",), Looks)):
        assert len(fields(kind)) >= 5
        for name in names:
            parameters = inspect.signature(options[name]).parameters
            assert "drawing" not in parameters
            for field in fields(kind):
                (option,) = parameters[field.name].annotation.__metadata__
                assert isinstance(option, typer.models.OptionInfo)
                # Of reproduce, --size says how much is run.
                if (name, field.name) == ("reproduce", "figure_size"):
                    assert option.default == "--figure-size"
                else:
                    assert vars(option) == vars(get_type_hints(kind, include_extras=True)[field.name].__metadata__[0])


@pytest.mark.slow
@pytest.mark.draws
def test_a_sweep_draws_its_figures_as_it_is_told(shell: Shell) -> None:
    assert shell("sweep", shell.file, "--out", shell.out, "--quiet", "--jobs", "1", "--figures", "pdf", *LOOK)[0] == 0
    check_figures(shell.out / "figures", "svg", "pdf")
    code, _, error = shell("sweep", shell.file, "--out", shell.folder / "other", "--quiet", "--size", "wide")
    assert code == 2
    assert "'wide': the size of figures must be width x height in inches, such as 3.5x2.6" in error
    code, _, error = shell("sweep", shell.file, "--out", shell.folder / "other", "--quiet", "--no-figures", "--window", "5")
    assert (code, error.strip()) == (2, "--window: no figure is drawn; leave out --no-figures")
    assert not (shell.folder / "other").exists()


@pytest.mark.slow
@pytest.mark.draws
def test_a_comparison_draws_its_figures_as_it_is_told(shell: Shell) -> None:
    assert shell.sweep()[0] == 0
    out = shell.folder / "compared"
    assert shell("compare", shell.out, "--out", out, *LOOK)[0] == 0
    check_figures(out, "svg")


def test_options_of_figures_that_are_not_drawn_or_will_not_do_are_refused(shell: Shell) -> None:
    write_sweep(shell.out, {"a": {1: ROUNDS}, "b": {1: ROUNDS}}, baseline="a")
    code, _, error = shell("compare", shell.out, "--title", "x", "--figures", "pdf")
    assert (code, error.strip()) == (2, "--title, --figures: no figure is drawn; name a folder for figures with --out")
    assert "--font: no figure is drawn" in shell("breakpoints", shell.out, "--font", "DejaVu Serif")[2]
    code, _, error = shell("compare", shell.out, "--out", shell.folder / "none", "--font-size", "1")
    assert code == 2
    assert error.startswith("--font-size: font_size = 1.0: must be from 3 to 40")
    for command, option in (("compare", "--size"), ("reproduce", "--figure-size")):
        code, _, error = shell(command, shell.out, "--out", shell.folder / "none", option, "0x3")
        assert (code, error.strip()) == (2, f"{option} 0x3: width_in = 0.0: must be from 1 to 40")
    assert not (shell.folder / "none").exists()


def test_smoothing_is_of_the_table_and_the_figure_alike(shell: Shell) -> None:
    write_sweep(shell.folder / "s", {"a": {1: ROUNDS}, "b": {1: ROUNDS}}, baseline="a", target=0.5)
    # 0.2 at 1 s, 0.6 at 6 s, 0.4 at 10 s: from 4 to 10 s it is 0.5 on average.
    plain, smooth = (
        shell("compare", shell.folder / "s", "--metric", "target_s", *options)[1] for options in ((), ("--smoothing-s", "6"))
    )
    assert (" 6.00 " in plain, "10.00 " in plain) == (True, False)
    assert (" 6.00 " in smooth, "10.00 " in smooth) == (False, True)


def test_a_report_names_the_options_of_its_figures(shell: Shell) -> None:
    assert shell.run()[0] == 0
    code, _, _ = shell("report", shell.out, "--size", "5x3", "--font-size", "8", "--title", "One run", "--no-note")
    assert code == 0
    page = (shell.out / "report" / "report.html").read_text(encoding="utf-8")
    command = "netsim report out --size 5x3 --font-size 8 --title 'One run' --no-note"
    assert command in page.replace("&#x27;", "'").replace("&#39;", "'")
    assert open_run(shell.out).summary["rounds"] == 6
