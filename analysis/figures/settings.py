"""Settings of figures: their look and their content. Making them needs no Matplotlib."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

from analysis.figures.theme import RC
from analysis.statistics.arrays import FloatArray
from analysis.suggestions import did_you_mean
from netsim.core.user_warnings import warn_user

Over = Literal["rounds", "seconds"]
"""Horizontal axis of figures over the course of a run."""
ImageFormat = Literal["png", "svg", "pdf"]
MOST_VARIANTS = 12
"""Most variants that one figure shows; of more, this many at equal steps through their list."""
OWN_FONT = "DejaVu Sans"
"""Font that comes with Matplotlib, and so is the same everywhere."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a figure: its size, its letters, its title.

    Raises:
        ValueError: a size or a font size out of bounds, or a font that this machine does not have.
    """

    width_in: float | None = None
    """Inches; None: the figure's own width."""
    height_in: float | None = None
    font: str = OWN_FONT
    """A font family that Matplotlib finds."""
    font_size: float = 10.5
    """Points, of labels; titles are larger and notes smaller in proportion."""
    title: str | None = None
    """None: the figure's own; empty: none."""
    notes: bool = True
    """True if a note at the foot states what was averaged."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("width_in", self.width_in, 1.0, 40.0),
            ("height_in", self.height_in, 1.0, 40.0),
            ("font_size", self.font_size, 3.0, 40.0),
        ):
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} = {value!r}: must be from {least:g} to {most:g}")
        if self.font != OWN_FONT:
            _check_font(self.font)

    def points(self, share: float) -> float:
        """Return a font size in points: `share` times that of labels."""
        return share * self.font_size

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Return a context in which Matplotlib has this project's settings; the user's come back at its end."""
        import matplotlib

        with matplotlib.rc_context(), warnings.catch_warnings():
            # `warn_of_missing_letters` warns once: Matplotlib would warn for every letter, each time it reads a text.
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
            math_logger = logging.getLogger("matplotlib.mathtext")
            level = math_logger.level
            math_logger.setLevel(logging.ERROR)
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(RC)
            matplotlib.rcParams.update({"font.family": [self.font, OWN_FONT], "font.size": self.font_size})
            try:
                yield
            finally:
                math_logger.setLevel(level)


PLAIN = Look()
"""The look that figures have by default."""


@cache
def warn_of_missing_letters(labels: tuple[str, ...], font: str = OWN_FONT) -> None:
    """Warn if `labels` have letters that neither `font` nor `OWN_FONT` has. Cached: the same labels are warned of once."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    known: set[int] = set()
    for family in (font, OWN_FONT):
        known |= set(FT2Font(font_manager.findfont(family)).get_charmap())
    lacking = {
        label: "".join(dict.fromkeys(letter for letter in label if not letter.isspace() and ord(letter) not in known))
        for label in labels
    }
    boxes = "; ".join(f"{label!r}: {letters}" for label, letters in lacking.items() if letters)
    if boxes:
        fonts = " and ".join(dict.fromkeys((font, OWN_FONT)))
        words = f"figures: letters that {fonts} cannot show are drawn as boxes, of {boxes}; name a font that has them (--font)"
        warn_user(words)


def _check_font(font: str) -> None:
    """Raise ValueError unless this machine has `font`."""
    from matplotlib import font_manager

    known = sorted({entry.name for entry in font_manager.fontManager.ttflist} | set(font_manager.font_family_aliases))
    if font not in known:
        raise ValueError(f"font = {font!r}: this machine has no such font; {did_you_mean(font, known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSettings:
    """Settings of figures: the data that they show, and their look."""

    target_accuracy: float | None = None
    """Drawn as a line with its hits; None: that of the sweep, where there is one."""
    smoothing_s: float | None = None
    """Simulated seconds over which accuracies are averaged; None: as in the sweep."""
    horizon_s: float | None = None
    """Simulated seconds at which times to the target are cut, as in `compare`; None: the end of the shortest run."""
    window: int | None = None
    """Rounds over which latencies and age variances are averaged; None: by the length of the run."""
    over: Over | None = None
    """Horizontal axis of figures over the course of a run; None: rounds where variants share them, else seconds."""
    round: int | None = None
    """Round shown client by client; None: a round of median length."""
    regret_bounds: Sequence[Bound] = ()
    """Bounds to draw beside regrets."""
    aoi_bounds: Sequence[Bound] = ()
    """Bounds to draw beside AoI regrets."""
    look: Look = PLAIN

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window = {self.window!r}: must be >= 1 round")
        if self.round is not None and self.round < 1:
            raise ValueError(f"round = {self.round!r}: must be >= 1")
        if self.target_accuracy is not None and not 0.0 <= self.target_accuracy <= 1.0:
            raise ValueError(f"target_accuracy = {self.target_accuracy!r}: must be in [0, 1]")
        if self.smoothing_s is not None and not self.smoothing_s >= 0.0:
            raise ValueError(f"smoothing_s = {self.smoothing_s!r}: must be >= 0 s")


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the expected AoI regret."""

    label: str
    constants: str
    """Constants of the bound in words, for the note at the foot of the figure."""
    values: Callable[[FloatArray], FloatArray]
    """Function from numbers of rounds (n,) to bounds (n,) for runs of that length; NaN: no bound."""
