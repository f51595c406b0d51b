"""Gossip without time: knowledge of clients, messages, merges, and agreement.

In one slot each client makes one index (Tong et al. 2024, eq. 17), so a (client, index) pair is known or not, and knowledge is
a set of clients. Clients are named by their rank, their place in the decreasing order of all indices (`compute_ranks`): lower
is better. Ranks are names only; no client uses a rank it has not received. The best m that a client knows are its m lowest
ranks.

All clients name the same top m exactly when all know the true top m. If all named another set, some client of the true top m
would be missing from it while a worse one is in it; but that client knows its own index, and would name itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from models.errors import ParameterError
from models.peers.graph import FloatArray, IntArray, PeerGraph

Known = TypeVar("Known")


def compute_ranks(index: FloatArray, priority: FloatArray | None = None) -> IntArray:
    """Return each client's place, from 0, in the decreasing order of `index` (K,); (K,).

    Of equal indices the lower `priority` (K,) comes first, and without one, or if that is equal too, the lower client. Raises
    ParameterError for NaN.
    """
    values = np.asarray(index, np.float64)
    if np.isnan(values).any():
        shown = f" = nan of client {int(np.argmax(np.isnan(values)))}"
        raise ParameterError("index", values, "must be a number for each client", shown=shown)
    keys = (-values,) if priority is None else (priority, -values)
    ranks = np.empty(len(values), np.int64)
    ranks[np.lexsort(keys)] = np.arange(len(values))
    return ranks


class Payload(Protocol[Known]):
    """Content of messages. Knowledge and messages are of the same kind, plain and immutable; an empty one is false."""

    def item(self, rank: int) -> Known:
        """Return the first knowledge of a client of this rank: its own index."""

    def merge(self, held: Known, arrived: Known) -> tuple[Known, Known]:
        """Return the knowledge after `arrived` arrived, and the part of `arrived` that was new (as far as it is kept)."""

    def difference(self, held: Known, arrived: Known) -> Known:
        """Return the part of `held` that the sender of `arrived` may not know: the answer to a push-pull."""

    def pairs(self, known: Known) -> int:
        """Return the number of (client, index) pairs."""

    def top_ranks(self, held: Known, size: int) -> tuple[int, ...]:
        """Return the ranks of the best `size` of `held`, ascending; fewer if fewer are known."""

    def knows_top(self, held: Known, size: int) -> bool:
        """Return True if `held` contains the true top `size`, so that this client names it."""


class AllPairs:
    """Payload of messages with all the pairs that the sender knows. Knowledge is one integer: bit r is set for rank r."""

    def item(self, rank: int) -> int:
        return 1 << rank

    def merge(self, held: int, arrived: int) -> tuple[int, int]:
        return held | arrived, arrived & ~held

    def difference(self, held: int, arrived: int) -> int:
        return held & ~arrived

    def pairs(self, known: int) -> int:
        return known.bit_count()

    def top_ranks(self, held: int, size: int) -> tuple[int, ...]:
        ranks: list[int] = []
        while held and len(ranks) < size:
            lowest_bit = held & -held
            ranks.append(lowest_bit.bit_length() - 1)
            held ^= lowest_bit
        return tuple(ranks)

    def knows_top(self, held: int, size: int) -> bool:
        top = (1 << size) - 1
        return held & top == top


class BestPairs:
    """Payload of messages with the best `size` pairs that the sender knows; clients keep no more.

    Knowledge is an ascending tuple of ranks. With a `size` below m no client ever names m clients, and there is no agreement.
    """

    def __init__(self, *, size: int) -> None:
        if size < 1:
            raise ParameterError("size", size, "must be >= 1 pair")
        self._size = size

    def item(self, rank: int) -> tuple[int, ...]:
        return (rank,)

    def merge(self, held: tuple[int, ...], arrived: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the best `size` ranks of both, and those of `arrived` among them that were not in `held`."""
        # Fast path: most messages are no better than what is held, which their first rank shows.
        if not arrived or (len(held) == self._size and arrived[0] >= held[-1]):
            return held, ()
        new = set(arrived).difference(held)
        if not new:
            return held, ()
        kept = tuple(sorted(new.union(held))[: self._size])
        return kept, tuple(rank for rank in kept if rank in new)

    def difference(self, held: tuple[int, ...], arrived: tuple[int, ...]) -> tuple[int, ...]:
        # Ranks worse than the last of a full message are of no use to its sender.
        worst = arrived[-1] if len(arrived) == self._size else math.inf
        return tuple(rank for rank in held if rank < worst and rank not in arrived)

    def pairs(self, known: tuple[int, ...]) -> int:
        return len(known)

    def top_ranks(self, held: tuple[int, ...], size: int) -> tuple[int, ...]:
        return held[:size]

    def knows_top(self, held: tuple[int, ...], size: int) -> bool:
        # Ranks are distinct and ascend from 0: the m-th is m - 1 only if all before it are there.
        return len(held) >= size and held[size - 1] == size - 1


def message_bytes(pairs: int, *, header_bytes: int = 16, pair_bytes: int = 12) -> int:
    """Return the size of a message of `pairs` pairs; by default 4 bytes a client and 8 an index."""
    return header_bytes + pairs * pair_bytes


def believers(payload: Payload[Known], held: Sequence[Known], ranks: IntArray, size: int) -> IntArray:
    """Return the clients that believe to be in the top `size`, by their present knowledge; ascending.

    Before agreement there may be more than `size` of them, never fewer: a client of the true top cannot doubt it.
    """
    believes = [rank in payload.top_ranks(known, size) for known, rank in zip(held, ranks.tolist(), strict=True)]
    return np.flatnonzero(believes)


