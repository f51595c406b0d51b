"""Options shared by all commands that draw; each is defined once."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis import Bound
    from analysis.figures.settings import FigureSettings, ImageFormat, Look


class ImageOption(StrEnum):
    """Format of figures."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


class OverOption(StrEnum):
    """Abscissa of figures over the course of a run."""

    ROUNDS = "rounds"
    SECONDS = "seconds"


Formats = Annotated[
    list[ImageOption] | None, typer.Option("--figures", help="Format of figures; may be repeated; default: png.")
]


_ALSO_FOR_TABLES = ("smoothing_s",)
"""Options that also change tables, so that they are allowed where no figure is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Look of figures."""

    figure_size: Annotated[
        str | None, typer.Option("--size", metavar="WxH", help="Size of figures in inches, such as 3.5x2.6.")
    ] = None
    font: Annotated[str | None, typer.Option("--font", help="Font family of figures, one that Matplotlib finds.")] = None
    font_size: Annotated[
        float | None, typer.Option("--font-size", help="Points of the letters of axes; others in proportion.")
    ] = None
    title: Annotated[str | None, typer.Option("--title", help="Another title of figures; an empty one: none.")] = None
    note: Annotated[
        bool, typer.Option(" /--no-note", help="Leave out what figures say at their foot.", show_default=False)
    ] = True

    def refuse_unused(self, remedy: str, *, formats: bool = False) -> None:
        """Raise UserError if an option is given that only figures use. Called where no figure is drawn.

        `remedy`: end of the message. `formats`: True if `--figures` is given.
        """
        only_figures = [field for field in fields(self) if field.name not in _ALSO_FOR_TABLES]
        options = [self._option(field.name) for field in only_figures if getattr(self, field.name) != field.default]
        if formats:
            options.append("--figures")
        if options:
            raise UserError(f"{', '.join(options)}: no figure is drawn; {remedy}")

    def _option(self, field: str) -> str:
        """Return the name of a field on the command line, such as --size."""
        # `typer.Option("--size")` in an annotation keeps the name as its default; a flag's name may be " /--no-note".
        option: str = get_type_hints(type(self), include_extras=True)[field].__metadata__[0].default
        return option.strip(" /")

    def look(self) -> Look:
        """Return the look as `analysis` takes it; raises UserError for a wrong size and for a font that this machine lacks."""
        from analysis.figures.settings import Look

        # Arguments of `Look` by the option that gives them, for the message about one that `Look` refuses.
        options: dict[str, dict[str, Any]] = {}
        if self.font is not None:
            options[self._option("font")] = {"font": self.font}
        if self.font_size is not None:
            options[self._option("font_size")] = {"font_size": self.font_size}
        if self.figure_size is not None:
            match = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", self.figure_size)
            if match is None:
                raise UserError(f"{self.figure_size!r}: the size of figures must be width x height in inches, such as 3.5x2.6")
            size = {"width_in": float(match[1]), "height_in": float(match[2])}
            options[f"{self._option('figure_size')} {self.figure_size}"] = size
        for option, values in options.items():
            try:
                Look(**values)
            except ValueError as error:
                raise UserError(f"{option}: {error}") from error
        settings = {name: value for values in options.values() for name, value in values.items()}
        return Look(title=self.title, notes=self.note, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing(Looks):
    """Look of figures, and the content of figures of finished runs."""

    smoothing_s: Annotated[
        float | None, typer.Option("--smoothing-s", min=0.0, help="Average accuracies over so many simulated seconds.")
    ] = None
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="Average latencies and age variances over so many rounds.")
    ] = None
    over: Annotated[
        OverOption | None,
        typer.Option(
            "--over", help="Draw the course of runs over rounds or seconds; default: rounds where all variants share them."
        ),
    ] = None
    round: Annotated[
        int | None,
        typer.Option("--round", min=1, help="The round that is shown client by client; default: one of median length."),
    ] = None

    def settings(
        self,
        *,
        target_accuracy: float | None = None,
        horizon_s: float | None = None,
        regret_bounds: Sequence[Bound] = (),
        aoi_bounds: Sequence[Bound] = (),
    ) -> FigureSettings:
        """Return the settings as `analysis` takes them; raises UserError for a size or font that cannot be used."""
        from analysis.figures.settings import FigureSettings

        return FigureSettings(
            target_accuracy=target_accuracy,
            smoothing_s=self.smoothing_s,
            horizon_s=horizon_s,
            window=self.window,
            over=None if self.over is None else self.over.value,
            round=self.round,
            regret_bounds=regret_bounds,
            aoi_bounds=aoi_bounds,
            look=self.look(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperDrawing(Drawing):
    """Drawing options of a command in which --size has another meaning."""

    figure_size: Annotated[
        str | None, typer.Option("--figure-size", metavar="WxH", help="Size of figures in inches, such as 3.5x2.6.")
    ] = None


def formats_of(formats: Sequence[ImageOption] | None) -> list[ImageFormat]:
    """Return the formats of figures by the option `--figures`; PNG without it."""
    return [option.value for option in formats or [ImageOption.PNG]]


def drawing(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: replace its parameter `drawing`, a dataclass of options, by one parameter for each field.

    Typer reads options from a function's signature and annotations, so both are set here; the fields become options.
    """
    hints = get_type_hints(function, include_extras=True)
    options_class = hints.pop("drawing")
    names = [field.name for field in fields(options_class)]

    @functools.wraps(function)
    def run_with_drawing(**arguments: Any) -> None:
        function(drawing=options_class(**{name: arguments.pop(name) for name in names}), **arguments)

    hints |= {name: hint for name, hint in get_type_hints(options_class, include_extras=True).items() if name in names}
    own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "drawing"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(field.name, keyword, default=field.default) for field in fields(options_class)]
    run_with_drawing.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    run_with_drawing.__annotations__ = hints
    return run_with_drawing
