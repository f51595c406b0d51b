"""Structural types and checks of the policies that learn from opinions.

Such a policy has `select(view)`, which returns the m clients of the slot, and `observe_opinions(round, clients, opinions)`,
called once a slot after the test of the model, with the selected clients (m,) and all clients' opinions (K,) in [0, 1].
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray


class SlotView(Protocol):
    """State of a slot before its selection: the part of the engine's `RoundView` that these policies read."""

    @property
    def round(self) -> int:
        """Number of the slot, from 1."""

    @property
    def rng(self) -> np.random.Generator:
        """The policy's own generator of this slot."""


def check_opinions(opinions: FloatArray, clients: int) -> FloatArray:
    """Return `opinions` as float64 (K,). Raises ParameterError for another shape or a value outside [0, 1]."""
    values = np.asarray(opinions, np.float64)
    if values.shape != (clients,):
        raise ParameterError(
            "opinions", values, f"must be ({clients},), one opinion for each client", shown=f" has shape {values.shape}"
        )
    is_valid = (values >= 0) & (values <= 1)
    if not is_valid.all():
        # The first client whose opinion is not.
        client = int(np.argmin(is_valid))
        opinion = float(values[client])
        raise ParameterError("opinions", opinion, "must lie in [0, 1]", shown=f" = {opinion!r} of client {client}")
    return values


def check_played(clients: IntArray, pending: tuple[int, ...]) -> None:
    """Raise ParameterError unless `clients` are the `pending` ones, which the policy selected last, in any order."""
    if tuple(sorted(np.asarray(clients).tolist())) != pending:
        reason = f"must be those selected in this slot, {list(pending)}"
        raise ParameterError("clients", np.asarray(clients).tolist(), reason)


def check_members(name: str, members: list[int], clients: int) -> tuple[int, ...]:
    """Return `members` ascending. Raises ParameterError, naming the parameter, unless they are distinct clients, at least one."""
    if not members or len(set(members)) < len(members) or min(members) < 0 or max(members) >= clients:
        raise ParameterError(name, members, f"must be at least one client, each in 0..{clients - 1} and named once")
    return tuple(sorted(members))