def disagreement(payload: Payload[Known], held: Sequence[Known], size: int) -> float:
    """Return the share of clients that do not name the true top `size`; 0 is agreement."""
    naming_others = sum(not payload.knows_top(known, size) for known in held)
    return naming_others / len(held)


def draw_contacts(graph: PeerGraph, u: FloatArray) -> IntArray:
    """Return for each client with neighbours (`graph.linked`) the edge to a random one, chosen by its uniform number `u` (K,)."""
    clients = graph.linked
    degree = graph.degree[clients]
    # The edges into a client follow each other from `starts` on; `reverse` has the edge back, from the client to that neighbour.
    # u < 1, but the product can round up to the degree.
    choice = np.minimum((u[clients] * degree).astype(np.int64), degree - 1)
    return np.asarray(graph.reverse[graph.starts[clients] + choice])


Forwarding = Literal["flooding", "push", "push-pull"]


@dataclass(frozen=True, slots=True)
class Spread(Generic[Known]):
    """Result of `spread`."""

    held: list[Known]
    """Knowledge of each client in the end."""
    repetitions: int
    messages: int
    pairs: int
    """Pairs in all messages together."""
    agreed: bool
    """True if all clients name the true top `size`."""


class _News(NamedTuple, Generic[Known]):
    """Knowledge that was new to a client in the last repetition."""

    known: Known
    sender: int
    """Client that it came from; -1: the client's own."""


class _Message(NamedTuple, Generic[Known]):
    """Message of one repetition."""

    sender: int
    receiver: int
    known: Known


def _flood(graph: PeerGraph, payload: Payload[Known], news: list[list[_News[Known]]]) -> list[_Message[Known]]:
    """Return the messages of a repetition of flooding: each client sends its `news` to every neighbour.

    Nothing is sent back to the neighbour that it came from.
    """
    messages: list[_Message[Known]] = []
    for client, own_news in enumerate(news):
        if not own_news:
            continue
        neighbours = graph.target[graph.outgoing(np.array([client]))].tolist()
        for neighbour in neighbours:
            parts = [part.known for part in own_news if part.sender != neighbour]
            if not parts:
                continue
            merged = parts[0]
            for part in parts[1:]:
                merged, _ = payload.merge(merged, part)
            messages.append(_Message(sender=client, receiver=neighbour, known=merged))
    return messages


def spread(
    graph: PeerGraph,
    payload: Payload[Known],
    ranks: IntArray,
    *,
    size: int,
    forwarding: Forwarding = "flooding",
    uniforms: Callable[[int], FloatArray] | None = None,
    held: Sequence[Known] | None = None,
    max_repetitions: int = 10_000,
) -> Spread[Known]:
    """Repeat exchanges in which all clients send at once and nothing is lost, until all name the same top `size`.

    The paper takes N repetitions; this counts them. Flooding: each client sends all its neighbours what was new to it in the
    last repetition, in one message (without what came from that neighbour); at first all it holds. Push: each sends one random
    neighbour all it holds. Push-pull: that neighbour answers, in the same repetition, with what it held before and the sender
    lacks. `uniforms(k)` returns (K,) uniforms of repetition k = 1, 2, .., needed by push and push-pull. `held`: first knowledge
    of the clients; None: their own index. It ends without agreement when nothing is left to forward, or after
    `max_repetitions`.
    """
    if forwarding not in ("flooding", "push", "push-pull"):
        raise ParameterError("forwarding", forwarding, "must be 'flooding', 'push' or 'push-pull'")
    if forwarding != "flooding" and uniforms is None:
        raise ParameterError("uniforms", None, f"{forwarding} needs uniforms for its random neighbours")
    if not 1 <= size <= graph.clients:
        raise ParameterError("size", size, f"must be between 1 and the number of clients, {graph.clients}")
    if max_repetitions < 1:
        raise ParameterError("max_repetitions", max_repetitions, "must be >= 1")
    knowledge = [payload.item(rank) for rank in ranks.tolist()] if held is None else list(held)
    source, target = graph.source.tolist(), graph.target.tolist()
    # What each client may still forward.
    news: list[list[_News[Known]]] = [[_News(known, -1)] for known in knowledge]
    messages = pairs = 0

    for repetition in range(max_repetitions + 1):
        agreed = all(payload.knows_top(known, size) for known in knowledge)
        if agreed or repetition == max_repetitions:
            return Spread(held=knowledge, repetitions=repetition, messages=messages, pairs=pairs, agreed=agreed)
        if forwarding == "flooding":
            sent = _flood(graph, payload, news)
            if not sent:
                # Nothing is left to forward.
                return Spread(held=knowledge, repetitions=repetition, messages=messages, pairs=pairs, agreed=False)
        else:
            sent = []
            assert uniforms is not None
            for edge in draw_contacts(graph, uniforms(repetition + 1)).tolist():
                client, contact = source[edge], target[edge]
                sent.append(_Message(sender=client, receiver=contact, known=knowledge[client]))
                if forwarding == "push-pull":
                    answer = payload.difference(knowledge[contact], knowledge[client])
                    if answer:
                        sent.append(_Message(sender=contact, receiver=client, known=answer))
        # All messages of a repetition were made before any arrives.
        news = [[] for _ in knowledge]
        for message in sent:
            receiver = message.receiver
            messages += 1
            pairs += payload.pairs(message.known)
            knowledge[receiver], new = payload.merge(knowledge[receiver], message.known)
            if new:
                news[receiver].append(_News(new, message.sender))
    raise AssertionError("the loop returns")
