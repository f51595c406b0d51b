"""Weights of all C super-arms (sets of channels) of M-Exp3, of which only the drawn ones are stored.

The weight of arm I is w_I, and W is the sum of all. With Exp3.S sharing every weight grows by the same amount a round, so
w_I = b + v_I. Here b is common to all arms, and v_I >= 0 is what the rewards of arm I have added to it; 0 unless I was drawn. A
reward multiplies w_I by g >= 1: v_I <- v_I g + b (g - 1), and sharing is b <- b + a. Nothing is ever subtracted and no other arm
is touched, so storing only the drawn arms is exact. A draw by weight is a uniform draw from all C arms with probability C b / W,
or else a draw of a stored arm by v.

Weights grow without bound and are far apart, so each is a mantissa and a power of two of its own (the integer part of its
logarithm). Nothing overflows, small weights survive beside large ones, and a product is rounded once; adding up logarithms of
thousands would lose digits. The sums below run over the weights at a common power of two.
"""

from __future__ import annotations

import math
from math import exp, expm1, frexp, ldexp

import numpy as np

from models.errors import ParameterError
from models.schedulers.protocols import State

SuperArm = tuple[int, ...]

_LN_2 = math.log(2.0)
# Powers of two by which weights may outgrow the common one before it follows; a float holds about 1000.
_ROOM = 256
_LARGEST_COUNT = 1e300


