"""Exact GLR test: all split points count, but only some 20 points are stored instead of D (Li et al., Algorithm 2, lines
17-20).

The statistic is convex in (s, sum of the first s) for given totals, since s kl(S/s, m) is the perspective of a convex function.
Over the path of points (s, sum of the first s), s = 0..D, its maximum is therefore at a corner of the path's convex hull (it is
0 at both ends). Points come with rising s, so Andrew's monotone chain (1979) keeps both halves of the hull: each point enters
each half once and leaves it at most once. The hull of a random walk has O(log D) corners.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from models.detection.glr import Glr
from models.detection.protocols import State


class GlrExact(Glr):
    """Detector that declares a change when the GLR statistic over all D - 1 splits reaches (1 + 1/D) ln(3 D sqrt(D) / delta).

    On a stationary Bernoulli stream of any length a change is declared with probability at most `delta`. Observations may be
    any numbers in [0, 1]. Memory is O(log D). An observation takes O(1), except for the few that come near the threshold: these
    visit all corners of the hull.

    Example:
        >>> detector = GlrExact(delta=0.01)
        >>> [t for t, x in enumerate([0.0] * 40 + [1.0] * 40) if detector.update(x)][0]
        43
    """

    def _clear(self) -> None:
        """Forget the path."""
        # Corners (s, sum of the first s, l(1..s)) from left to right, each half with both ends of the path. Plain tuples,
        # because the hulls change at every observation.
        self._upper = [(0, 0.0, 0.0)]
        self._lower = [(0, 0.0, 0.0)]

    def _extend(self, count: int, total: float, likelihood: float) -> None:
        """Add the point (`count`, `total`) to both hulls, after removing corners that it makes superfluous (monotone chain).

        (s, y) is the last corner, (s0, y0) the one before it. The last corner is superfluous unless the path turns there: to the
        right on the upper hull, to the left on the lower one. The code stands twice, once for each hull, because it runs at
        every observation; both parts must stay equal but for the sign.
        """
        new = (count, total, likelihood)
        hull = self._upper
        if len(hull) > 1:
            s, y, _ = hull[-1]
            s0, y0, _ = hull[-2]
            while (y - y0) * (count - s) <= (total - y) * (s - s0):
                hull.pop()
                if len(hull) == 1:
                    break
                s, y = s0, y0
                s0, y0, _ = hull[-2]
        hull.append(new)
        hull = self._lower
        if len(hull) > 1:
            s, y, _ = hull[-1]
            s0, y0, _ = hull[-2]
            while (y - y0) * (count - s) >= (total - y) * (s - s0):
                hull.pop()
                if len(hull) == 1:
                    break
                s, y = s0, y0
                s0, y0, _ = hull[-2]
        hull.append(new)

    def _best(self, count: int, total: float) -> float:
        """Return the greatest l(1..s) + l(s+1..count) over the corners s of both hulls.

        `_log_likelihood` of the second segment is written out, because this is the inner loop.
        """
        if count < 2:
            return -inf
        # A split at the end of the path leaves l as it is. It is the only candidate of a straight path, which has no corners.
        best = self._upper[-1][2]
        for hull in (self._upper, self._lower):
            for s, y, value in hull[1:-1]:
                rest = count - s
                ones = total - y
                zeros = rest - ones
                value -= rest * log(rest)
                if ones > 0.0:
                    value += ones * log(ones)
                if zeros > 0.0:
                    value += zeros * log(zeros)
                if value > best:
                    best = value
        return best

    def _path(self) -> State:
        """Return the corners of both hulls, as arrays."""
        return {"upper": np.array(self._upper), "lower": np.array(self._lower)}

    def _load_path(self, state: State) -> None:
        """Restore the corners."""
        self._upper = [(int(s), y, value) for s, y, value in state["upper"].tolist()]
        self._lower = [(int(s), y, value) for s, y, value in state["lower"].tolist()]
