"""Nodes of a run. Each has its own context, and calls the ClientApp with its messages."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from netsim.clients.rules import Load
from scenarios.flower import internals
from scenarios.flower.randomness import seed_all
from scenarios.flower.simulated_time import AppTime, mark_code
from scenarios.schema.errors import UserError, first_line

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from scenarios.schema.servers.flower import Flower


_SAMPLES_LIMIT = 2**53
"""Limit of the samples of a message. Above it, 64-bit floats do not represent every whole number."""


def _message_text(message: Message) -> str:
    """Return a description of a message by id, type and node."""
    metadata = message.metadata
    return f"message {metadata.message_id} ({metadata.message_type}) at node {metadata.dst_node_id}"


class Answer(NamedTuple):
    """Reply of a node, the work that it takes, and the numbers that it reports, by name."""

    reply: Message
    load: Load
    metrics: Mapping[str, float]


class Nodes:
    """Clients that run `clientapp`, each with partition-id 0, 1, ..."""

    def __init__(
        self,
        *,
        clientapp: Callable[[Message, Context], Any],
        section: Flower,
        run_config: Mapping[str, Any],
        clients: int,
        seed: int,
        needs_samples: bool,
    ) -> None:
        """`needs_samples`: True if the time of a message depends on its samples."""
        self._app, self._section, self._run_config = clientapp, section, dict(run_config)
        self._clients, self._seed, self._needs_samples = clients, seed, needs_samples
        self._contexts: dict[int, Context] = {}
        self._calls: dict[int, int] = {}
        self.raised: list[str] = []
        """Descriptions of the exceptions that the ClientApp raised."""
        self.answered = 0
        """Number of messages that the ClientApp answered."""
        self._pause_s = 0.0

    def pause(self, seconds: float) -> None:
        """Count a `sleep` of the ClientApp as part of its work."""
        self._pause_s += seconds

    @property
    def pause_s(self) -> float:
        """Seconds that the ClientApp has slept in the present call."""
        return self._pause_s

    def _context(self, client: int) -> Context:
        """Return the context of a client's node, created at its first message."""
        if client not in self._contexts:
            from flwr.app import Context, RecordDict

            self._contexts[client] = Context(
                run_id=internals.RUN_ID,
                node_id=internals.node_id(client),
                node_config={"partition-id": client, "num-partitions": self._clients},
                state=RecordDict(),
                run_config=dict(self._run_config),
            )
        return self._contexts[client]

    def call(self, client: int, message: Message, time: AppTime) -> Answer:
        """Call the client's app with `message` and return its answer; an exception of the app becomes an error reply.

        The process's random generators are seeded for each call. Raises UserError for a result that is no Message.
        """
        from flwr.app import Message as MessageClass

        self._calls[client] = number = self._calls.get(client, 0) + 1
        self._pause_s = 0.0
        seed_all(self._seed, client, number)
        node = internals.node_id(client)
        try:
            with internals.task_identity(node), mark_code(time, is_app=True):
                reply: Any = self._app(message, self._context(client))
        except (Exception, SystemExit) as error:
            return self._build_answer(message, self._error_reply(message, error))
        if not isinstance(reply, MessageClass):
            kind = f"returned {type(reply).__name__} to a message {message.metadata.message_type!r} at node {node}"
            raise UserError(f"flower.app = {self._section.app!r}: its ClientApp {kind}; must return a Message")
        self.answered += 1
        internals.set_source(reply, node)
        return self._build_answer(message, reply)

    def _error_reply(self, message: Message, error: BaseException) -> Message:
        """Return the reply to a message whose ClientApp raised `error`."""
        from flwr.app import Error
        from flwr.app import Message as MessageClass

        # Skip netsim's own frames; use the last line outside of flwr, if there is one.
        frames = traceback.extract_tb(error.__traceback__)[1:]
        frames = [frame for frame in frames if "flwr" not in Path(frame.filename).parts] or frames
        line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        reason = f"{_message_text(message)}: {type(error).__name__}: {first_line(error)}{line}"
        self.raised.append(reason)
        logging.getLogger("netsim.flower").warning("the ClientApp raised: %s", reason)
        with internals.task_identity(message.metadata.dst_node_id):
            return MessageClass(Error(internals.APP_RAISED, reason), reply_to=message)

    def _build_answer(self, message: Message, reply: Message) -> Answer:
        """Return a reply with its load in the simulation: bytes, samples weighted by passes, pauses, and `[flower.polls]`.

        Raises UserError for a training reply without samples if the time of a message depends on them.
        """
        section, kind = self._section, message.metadata.message_type.partition(".")[0]
        if not reply.has_content():
            size = max(len(reply.error.reason or ""), 1)
            return Answer(reply, Load(size, besides_s=self._pause_s, look_s=section.polls.reply_s), {})
        metrics = internals.reported_numbers(reply.content)
        samples = self._reported_samples(message, reply, metrics)
        weight = {"train": 1.0, "evaluate": section.evaluate_share}.get(kind, 0.0)
        if kind == "train" and section.epochs_key is not None:
            weight *= self._passes(section.epochs_key)
        if samples is None and weight and self._needs_samples and internals.holds_results(reply.content):
            self._refuse_missing_samples(message, metrics)
        load = Load(
            bytes_up=max(internals.count_bytes(reply.content), 1),
            samples=samples,
            weighted_samples=weight * (samples or 0),
            besides_s=self._pause_s,
            look_s=section.polls.reply_s,
        )
        return Answer(reply, load, metrics)

    def _reported_samples(self, message: Message, reply: Message, metrics: Mapping[str, float]) -> int | None:
        """Return the number of samples that a reply reports, or None; raises UserError for an impossible number."""
        key = self._section.samples_key
        if key not in metrics:
            return internals.legacy_samples(reply.content)
        if not 0 <= metrics[key] < _SAMPLES_LIMIT:
            problem = f"flower.samples_key = {key!r}: the reply to {_message_text(message)} reports {metrics[key]!r} samples"
            raise UserError(f"{problem}; must be at least 0, and finite")
        return round(metrics[key])

    def _refuse_missing_samples(self, message: Message, metrics: Mapping[str, float]) -> None:
        """Raise UserError for a reply without samples, which its simulated time needs."""
        names = ", ".join(metrics) or "no metrics"
        reason = f"the reply to {_message_text(message)} has no such metric, and samples take time by [compute]; it has {names}"
        raise UserError(f"flower.samples_key = {self._section.samples_key!r}: {reason}; name the metric with the samples")

    def _passes(self, key: str) -> float:
        """Return the number of passes over the samples, from `key` of the run config; raises UserError."""
        value = self._run_config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            problem = f"flower.epochs_key = {key!r}: the app's run config has {value!r} there"
            raise UserError(f"{problem}; name a key with a number of passes over the samples")
        return float(value)
