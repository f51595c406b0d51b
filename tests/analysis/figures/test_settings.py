"""Looks, settings and formats of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.catalogue import draw, draw_all
from analysis.figures.settings import FigureSettings, Look
from analysis.figures.style import image_of, save_figure, svg_text
from tests.helpers.result_folders import run_of

pytestmark = pytest.mark.draws


def test_a_look_is_what_it_says(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    look = Look(width_in=3.5, height_in=2.5, font="DejaVu Serif", font_size=7.0, title="Mine", notes=False)
    figure = draw(run, "leak", look=look)
    assert figure.get_size_inches().tolist() == [3.5, 2.5]
    assert figure.legends[0].get_title().get_text() == "Mine"
    assert figure.get_supxlabel() == ""
    label = figure.axes[0].xaxis.label
    assert (label.get_fontsize(), label.get_fontfamily()[0]) == (7.0, "DejaVu Serif")
    untitled = draw(run, "leak", look=Look(title=""))
    assert untitled.legends[0].get_title().get_text() == ""
    assert untitled.heading == "Privacy leak"


def test_labels_of_narrow_panels_are_folded(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    plain = draw(run, "latency")
    assert plain.axes[1].get_xlabel() == "share of rounds at or below"
    for width_in in (3.5, 5.0):
        figure = draw(run, "latency", look=Look(width_in=width_in, height_in=3.2))
        figure.draw_without_rendering()
        assert figure.axes[1].get_xlabel().count("\n") > 0
        assert figure.axes[1].get_xlabel().replace("\n", " ") == "share of rounds at or below"
        assert figure.axes[1].xaxis.label.get_window_extent().x1 <= figure.bbox.x1
        assert figure.axes[0].get_xlabel() == plain.axes[0].get_xlabel()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width_in": 0.5}, "width_in = 0.5: must be from 1 to 40"),
        ({"height_in": 400.0}, "height_in = 400.0: must be from 1 to 40"),
        ({"font_size": float("nan")}, "font_size = nan: must be from 3 to 40"),
        ({"font": "DejaVu Serff"}, "font = 'DejaVu Serff': this machine has no such font; did you mean 'DejaVu Serif'"),
    ],
)
def test_a_look_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Look(**given)


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="window = 0: must be >= 1 round"):
        FigureSettings(window=0)
    with pytest.raises(ValueError, match="round = 0: must be >= 1"):
        FigureSettings(round=0)  # the figure of a graph took it for the last slot
    with pytest.raises(ValueError, match=r"target_accuracy = 60: must be in \[0, 1\]"):
        FigureSettings(target_accuracy=60)
    with pytest.raises(ValueError, match=r"smoothing_s = -1\.0: must be >= 0 s"):
        FigureSettings(smoothing_s=-1.0)
    with pytest.raises(ValueError, match="figure = 'leek': there is no such figure; did you mean 'leak'"):
        draw(run_of(tmp_path / "a"), "leek")


@pytest.mark.slow
def test_formats_hold_no_date_and_are_the_same_twice(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    written = draw_all(run, tmp_path / "f", formats=("png", "svg", "pdf"))
    assert {path.suffix for path in written} == {".png", ".svg", ".pdf"}
    heads = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for path in written:
        content = path.read_bytes()
        assert content.startswith(heads[path.suffix])
        assert b"Matplotlib" not in content.split(b"<style")[0].replace(b"Created with matplotlib", b"")
        assert b"dc:date" not in content and b"CreationDate" not in content  # noqa: PT018
    for format in ("png", "svg", "pdf"):
        assert image_of(draw(run, "leak"), format) == image_of(draw(run, "leak"), format)
    assert svg_text(draw(run, "leak")) == svg_text(draw(run, "leak"))
    with pytest.raises(ValueError, match=r"x\.gif: a figure is written as \.png, \.svg, \.pdf"):
        save_figure(draw(run, "leak"), tmp_path / "x.gif")
