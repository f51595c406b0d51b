"""The gallery shows every figure, each with its command above it."""

from __future__ import annotations

import re

from analysis.catalogue import CAPTIONS
from tests.gallery import IMAGES, PAGE

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_figure_of_the_catalogue_is_in_the_gallery():
    drawn = re.findall(r"^netsim figure runs/\S+ (\w+) .*--out (\w+)\.png$", TEXT, re.MULTILINE)
    assert sorted(name for name, file in drawn if name == file) == sorted(CAPTIONS)


def test_every_picture_stands_below_the_command_that_draws_it():
    for picture in re.findall(r"\(images/gallery/([\w-]+\.png)\)", TEXT):
        above = TEXT[: TEXT.index(f"images/gallery/{picture}")]
        assert picture in above.rsplit("```", 2)[-2], f"{picture}: the block above does not write it"
        assert (IMAGES / picture).exists(), f"{picture}: run `make gallery`"


def test_no_picture_is_left_over():
    assert {image.name for image in IMAGES.iterdir()} == set(re.findall(r"images/gallery/([\w-]+\.png)", TEXT))
