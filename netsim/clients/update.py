"""One update of a client, and its present attempt.

An update begins as the model is sent to its client. Most updates are sent back once: one attempt. Where clients keep an update
that was not delivered, it takes several attempts, one a round. A row of the client table is one attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from netsim.clients.steps.stages import COMPUTE, DOWNLOAD, STAGE_OF
from netsim.core.causes import END, MESSAGE, OPEN, SENT, Cause
from netsim.core.rows import LATER, UpdateRow

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray, State
    from netsim.network.draws import Draw, Ends
    from netsim.network.medium import Medium

BEGUN_BY = (OPEN, END, MESSAGE, SENT)
"""Causes of the beginnings of attempts that are simulated as arrays."""
OUTCOMES = ("delivered", "lost", "late", "aborted")
"""Outcomes of an attempt. `netsim.clients.vectorised.columns` stores indices of this tuple."""
Drawn = Literal["download", "downlink", "compute", "sample", "upload", "uplink"]
"""Names of the draws of an update: durations of phases and samples, and losses by links."""
WorkOfUpdate = tuple[int, int | None, int | None]
"""Work of an update: local steps requested (0: as planned), samples processed, steps taken (None if unknown)."""
_NAN = float("nan")
_EVER = float("inf")
# Saved fields of an update, as plain data. Its draws and its pending call are rebuilt from them.
FIELDS = (
    "begun_round",
    "place",
    "send_place",
    "phase",
    "phase_start_s",
    "due_s",
    "departure_s",
    "away_s",
    "ends_s",
    "drawing",
    "metered_s",
    "charged",
    "budget",
    "survives",
    "tries",
    "sent_s",
    "drawn_steps",
    "handed_over",
    "work_samples",
    "work_steps",
    *(name for name in UpdateRow._fields if name not in LATER),
)
# Reads all columns of the client table from an update in one call: a row is made for each attempt.
_RECORDED: Callable[[Update], tuple[Any, ...]] = attrgetter(*UpdateRow._fields)


class _Draws:
    """Base of the draws (random numbers) of `clients` (n,), whose messages begin together in a round at `time_s`.

    `DRAWN`: names of the attributes that hold the draws, and of their sources in the medium.
    """

    DRAWN: ClassVar[tuple[Drawn, ...]]

    __slots__ = ("clients", "round", "started_s")

    def __init__(self, round: int, time_s: float, clients: IntArray) -> None:
        self.round = round
        self.started_s = time_s
        self.clients = clients

    def state_dict(self) -> State:
        """Return the drawn values. They cannot be drawn again, because the states of channels have moved on."""
        values: State = {name: getattr(self, name).state_dict() for name in self.DRAWN}
        return {"round": self.round, "clients": self.clients.copy(), "started_s": self.started_s, **values}

    @classmethod
    def restore(cls, medium: Medium, state: State) -> Self:
        """Return the draws of a saved state."""
        round, time_s, clients = state["round"], state["started_s"], state["clients"].copy()
        draws = cls(round, time_s, clients)
        for name in cls.DRAWN:
            setattr(draws, name, getattr(medium, name).redraw(round, time_s, clients, state[name]))
        return draws


class ModelDraws(_Draws):
    """Draws of updates that begin together in a round: download, loss of the download, local training."""

    DRAWN = ("downlink", "download", "compute", "sample")

    __slots__ = DRAWN
    download: Ends
    downlink: Draw[bool]
    compute: Draw[float]
    sample: Draw[float]

    # Written out, not a loop over `DRAWN`, for speed: a server that sends models one by one draws for each update.
    @classmethod
    def draw(cls, medium: Medium, round: int, time_s: float, clients: IntArray) -> ModelDraws:
        """Draw for updates that `clients` (n,) begin in `round` at `time_s`."""
        draws = cls(round, time_s, clients)
        draws.downlink = medium.downlink.draw(round, time_s, clients)
        draws.download = medium.download.draw(round, time_s, clients)
        draws.compute = medium.compute.draw(round, time_s, clients)
        draws.sample = medium.sample.draw(round, time_s, clients)
        return draws


class SendDraws(_Draws):
    """Draws of the attempts of a round: the upload, and its loss by the client's own link."""

    DRAWN = ("upload", "uplink")

    __slots__ = DRAWN
    upload: Ends
    uplink: Draw[bool]

    @classmethod
    def draw(cls, medium: Medium, round: int, time_s: float, clients: IntArray) -> SendDraws:
        """Draw for attempts that `clients` (n,) begin in `round` at `time_s`."""
        draws = cls(round, time_s, clients)
        draws.upload = medium.upload.draw(round, time_s, clients)
        draws.uplink = medium.uplink.draw(round, time_s, clients)
        return draws


