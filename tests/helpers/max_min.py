"""Max-min fair rates straight from their definition, in rational numbers: what the solver of flows is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Demand:
    """A flow: its weight on each link, its penalty, its bound (None: none)."""

    uses: Mapping[str, Fraction]
    penalty: Fraction = Fraction(1)
    bound: Fraction | None = None


def rates(capacities: Mapping[str, Fraction], fat_pipes: set[str], demands: Sequence[Demand]) -> list[Fraction]:
    """Raise penalty x rate of all flows together; freeze those on a full link or at their bound; go on with the others."""
    found: list[Fraction | None] = [None] * len(demands)

    def used(name: str) -> Fraction:
        """Return the load of the flows that are frozen."""
        return sum((rate * demands[n].uses.get(name, 0) for n, rate in enumerate(found) if rate), Fraction(0))

    shared = capacities.keys() - fat_pipes
    while None in found:
        rising = [n for n, rate in enumerate(found) if rate is None]
        levels = [bound * demands[n].penalty for n in rising if (bound := demands[n].bound) is not None]
        for name, capacity in capacities.items():
            on_it = [n for n in rising if name in demands[n].uses]
            if name in fat_pipes:
                levels += [capacity / demands[n].uses[name] * demands[n].penalty for n in on_it]
            elif on_it:
                levels.append((capacity - used(name)) / sum(demands[n].uses[name] / demands[n].penalty for n in on_it))
        level = min(levels)
        rates_of = {n: level / demands[n].penalty for n in rising}
        more = {name: sum((rate * demands[n].uses.get(name, 0) for n, rate in rates_of.items()), Fraction(0)) for name in shared}
        full = {name for name in shared if used(name) + more[name] == capacities[name]}
        for n in rising:
            rate, demand = rates_of[n], demands[n]
            fat = any(rate * weight == capacities[name] for name, weight in demand.uses.items() if name in fat_pipes)
            if fat or full & demand.uses.keys() or rate == demand.bound:
                found[n] = rate
    return [rate for rate in found if rate is not None]
