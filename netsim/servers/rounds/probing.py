"""Probes of clients' losses before a policy selects: over the links, which takes time and bytes, or by a free oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from netsim.core.reports import Probed
from netsim.core.rows import ALWAYS, ColumnValues, ProbeRow
from netsim.records.sinks import NoRecorder, Recorder
from netsim.servers.rounds.loop import ClosedRound, Instrument

if TYPE_CHECKING:
    from netsim.clients.probes import Probes
    from netsim.clients.update import Update
    from netsim.core.clock import Clock, Process
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, ProbedModel

_NAN = float("nan")
_JOULES = ("compute_j", "send_j", "receive_j")
_TIMED = (
    "download_start_s",
    "download_end_s",
    "compute_start_s",
    "compute_end_s",
    "upload_start_s",
    "upload_end_s",
    "cause",
)
"""Columns of probes that take time, and may fail for a cause."""


class Probing(Instrument, ABC):
    """Base of probing: records each probe, and fills the columns `probes`, `probes_answered` and `probe_s`.

    Losses come from the learner, for the clients that answered only. `samples`: number of samples on which a client evaluates
    the model (None: all). `evaluated` (K,): samples that each client evaluates; None if unknown. `losses`: True if answers
    contain losses. `tests`: True if clients may be asked to test the model. `edge`: edge that asks; None: the server.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("asked", "answered")
    round_columns = ("probes", "probes_answered", "probe_s")

    def __init__(
        self,
        *,
        clock: Clock,
        learner: ProbedModel,
        samples: int | None,
        evaluated: IntArray | None,
        losses: bool = True,
        tests: bool = False,
        edge: str | None = None,
    ) -> None:
        self.clock = clock
        self.learner = learner
        self.samples = samples
        self.evaluated = evaluated
        self.losses = losses
        self._tests = tests
        self._edge = edge
        self.recorder: Recorder = NoRecorder()
        self.holders: frozenset[int] = frozenset()
        """Clients that hold the present model since they were probed in this round."""
        self.asked = 0
        """Number of probes so far."""
        self.answered = 0
        """Number of probes that were answered."""
        self._spent_s = 0.0
        """Seconds that the present round has spent on probes."""
        self._before = (0, 0)
        """Numbers (probes, answers) at the last close."""

    @abstractmethod
    def ask(self, number: int, clients: IntArray, version: int, times: int = 0, test: bool = False) -> Process[Probed]:
        """Probe `clients` (n,) in round `number` about the model `version`.

        `times`: number of earlier calls in this round. `test`: ask for the accuracy on their own test data instead of the loss.
        """

    @property
    def filled_columns(self) -> set[str]:
        """Columns of probes that this run fills, beside those of every run."""
        filled: set[str] = set()
        if self.losses and self.learner.aggregates:
            filled.add("loss")
        if self.evaluated is not None:
            filled.add("samples")
        if self._tests:
            filled.add("accuracy")
        if self._edge:
            filled.add("edge")
        return filled

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        filled = {*ALWAYS["probes"]} | self.filled_columns
        recorder.probes_with([name for name in ProbeRow._fields if name in filled])

    def stop(self) -> None:
        """Record probes in flight at the end of the run."""

    def losses_of(self, number: int, clients: IntArray, answered: BoolArray) -> FloatArray:
        """Return the losses (n,) that `clients` answered; NaN where `answered` (n,) is False, or nothing is trained."""
        losses = np.full(len(clients), _NAN)
        if self.losses:
            losses[answered] = self.learner.losses_of(clients[answered], number, self.samples)
        return losses

    def accuracies_of(self, clients: IntArray, answered: BoolArray) -> FloatArray:
        """Return the accuracies (n,) of `clients` that tested the model; NaN where `answered` (n,) is False."""
        accuracies = np.full(len(clients), _NAN)
        accuracies[answered] = self.learner.accuracies_of(clients[answered])
        return accuracies

    def _answers(
        self, number: int, clients: IntArray, answered: BoolArray, *, test: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return (losses (n,), accuracies (n,) or None) that `clients` (n,) answered. After a `test` the losses are NaN;
        otherwise there are no accuracies.
        """
        if test:
            return np.full(len(clients), _NAN), self.accuracies_of(clients, answered)
        return self.losses_of(number, clients, answered), None

    def samples_of(self, client: int) -> int | None:
        """Return the number of samples that `client` evaluates; None if unknown."""
        return None if self.evaluated is None else int(self.evaluated[client])

    def open(self, number: int) -> None:
        """Begin to count the probes of the round; no client holds its model yet."""
        self._spent_s = 0.0
        self.holders = frozenset()

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return the probes, answers and seconds of the round."""
        asked, answered = self._before
        self._before = (self.asked, self.answered)
        return {"probes": self.asked - asked, "probes_answered": self.answered - answered, "probe_s": self._spent_s}

    def counts(self) -> dict[str, int]:
        """Return the probes and answers since the start of the run."""
        return {"probes": self.asked, "probes_answered": self.answered}

    def on_load(self) -> None:
        """Count the next round from the restored numbers."""
        self._before = self.asked, self.answered


class TimedProbing(Probing):
    """Probing by `probes`, over the links.

    A client that answered holds the model, and does not get it again if it is then selected, unless `reuse_model` is False.
    """

    state_fields = ("probes",)

    def __init__(
        self, *, probes: Probes, learner: ProbedModel, samples: int | None, reuse_model: bool = True, losses: bool = True
    ) -> None:
        super().__init__(
            clock=probes.pool.clock,
            learner=learner,
            samples=samples,
            evaluated=None,
            losses=losses,
            tests=probes.may_test,
        )
        self.probes = probes
        self.reuse_model = reuse_model

    @property
    def filled_columns(self) -> set[str]:
        """Columns of probes that this run fills, those of times and energy included."""
        filled = super().filled_columns | {*_TIMED}
        if self.probes.pool.energy is not None:
            filled |= {*_JOULES}
        if self.probes.counts_samples:
            filled.add("samples")
        return filled

    def samples_of(self, client: int) -> int | None:
        """Return the number of samples that `client` evaluates for the present question; None if unknown."""
        # Questions may differ in their samples: take those of the present question.
        evaluated = self.probes.evaluated
        return None if evaluated is None else int(evaluated[client])

    def ask(self, number: int, clients: IntArray, version: int, times: int = 0, test: bool = False) -> Process[Probed]:
        """Send the probes, wait for answers, record them, and return them."""
        start_s = self.clock.now
        self.asked += len(clients)
        probes = yield from self.probes.ask(number, clients, version, times=times, test=test)
        answered = np.array([not probe.censored for probe in probes], np.bool_)
        losses, accuracy = self._answers(number, clients, answered, test=test)
        self.answered += int(np.count_nonzero(answered))
        self._spent_s += self.clock.now - start_s
        self._record(_answers_by_client(clients, losses, accuracy))
        elapsed_s = np.array([_NAN if probe.censored else probe.outcome_s - probe.selected_s for probe in probes])
        if self.reuse_model:
            # Clients that answered earlier in this round hold the model, too.
            self.holders |= frozenset(clients[answered].tolist())
        return Probed(clients=clients, answered=answered, loss=losses, elapsed_s=elapsed_s, accuracy=accuracy)

    def _record(self, answers: dict[int, tuple[float, float]]) -> None:
        """Record the probes that have ended since the last call. `answers`: (loss, accuracy) by client."""
        for probe in self.probes.take_ends():
            loss, accuracy = answers.get(probe.client, (_NAN, _NAN))
            self.recorder.probe(self._row(probe, loss, accuracy))

    def _row(self, probe: Update, loss: float = _NAN, accuracy: float = _NAN) -> ProbeRow:
        """Return the record of an ended probe, with the answer."""
        return ProbeRow(
            round=probe.round,
            client=probe.client,
            outcome=probe.outcome,
            sent_s=probe.selected_s,
            download_start_s=probe.download_start_s,
            download_end_s=probe.download_end_s,
            compute_start_s=probe.compute_start_s,
            compute_end_s=probe.compute_end_s,
            upload_start_s=probe.upload_start_s,
            upload_end_s=probe.upload_end_s,
            outcome_s=probe.outcome_s,
            version=probe.version,
            samples=self.samples_of(probe.client),
            loss=loss,
            accuracy=accuracy,
            bytes_down=probe.bytes_down,
            bytes_up=probe.bytes_up,
            cause=probe.cause,
            compute_j=probe.compute_j,
            send_j=probe.send_j,
            receive_j=probe.receive_j,
        )

    def counts(self) -> dict[str, int]:
        """Return probes, answers and bytes since the start of the run."""
        return super().counts() | {"probe_bytes_down": self.probes.bytes_down, "probe_bytes_up": self.probes.bytes_up}

    def stop(self) -> None:
        """Record the probes of a round that the end of the run cuts short: answered, failed, and in flight."""
        # If the end of the run cuts the probes of a round short, those answered already are not recorded yet.
        with_answer = [probe for probe in self.probes.ends if not probe.censored]
        if with_answer:
            clients = np.array([probe.client for probe in with_answer], np.int64)
            answered = np.ones(len(with_answer), np.bool_)
            answers = self._answers(with_answer[0].round, clients, answered, test=self.probes.tests)
            self.answered += len(with_answer)
            self._record(_answers_by_client(clients, *answers))
        # The rest ended without an answer.
        self._record({})
        now = self.clock.now
        for probe in self.probes.account_unfinished():
            self.recorder.probe(self._row(probe)._replace(outcome="in_flight", outcome_s=now))


class FreeProbing(Probing):
    """Probing by an oracle: every client answers at once, and nothing is sent."""

    def ask(self, number: int, clients: IntArray, version: int, times: int = 0, test: bool = False) -> Process[Probed]:
        """Return the answers of all clients at once, and record them as probes that take no time."""
        yield from ()
        answered = np.ones(len(clients), np.bool_)
        losses, accuracy = self._answers(number, clients, answered, test=test)
        self.asked += len(clients)
        self.answered += len(clients)
        now = self.clock.now
        for client, (loss, client_accuracy) in _answers_by_client(clients, losses, accuracy).items():
            self.recorder.probe(
                ProbeRow(
                    round=number,
                    client=client,
                    outcome="delivered",
                    sent_s=now,
                    outcome_s=now,
                    version=version,
                    samples=self.samples_of(client),
                    loss=loss,
                    accuracy=client_accuracy,
                    edge=self._edge,
                )
            )
        return Probed(clients=clients, answered=answered, loss=losses, elapsed_s=np.zeros(len(clients)), accuracy=accuracy)


def _answers_by_client(clients: IntArray, losses: FloatArray, accuracies: FloatArray | None) -> dict[int, tuple[float, float]]:
    """Return (loss, accuracy) by client, for `clients` (n,); NaN for a value that was not requested."""
    if accuracies is None:
        accuracies = np.full(len(clients), _NAN)
    answers = zip(losses.tolist(), accuracies.tolist(), strict=True)
    return dict(zip(clients.tolist(), answers, strict=True))