class Queueing(Protocol):
    """The step in which an update waits for its turn on the uplink (`netsim.clients.steps.access`)."""

    def enter(self, update: Update, now: float) -> None:
        """Begin the next step of an update that has its turn."""

    def yield_turn(self, update: Update, now: float) -> None:
        """End the attempt of an update that leaves as its turn comes."""


class Update:
    """One update and its present attempt.

    Times are seconds, NaN where a step was not reached. Attributes named like columns of the client table belong to the
    attempt. If an update takes several attempts, each phase is recorded in the attempt in which it ended.
    """

    __slots__ = (*FIELDS, "call_number", "end_number", "model_draws", "queued_by", "send_draws", "watts")
    queued_by: Queueing
    """Step in which the update waits for the uplink, or last waited."""
    # Columns of training losses: None here, because losses are known only after the attempt has ended, when its row is made.
    loss = loss_rms = None

    def __init__(
        self,
        client: int,
        round: int,
        version: int,
        place: int,
        now_s: float,
        draws: ModelDraws,
        work: WorkOfUpdate,
        group: str | None = None,
    ) -> None:
        self.client = client
        self.group = group
        self.begun_round = round
        """Round in which the model was sent to the client. Together with the client it addresses the draws."""
        self.version = version
        """Version of the model that the update starts from."""
        self.place = place
        """Position among the clients of `model_draws`."""
        self.model_draws = draws
        self.send_draws: SendDraws
        """Draws of the present attempt."""
        self.number = 0
        """Number of the present attempt in the client table; 0: it is a probe."""
        self.edge: str | None = None
        """Name of the edge that began the present attempt; None: there are no edges."""
        self.phase = DOWNLOAD
        """Present step of the update (`netsim.clients.steps.stages`)."""
        self.phase_start_s = self.due_s = now_s
        """Times at which the present phase began, and at which its next event is due; inf if no event is known."""
        self.drawn_steps, self.work_samples, self.work_steps = work
        self.handed_over = False
        """True if another edge began the update, in a round of its own."""
        self.charged = False
        """True if privacy was spent on the update."""
        self.budget = _NAN
        """Privacy spent on the update, epsilon."""
        self.jammed: bool | None = None
        """True if a jammer hit the present (or last) transfer; None if none could."""
        self.survives = True
        """True if the client's link lets the present (or last) transfer through; decided when the transfer begins."""
        self.tries = 0
        """Number of times that the message of the present (or last) transfer was sent again, if lost messages are."""
        self.sent_s = now_s
        """Time at which this message was sent last, if lost messages are sent again; inf in the pause before it is sent again."""
        self.drawing = 0
        """State of the client (`netsim.clients.power.power_integral`), if energy is counted."""
        self.metered_s = now_s
        """Time up to which the columns of the attempt include the energy of this state."""
        self.watts: tuple[float, ...]
        """Powers of its client by state, watts."""
        self.ends_s = _EVER
        """With batteries: time at which the present phase ends if the client stays; inf if unknown."""
        self.call_number = -1
        """Number of the clock's call that ends the present step; -1 if none is scheduled."""

    def begin_attempt(
        self,
        round: int,
        age_rounds: int,
        departure_s: float,
        now_s: float,
        draws: SendDraws,
        place: int,
        channel: int | None,
        begun: Cause | None = None,
    ) -> None:
        """Begin an attempt in `round`: set every column of its record to the value at the beginning, but for those of the update
        (client, group, version, loss), and for `jammed` while the model is on its way.

        `age_rounds`: rounds since the client's last delivery. `departure_s`: time at which the client will go away. `place`:
        position of the client in `draws`. `channel`: assigned sub-channel, or None. `begun`: cause of the attempt; None: the
        opening of the round. The caller then sets the `number` of the attempt, and its `edge`.
        """
        # Attribute by attribute, not from a dictionary, for speed: every attempt of a run passes here.
        self.send_draws = draws
        self.send_place = place
        """Position among the clients of `send_draws`."""
        self.away_s = departure_s
        """Time at which the client will go away. Only the engine knows it beforehand."""
        self.departure_s = departure_s
        """Time at which the attempt is cut off: `away_s`, or the time at which the battery will be empty if that is earlier."""
        self.round = round
        self.age_rounds = age_rounds
        self.selected_s = now_s
        self.channel = channel
        self.outcome = ""
        self.end_number = -1
        """Number of the attempt among those that have ended, in the order of their ends; -1 while it is in flight."""
        self.outcome_s = _NAN
        self.censored = True
        self.cause: str | None = None
        self.epsilon = self.leak = _NAN
        self.download_start_s = self.download_end_s = self.compute_start_s = self.compute_end_s = _NAN
        self.upload_start_s = self.upload_end_s = _NAN
        self.good: bool | None = None
        if self.phase != DOWNLOAD:
            # A model that is still on its way may have been hit in an earlier attempt.
            self.jammed = None
        self.collided: bool | None = None
        self.begun_by, self.begun_after = begun or Cause(OPEN, round)
        self.sent_after: int | None = None
        self.kind: str | None = None
        self.started_round: int | None = None
        self.age_after_rounds: int | None = None
        self.age_after_s: float | None = None
        self.bytes_down = self.bytes_up = 0
        self.samples: int | None = None
        self.steps: int | None = None
        self.compute_j: Any = None
        self.send_j: Any = None
        self.receive_j: Any = None

    def successor(self) -> Update:
        """Return a second object of this update for its next attempt, so that the record of the ended attempt stays as it is."""
        other = Update.__new__(Update)
        for name in (*FIELDS, "model_draws", "send_draws"):
            setattr(other, name, getattr(self, name))
        # The end of the old attempt has accounted for its energy, and its call of the clock is stale.
        other.drawing, other.call_number = 0, -1
        return other

    def compute_from(self, start_s: float) -> None:
        """Record that local training begins, or began, at `start_s`."""
        self.compute_start_s, self.samples, self.steps = start_s, self.work_samples, self.work_steps

    def row(self) -> UpdateRow:
        """Return the record of the present attempt."""
        # `tuple.__new__` instead of `_make`, for speed: it checks no length, and there is a value for each field.
        return tuple.__new__(UpdateRow, _RECORDED(self))

    def erase_phase(self) -> None:
        """Remove the present phase from the record of the attempt: a phase is recorded in the attempt in which it ends."""
        if self.phase == COMPUTE:
            self.samples = self.steps = None
        if self.phase in STAGE_OF:
            setattr(self, STAGE_OF[self.phase].start, _NAN)

    def unfinished_row(self, now_s: float) -> UpdateRow:
        """Return the record of an attempt still in flight at the end of the run, without a phase that began in an earlier one.
        """
        if self.started_round is not None and self.phase_start_s < self.selected_s:
            self.erase_phase()
        return self.row()._replace(outcome="in_flight", outcome_s=now_s)


def renew_draws(name: Drawn, medium: Medium, updates: Iterable[Update], now_s: float) -> None:
    """Evaluate the draws `name` of `updates` again under a new law of `medium`, with the same uniform random numbers.

    Updates of a round share their draws, so each set is renewed once. Most draws evaluate themselves again when they are read
    next (`expire`). A constant, the same for all clients, cannot (`expire` returns False), so its source draws it again.
    """
    source = getattr(medium, name)
    distinct: dict[int, ModelDraws | SendDraws] = {}
    of_attempt = name in SendDraws.DRAWN
    for update in updates:
        if of_attempt and update.outcome:
            # The attempt is over: the next one gets new draws.
            continue
        draws = update.send_draws if of_attempt else update.model_draws
        distinct[id(draws)] = draws
    for draws in distinct.values():
        if not getattr(draws, name).expire():
            setattr(draws, name, source.draw(draws.round, now_s, draws.clients))
