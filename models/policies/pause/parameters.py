"""Parameters of PAUSE (Peleg et al., eq. 7-9, 11-14), shared by its policies, its genie and the meter of its regret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import check_at_least


@dataclass(frozen=True, kw_only=True)
class SpeedAndGeneralization:
    """Weights of a reward without privacy, that of BSFL. Raises ParameterError for a value outside its range."""

    alpha: Annotated[float, Doc("Weight of generalization.")] = 100.0
    beta: Annotated[float, Doc("Exponent of eq. 8, > 1.")] = 2.0
    tau_min_s: Annotated[float, Doc("The least possible latency in seconds.")] = 0.05

    def __post_init__(self) -> None:
        check_at_least("alpha", self.alpha, 0)
        check_at_least("beta", self.beta, 1, strict=True)
        check_at_least("tau_min_s", self.tau_min_s, 0, strict=True)


@dataclass(frozen=True, kw_only=True)
class RewardParameters(SpeedAndGeneralization):
    """Weights of the reward of a set (eq. 7-9). Raises ParameterError for a value outside its range."""

    gamma: Annotated[float, Doc("Weight of privacy.")] = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("gamma", self.gamma, 0)


@dataclass(frozen=True, kw_only=True)
class PauseParameters(RewardParameters):
    """Weights of the reward, and those of the confidence bound (eq. 11-13). Raises ParameterError for a value outside its
    range.
    """

    zeta: Annotated[float, Doc("Factor of the empirical mean in the ucb.")] = 1.0
    unexplored: Annotated[
        Literal["energy", "random"],
        Doc(
            "Order of clients that were never selected, whose ucb is infinite: energy, by the rewards of eq. 14, or random, as "
            "in the authors' code. The two agree if all clients hold equally many samples."
        ),
    ] = "energy"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("zeta", self.zeta, 0)
        if self.unexplored not in ("energy", "random"):
            raise ParameterError("unexplored", self.unexplored, "must be energy or random")


MOST_STEPS = 10_000_000
"""Longest walk that is allowed: a selection would take a minute or more."""


@dataclass(frozen=True, kw_only=True)
class AnnealingParameters:
    """Length and temperature of a walk over sets (Algorithm 2). Raises ParameterError for a value outside its range."""

    steps: Annotated[int, Doc("Steps of the annealing walk; the best set that it visits is selected.")] = 3000
    kappa: Annotated[
        float,
        Doc("Divisor of the temperature: 1; 30 in the large-network study, which voids the condition of Theorem 4."),
    ] = 1.0

    def __post_init__(self) -> None:
        check_at_least("steps", self.steps, 1)
        if self.steps > MOST_STEPS:
            raise ParameterError("steps", self.steps, f"must be at most {MOST_STEPS:,}: a selection would take a minute or more")
        check_at_least("kappa", self.kappa, 0, strict=True)


@dataclass(frozen=True, kw_only=True)
class TailoredAnnealing(AnnealingParameters):
    """Parameters of SA-PAUSE's walk, with the C of eq. 19. Raises ParameterError for a value outside its range."""

    omega: Annotated[float, Doc("The small constant of eq. 19, > 0.")] = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("omega", self.omega, 0, strict=True)