class SuperArmWeights:
    """Weights w of `count` super-arms, all 1 at first; memory grows with the arms that were rewarded."""

    def __init__(self, *, count: int) -> None:
        if count > _LARGEST_COUNT:
            reason = f"there are 10^{math.log10(count):.0f} sets of them; at most {_LARGEST_COUNT:g} are allowed"
            raise ParameterError("channels", count, reason, shown="")
        self._count = float(count)
        self._count_power = frexp(self._count)[1]
        self._arms: list[SuperArm] = []
        self._places: dict[SuperArm, int] = {}
        # v of each stored arm and b, each as mantissa in [1/2, 1) and power of two.
        self._mantissa: list[float] = []
        self._power: list[int] = []
        self._common, self._common_power = 0.5, 1
        # Sums are kept in units of 2^scale.
        self._scale = 0
        self._flat = 0.0
        """C b, the part of W that all arms share."""
        self._rescale()

    def __len__(self) -> int:
        return len(self._arms)

    @property
    def common_share(self) -> float:
        """C b / W: the share of all weight that is spread evenly over all arms."""
        return self._flat / (self._flat + self._tree[1])

    def relative(self, arm: SuperArm) -> float:
        """Return C w / W of `arm` (ascending channels): its weight relative to the mean weight."""
        # With w = b + v it is C b / W + C v / W. Arms that are not stored have v = 0.
        total = self._flat + self._tree[1]
        common_part = self._flat / total
        place = self._places.get(arm)
        if place is None:
            return common_part
        return common_part + self._count * (self._tree[self._room + place] / total)

    def pick(self, u: float) -> SuperArm:
        """Draw a stored arm with probability v / (sum of all v), from a uniform `u` in [0, 1).

        Call it while `common_share` < 1: else no arm has a v above 0. It walks down the tree of sums (`_build`).
        """
        tree, room = self._tree, self._room
        left_over = u * tree[1]
        node = 1
        while node < room:
            node *= 2
            # Rounding may leave more than the sum of a branch: the second condition keeps the walk out of empty branches.
            if left_over >= tree[node] and tree[node + 1] > 0.0:
                left_over -= tree[node]
                node += 1
        return self._arms[node - room]

    def update(self, arm: SuperArm, gain: float, share: float) -> None:
        """Multiply w of `arm` by exp(`gain`), gain >= 0; then add e `share` / C times the former W to every w (Exp3.S)."""
        former_total = self._flat + self._tree[1]
        fits = True
        if gain > 0.0:
            fits = self._multiply(arm, gain)
        if share > 0.0:
            fits &= self._add_to_all(former_total * math.e * share / self._count)
        if not fits:
            self._rescale()

    def _multiply(self, arm: SuperArm, gain: float) -> bool:
        """Multiply w of `arm` by exp(`gain`), and update the sums; False without updating if they need another scale."""
        place = self._places.get(arm)
        if place is None:
            place = self._store(arm)
        power = self._reward(place, gain)
        if power - self._scale > _ROOM:
            return False
        self._put(place, ldexp(self._mantissa[place], power - self._scale))
        return True

    def _add_to_all(self, amount: float) -> bool:
        """Add `amount`, in units of 2^scale, to every w: b <- b + `amount`. False if the sums need another scale for it."""
        # Both terms at the larger of their powers of two.
        added, power = frexp(amount)
        power += self._scale
        top = max(power, self._common_power)
        self._common, raised = frexp(ldexp(added, power - top) + ldexp(self._common, self._common_power - top))
        self._common_power = raised + top
        if self._common_power + self._count_power - self._scale > _ROOM:
            return False
        self._flat = ldexp(self._common * self._count, self._common_power - self._scale)
        return True

    def _reward(self, place: int, gain: float) -> int:
        """Replace v of the arm at `place` by v g + b (g - 1), g = exp(`gain`), and return its new power of two.

        This multiplies w = v + b by g, and leaves b as it is for the other arms.
        """
        # exp overflows above 709: whole powers of two of a large g go into the exponent. Then g - 1 rounds to g.
        doublings = int(gain / _LN_2) if gain > 500.0 else 0
        factor = exp(gain - doublings * _LN_2)
        rise = factor if doublings else expm1(gain)
        power = self._power[place]
        top = max(power, self._common_power)
        value = ldexp(self._mantissa[place], power - top) * factor + ldexp(self._common, self._common_power - top) * rise
        self._mantissa[place], raised = frexp(value)
        self._power[place] = power = raised + top + doublings
        return power

    def _store(self, arm: SuperArm) -> int:
        """Add `arm` with v = 0 to the stored arms, and return its place."""
        place = len(self._arms)
        self._places[arm] = place
        self._arms.append(arm)
        self._mantissa.append(0.0)
        self._power.append(self._common_power)
        if place == self._room:
            self._build()
        return place

    def _put(self, place: int, value: float) -> None:
        """Set v of the arm at `place` to `value`, in units of 2^scale, and update the sums above it in the tree."""
        tree = self._tree
        node = self._room + place
        tree[node] = value
        while node > 1:
            node >>= 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]

    def _rescale(self) -> None:
        """Raise the common power of two to the largest weight (of one arm, or of all at b)."""
        self._scale = max(self._common_power + self._count_power, max(self._power, default=self._common_power))
        self._build()

    def _build(self) -> None:
        """Compute the sums of v, in units of 2^scale, as a binary tree in one list.

        Node n is the sum of nodes 2n and 2n + 1, so node 1 is the sum of all; the leaf of the arm at place j is node room + j.
        """
        self._flat = ldexp(self._common * self._count, self._common_power - self._scale)
        self._room = room = 1 << max(1, (len(self._arms) - 1).bit_length())
        tree = np.zeros(2 * room)
        # ldexp takes 32-bit powers. Far smaller weights may exceed them; they are 0 at the common power anyway.
        powers = np.maximum(np.array(self._power, np.int64) - self._scale, -5000).astype(np.int32)
        tree[room : room + len(powers)] = np.ldexp(np.array(self._mantissa), powers)
        while room > 1:
            tree[room // 2 : room] = tree[room : 2 * room : 2] + tree[room + 1 : 2 * room : 2]
            room //= 2
        self._tree: list[float] = tree.tolist()

    def state_dict(self) -> State:
        return {
            "arms": np.array(self._arms, np.int64),
            "mantissa": np.array(self._mantissa),
            "power": np.array(self._power, np.int64),
            "common": self._common,
            "common_power": self._common_power,
            "scale": self._scale,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the weights; the tree of sums and `_flat` follow from them (`_build`)."""
        self._arms = [tuple(arm) for arm in state["arms"].tolist()]
        self._places = {arm: place for place, arm in enumerate(self._arms)}
        self._mantissa, self._power = state["mantissa"].tolist(), state["power"].tolist()
        self._common, self._common_power = float(state["common"]), int(state["common_power"])
        self._scale = int(state["scale"])
        self._build()
