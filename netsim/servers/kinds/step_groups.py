"""FedCompass's scheduler: groups of clients that are expected to arrive together, and their numbers of steps.

Li et al., "FedCompass", ICLR 2024, Algorithms 1 and 2. It has no clock: `netsim.servers.kinds.compass` passes the times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, State

_EVER = float("inf")
_WEIGHT_OF_NEWEST = 0.9
"""Weight of the newest measurement in the average of a client's seconds per step."""
LATE = -1
"""In place of the number of a group: the client is later than its group, which has ended."""


@dataclass(slots=True)
class Group:
    """Clients that are expected to arrive together."""

    expected_s: float
    """Time at which its clients are expected to arrive."""
    latest_s: float
    """Time at which the group ends, complete or not."""
    members: list[int]
    arrived: list[int] = field(default_factory=list)
    """Members whose updates wait for the others."""


class StepScheduler:
    """Groups of clients, and the steps of each client (FedCompass, Algorithms 1 and 2).

    `least`, `most`: Q_min and Q_max. `slack`: lambda, the factor by which a group may take longer than expected. Raises
    ValueError for steps below 1, a least above the most, and a slack below 1.
    """

    def __init__(self, *, clients: int, least: int, most: int, slack: float) -> None:
        if least < 1:
            raise ParameterError("min_steps", least, "must be at least 1 step")
        if most < least:
            raise ParameterError("max_steps", most, f"must be at least the {least} steps of min_steps")
        if not 1.0 <= slack < _EVER:
            raise ParameterError("slack", slack, "must be >= 1 and finite")
        self.least, self.most, self.slack = least, most, slack
        self.step_s: FloatArray = np.full(clients, np.nan)
        """Seconds per step (K,) of each client; NaN before its first arrival."""
        self.groups: dict[int, Group] = {}
        """Groups by number, in the order of creation."""
        self.group_of: dict[int, int] = {}
        """Number of the group of each client that works for one; LATE: the client is later than its group."""
        self._number = 0
        """Number of groups created so far."""

    def measure(self, client: int, seconds: float, steps: int) -> None:
        """Note that `client` took `seconds`, messages included, for `steps` steps: update its average seconds per step."""
        measured_s, average_s = seconds / steps, float(self.step_s[client])
        if math.isnan(average_s):
            self.step_s[client] = measured_s
        else:
            self.step_s[client] = (1.0 - _WEIGHT_OF_NEWEST) * average_s + _WEIGHT_OF_NEWEST * measured_s

    def assign(self, client: int, now_s: float) -> tuple[int, int | None]:
        """Return the steps of `client` from now on, and the number of a new group made for it.

        The number is None if it joins a group or its speed is unknown.
        """
        step_s = float(self.step_s[client])
        if math.isnan(step_s):
            return self.most, None
        # Algorithm 2: join the group that gives the client the most steps, within the bounds; of equal ones the newest.
        most_steps, joined = 0, None
        for number, group in self.groups.items():
            # Steps with which the client would arrive together with the group.
            steps = _steps_within(group.expected_s - now_s, step_s)
            if self.least <= steps <= self.most and steps >= most_steps:
                most_steps, joined = int(steps), number
        if joined is not None:
            self.groups[joined].members.append(client)
            self.group_of[client] = joined
            return most_steps, None
        return self._create(client, now_s, step_s)

    def _create(self, client: int, now_s: float, step_s: float) -> tuple[int, int]:
        """Create a group for `client`; return its steps and the number of the group.

        The group arrives when the fastest client of another group could have made all its steps once more after that group's
        latest time. Of several such groups, the one that gives the most steps counts.
        """
        allowed = []
        for group in self.groups.values():
            if now_s < group.latest_s:
                next_arrival_s = group.latest_s + self._fastest_step_s(group) * self.most
                possible_steps = _steps_within(next_arrival_s - now_s, step_s)
                if possible_steps <= self.most:
                    allowed.append(int(possible_steps))
        steps = max(self.least, max(allowed)) if allowed else self.most
        self._number += 1
        training_s = steps * step_s
        self.groups[self._number] = Group(
            expected_s=now_s + training_s, latest_s=now_s + training_s * self.slack, members=[client]
        )
        self.group_of[client] = self._number
        return steps, self._number

    def _fastest_step_s(self, group: Group) -> float:
        """Return the seconds per step of the fastest client of `group`."""
        return float(self.step_s[group.members].min())

    def arrive(self, client: int) -> list[int] | None:
        """Handle the arrival of `client`. If it was the last of its group, end the group and return its clients; otherwise return
        None.
        """
        group = self.groups[self.group_of[client]]
        group.arrived.append(client)
        return self._close_if_complete(self.group_of[client])

    def leave(self, client: int) -> list[int] | None:
        """Handle that `client` will not arrive: take it out of its group. If that completes the group, end the group and return
        the clients that have arrived; otherwise, and if the client has no group, return None.
        """
        number = self.group_of.pop(client, LATE)
        if number == LATE:
            return None
        self.groups[number].members.remove(client)
        return self._close_if_complete(number)

    def _close_if_complete(self, number: int) -> list[int] | None:
        """End group `number` and return its clients, if all have arrived; otherwise return None."""
        group = self.groups[number]
        if len(group.arrived) < len(group.members):
            return None
        return self.close(number)

    def close(self, number: int) -> list[int]:
        """End group `number` and return its clients that have arrived. Its other clients become late (LATE)."""
        group = self.groups.pop(number)
        for client in group.members:
            self.group_of[client] = LATE
        for client in group.arrived:
            del self.group_of[client]
        return group.arrived

    def abandon(self) -> None:
        """End all groups without a model. Measured speeds stay."""
        self.groups.clear()
        self.group_of.clear()

    def state_dict(self) -> State:
        """Return measured speeds and groups."""
        groups = {
            number: [group.expected_s, group.latest_s, list(group.members), list(group.arrived)]
            for number, group in self.groups.items()
        }
        return {"step_s": self.step_s.copy(), "groups": groups, "group_of": dict(self.group_of), "number": self._number}

    def load_state_dict(self, state: State) -> None:
        """Restore measured speeds and groups."""
        self.step_s = np.array(state["step_s"], np.float64)
        self.groups = {
            number: Group(expected_s, latest_s, list(members), list(arrived))
            for number, (expected_s, latest_s, members, arrived) in state["groups"].items()
        }
        self.group_of = dict(state["group_of"])
        self._number = state["number"]


def _steps_within(span_s: float, step_s: float) -> float:
    """Return the whole number of steps in `span_s` seconds; inf if steps take no time."""
    return math.floor(span_s / step_s) if step_s > 0.0 else _EVER
