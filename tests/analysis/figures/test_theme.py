"""Colours and line styles are told apart: by eyes of every colour vision, and in grey."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.figures.settings import MOST_VARIANTS
from analysis.figures.style import line_style
from analysis.figures.theme import DASHES, PALETTE

VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Matrices on linear RGB that show what eyes of each colour vision see (Machado, Oliveira and Fernandes 2009, severity 1.0)."""


def oklab(colours: tuple[str, ...], vision: str) -> np.ndarray:
    """Return the colours (n, 3) in Oklab (Ottosson 2020), in which equal distances look equally different."""
    srgb = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours]) / 255.0
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.asarray(VISIONS[vision]).T, 0.0, 1.0)
    to_cones = [[0.41222147, 0.53633254, 0.05144599], [0.21190350, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.62997870]]
    to_lab = [[0.21045426, 0.79361779, -0.00407205], [1.97799850, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]]
    return np.asarray(np.cbrt(seen @ np.transpose(to_cones)) @ np.transpose(to_lab))


def least_distance(colours: tuple[str, ...]) -> float:
    """Return the least distance of two colours, over all kinds of colour vision."""
    points = np.stack([oklab(colours, vision) for vision in VISIONS])
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    return float(distances[:, ~np.eye(len(colours), dtype=bool)].min())


def test_oklab_of_white_and_red() -> None:
    # Ottosson's own values: white is (1, 0, 0), and sRGB red about (0.628, 0.225, 0.126).
    assert oklab(("#FFFFFF", "#FF0000"), "normal") == pytest.approx(np.array([[1, 0, 0], [0.628, 0.225, 0.126]]), abs=1e-3)


def test_every_variant_of_a_figure_has_a_colour_of_its_own() -> None:
    assert len(set(PALETTE)) == len(PALETTE) >= MOST_VARIANTS


def test_the_colours_are_told_apart_as_well_as_those_of_okabe_and_ito() -> None:
    assert least_distance(PALETTE) >= least_distance(PALETTE[:7]) > 0.07


def test_no_two_lines_have_one_colour_and_one_dash() -> None:
    assert len({str(line_style(i)) for i in range(len(PALETTE) * len(DASHES))}) == 60
