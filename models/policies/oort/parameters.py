"""Oort's parameters: the paper's, and where its authors' code, FedScale and flame differ, theirs under their names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal, NamedTuple

from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import check_at_least, check_share


class _Preset(NamedTuple):
    exploration: float
    decay: float
    least_exploration: float
    clip: float
    cut_off: float
    percentile: float


PRESETS = {
    "paper": _Preset(0.9, 0.98, 0.2, 0.95, 0.95, 10.0),
    "oort": _Preset(0.9, 0.95, 0.2, 0.98, 0.7, 10.0),
    "fedscale": _Preset(0.9, 0.98, 0.3, 0.9, 0.05, 30.0),
    "flame": _Preset(0.9, 0.98, 0.2, 0.95, 0.95, 30.0),
}
"""Paper as recalled; the others read in their argument parsers."""


@dataclass(frozen=True, kw_only=True)
class OortParameters:
    """Raises ValueError for a value outside its range. What is left out (None) is that of the preset."""

    preset: Annotated[
        Literal["paper", "oort", "fedscale", "flame"], Doc("Whose defaults: the paper's, or those of a public implementation.")
    ] = "paper"
    exploration: Annotated[float | None, Doc("e of round 1, the share of clients that are explored.")] = None
    decay: Annotated[float | None, Doc("e is multiplied by it once a round.")] = None
    least_exploration: Annotated[float | None, Doc("e does not fall below it.")] = None
    clip: Annotated[float | None, Doc("Utilities are cut at this quantile of those seen.")] = None
    cut_off: Annotated[float | None, Doc("Drawn are clients whose score is at least this share of the last rank's.")] = None
    alpha: Annotated[float, Doc("Exponent of T/D_k, for clients slower than T; 0: time does not matter.")] = 2.0
    counted: Annotated[
        Literal["held", "trained"],
        Doc("Samples by which a client's utility is multiplied: those it trained on, each once, or those it holds."),
    ] = "trained"
    norm: Annotated[
        bool, Doc("Utilities are scaled to about [0, 1] by the least and the greatest seen, as in all public implementations.")
    ] = True
    temporal: Annotated[bool, Doc("Whether sqrt(0.1 ln t / L_k) is added, L_k the round of the last participation.")] = True
    explore: Annotated[
        Literal["speed", "size", "uniform"],
        Doc("How clients not seen yet are drawn: by 1 / expected latency before the first round, by data size, or uniformly."),
    ] = "speed"
    pacer: Annotated[
        Literal["percentile", "seconds", "none"],
        Doc("T is a percentile of all durations, moved as the code does; or seconds, which grow as in the paper; or none."),
    ] = "percentile"
    percentile: Annotated[float | None, Doc("With pacer percentile: where T starts, 0 to 100; at 100 there is no T.")] = None
    target_s: Annotated[float | None, Doc("With pacer seconds: T of the first rounds.")] = None
    step_s: Annotated[float | None, Doc("With pacer seconds: what T grows by.")] = None
    window: Annotated[int, Doc("W, the rounds over which the pacer sums utilities.")] = 20
    blacklist_after: Annotated[
        int | None,
        Doc("Clients that took part more often are not selected any more, at most 30 % of all, those who took part most."),
    ] = None
    credit_cut: Annotated[
        bool,
        Doc("Clients whose update did not arrive in time get the mean utility of those that did, though they have told nothing."),
    ] = False

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ParameterError("preset", self.preset, f"must be one of {', '.join(PRESETS)}")
        for name in ("exploration", "least_exploration", "clip", "cut_off", "decay"):
            check_share(name, self.of(name))
        check_at_least("alpha", self.alpha, 0)
        if self.counted not in ("held", "trained"):
            raise ParameterError("counted", self.counted, "must be held or trained")
        if self.explore not in ("speed", "size", "uniform"):
            raise ParameterError("explore", self.explore, "must be speed, size or uniform")
        if self.pacer not in ("percentile", "seconds", "none"):
            raise ParameterError("pacer", self.pacer, "must be percentile, seconds or none")
        if self.pacer != "percentile" and self.percentile is not None:
            raise ParameterError("percentile", self.percentile, f"must be left out, with pacer {self.pacer}")
        if not 0 <= self.of("percentile") <= 100:
            raise ParameterError("percentile", self.percentile, "must be between 0 and 100")
        for name in ("target_s", "step_s"):
            value = getattr(self, name)
            if (self.pacer == "seconds") != (value is not None):
                raise ParameterError(name, value, f"must be {'given' if value is None else 'left out'}, with pacer {self.pacer}")
            if value is not None:
                check_at_least(name, value, 0, strict=True)
        check_at_least("window", self.window, 1)
        if self.blacklist_after is not None:
            check_at_least("blacklist_after", self.blacklist_after, 1)

    def of(self, name: str) -> float:
        """A number as given, or the preset's."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}[name]
        return float(PRESETS[self.preset]._asdict()[name] if given is None else given)
