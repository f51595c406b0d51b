"""Oort's parameters: the paper's, and the variants of its authors' code, FedScale and flame, under their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import check_at_least, check_share


class _Preset(NamedTuple):
    """Numbers in which the implementations differ."""
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
"""Numbers of the paper as recalled; those of the implementations from their argument parsers."""


@dataclass(frozen=True, kw_only=True)
class OortParameters:
    """Parameters of Oort; None takes the number of the preset. Raises ParameterError for a value outside its range."""

    preset: Annotated[
        Literal["paper", "oort", "fedscale", "flame"], Doc("Source of the defaults: the paper, or a public implementation.")
    ] = "paper"
    exploration: Annotated[float | None, Doc("e of round 1, the share of clients that are explored.")] = None
    decay: Annotated[float | None, Doc("Factor of e from one round to the next.")] = None
    least_exploration: Annotated[float | None, Doc("Least value of e.")] = None
    clip: Annotated[float | None, Doc("Utilities are cut at this quantile of those seen.")] = None
    cut_off: Annotated[float | None, Doc("Least share of the last rank's score that a client needs to be drawn.")] = None
    alpha: Annotated[float, Doc("Exponent of T/D_k, for clients slower than T; 0: time does not matter.")] = 2.0
    counted: Annotated[
        Literal["held", "trained"],
        Doc("Samples by which a client's utility is multiplied: those it trained on, each once, or those it holds."),
    ] = "trained"
    norm: Annotated[
        bool, Doc("True: scale utilities to about [0, 1] by the least and the greatest seen, as all public implementations do.")
    ] = True
    temporal: Annotated[bool, Doc("True: add sqrt(0.1 ln t / L_k), L_k the round of the last participation.")] = True
    explore: Annotated[
        Literal["speed", "size", "uniform"],
        Doc("Weights of clients not seen yet: 1 / expected latency before the first round, data size, or uniform."),
    ] = "speed"
    pacer: Annotated[
        Literal["percentile", "seconds", "none"],
        Doc("T: a percentile of all durations that moves as in the code, seconds that grow as in the paper, or none."),
    ] = "percentile"
    percentile: Annotated[float | None, Doc("With pacer percentile: its first value, 0 to 100; at 100 there is no T.")] = None
    target_s: Annotated[float | None, Doc("With pacer seconds: T of the first rounds.")] = None
    step_s: Annotated[float | None, Doc("With pacer seconds: the seconds by which T grows.")] = None
    window: Annotated[int, Doc("W, the rounds over which the pacer sums utilities.")] = 20
    blacklist_after: Annotated[
        int | None,
        Doc("Participations after which a client is not selected any more; at most 30 % of all clients, the most frequent ones."),
    ] = None
    credit_cut: Annotated[
        bool,
        Doc("True: a client whose update did not arrive in time gets the mean utility of those that did."),
    ] = False

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ParameterError("preset", self.preset, f"must be one of {', '.join(PRESETS)}")
        for name in ("exploration", "least_exploration", "clip", "cut_off", "decay"):
            check_share(name, self.number(name))
        check_at_least("alpha", self.alpha, 0)
        if self.counted not in ("held", "trained"):
            raise ParameterError("counted", self.counted, "must be held or trained")
        if self.explore not in ("speed", "size", "uniform"):
            raise ParameterError("explore", self.explore, "must be speed, size or uniform")
        if self.pacer not in ("percentile", "seconds", "none"):
            raise ParameterError("pacer", self.pacer, "must be percentile, seconds or none")
        if self.pacer != "percentile" and self.percentile is not None:
            raise ParameterError("percentile", self.percentile, f"must be left out, with pacer {self.pacer}")
        if not 0 <= self.number("percentile") <= 100:
            raise ParameterError("percentile", self.percentile, "must be between 0 and 100")
        for name in ("target_s", "step_s"):
            value = getattr(self, name)
            is_needed = self.pacer == "seconds"
            if is_needed != (value is not None):
                advice = "given" if is_needed else "left out"
                raise ParameterError(name, value, f"must be {advice}, with pacer {self.pacer}")
            if value is not None:
                check_at_least(name, value, 0, strict=True)
        check_at_least("window", self.window, 1)
        if self.blacklist_after is not None:
            check_at_least("blacklist_after", self.blacklist_after, 1)

    def number(self, name: str) -> float:
        """Return the parameter `name`: the given number, or the preset's."""
        value = getattr(self, name)
        if value is None:
            value = getattr(PRESETS[self.preset], name)
        return float(value)
