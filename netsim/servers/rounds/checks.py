"""Checks of the answers of policies and schedulers, which may be users' classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import AnswerError
from netsim.core.protocols import Selection

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray


def check_selection(
    answer: IntArray | Selection, selectable: BoolArray, *, nobody: bool = False, at_most: int | None = None
) -> tuple[IntArray, IntArray | None]:
    """Return (clients (n,), steps asked of each (n,) or None) that a policy chose, as int64.

    `answer`: what the policy returned. `selectable` (K,): True for clients that it may choose. `nobody`: the choice may be empty.
    `at_most`: the number of clients that may begin now; None: any number. Raises AnswerError for any other answer.
    """
    if isinstance(answer, Selection):
        clients = _check_clients(answer.clients, selectable, at_most)
        steps = np.asarray(answer.steps)
        if steps.shape != clients.shape or steps.dtype.kind not in "iu" or steps.min() < 1:
            raise AnswerError("policy", "select", answer, f"expected the steps of each of {len(clients)} clients, >= 1")
        return clients, steps.astype(np.int64, copy=False)
    if nobody and isinstance(answer, np.ndarray) and not answer.size:
        return answer.astype(np.int64), None
    return _check_clients(answer, selectable, at_most), None


def _check_clients(chosen: IntArray, selectable: BoolArray, at_most: int | None) -> IntArray:
    """Return `chosen` as int64; raises AnswerError unless it names distinct, selectable clients, at least one and at most
    `at_most`.
    """
    chosen = np.asarray(chosen)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or len(chosen) == 0:
        raise AnswerError("policy", "select", chosen, "expected a non-empty 1-d array of client indices")
    listed = chosen.tolist()
    if min(listed) < 0 or max(listed) >= len(selectable) or not selectable[chosen].all():
        raise AnswerError("policy", "select", chosen, "every client must be selectable now")
    if len(set(listed)) < len(listed):
        raise AnswerError("policy", "select", chosen, "no client may be named twice")
    if at_most is not None and len(listed) > at_most:
        raise AnswerError("policy", "select", chosen, f"expected at most {at_most}: the server wants no more at work")
    return chosen.astype(np.int64, copy=False)


def check_probe(asked: IntArray, idle: BoolArray) -> IntArray:
    """Return the clients that a policy wants to probe, as int64; raises AnswerError for any other answer."""
    asked = np.asarray(asked)
    if asked.ndim != 1 or (asked.dtype.kind not in "iu" and len(asked)):
        raise AnswerError("policy", "probe", asked, "expected a 1-d array of client indices")
    listed = asked.tolist()
    if listed and (min(listed) < 0 or max(listed) >= len(idle) or not idle[asked].all()):
        raise AnswerError("policy", "probe", asked, "every client must be present and not busy")
    if len(set(listed)) < len(listed):
        raise AnswerError("policy", "probe", asked, "no client may be named twice")
    return asked.astype(np.int64, copy=False)


def check_schedule(channels: IntArray, clients: int, channel_count: int, contention: bool) -> list[int]:
    """Return the sub-channel of each client as a list.

    Raises AnswerError unless each client has one of `channel_count` sub-channels, no two the same without `contention`.
    """
    channels = np.asarray(channels)
    if channels.shape != (clients,) or channels.dtype.kind not in "iu":
        raise AnswerError("scheduler", "assign", channels, f"expected the sub-channel of each of {clients} clients")
    chosen: list[int] = channels.tolist()
    different = set(chosen)
    if min(different) < 0 or max(different) >= channel_count:
        raise AnswerError("scheduler", "assign", chosen, f"sub-channels count from 0 to {channel_count - 1}")
    if not contention and len(different) < clients:
        raise AnswerError("scheduler", "assign", chosen, "two clients must not share a sub-channel (no contention)")
    return chosen
