"""Jammers: actors that decide at the start of every dwell (a stretch of time) which sub-channels to jam, within a budget.

A dwell lasts a number of rounds, and then begins as a round opens, or a number of seconds, and then begins at a multiple of them,
also within a round. The answer of a law is checked: no more sub-channels than allowed, and only sub-channels in reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.clock import NORMAL
from netsim.core.errors import AnswerError, ParameterError, check_unique
from netsim.core.jamming import JammerLaw, JamView
from netsim.core.rows import JamRow
from netsim.network.jammable import Jam, Jammable

if TYPE_CHECKING:
    from collections.abc import Callable

    from netsim.core.clock import Clock
    from netsim.core.protocols import IntArray, State
    from netsim.core.streams import Stream
    from netsim.records.sinks import Recorder

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dwells:
    """Schedule of a jammer's dwells: one every `rounds` rounds, or every `seconds` seconds.

    Raises ValueError unless exactly one is given, and for an invalid `start`.
    """

    dwell_rounds: int | None = None
    dwell_s: float | None = None
    start: float | None = None
    """Round or time in seconds of the first dwell; None: the beginning; inf: the jammer rests until it is started."""

    def __post_init__(self) -> None:
        if (self.dwell_rounds is None) == (self.dwell_s is None):
            raise ParameterError("dwell_s", self.dwell_s, "give either dwell_rounds or dwell_s")
        if self.dwell_rounds is not None and self.dwell_rounds < 1:
            raise ParameterError("dwell_rounds", self.dwell_rounds, "must be at least 1")
        if self.dwell_s is not None and not 0 < self.dwell_s < _NEVER:
            raise ParameterError("dwell_s", self.dwell_s, "must be > 0 seconds and finite")
        first = self.first
        if first == _NEVER:
            return
        if self.dwell_s is None:
            if not (first >= 1.0 and first == int(first)):
                raise ParameterError("start", self.start, "must be a round from 1 on")
        elif not first >= 0.0:
            raise ParameterError("start", self.start, "must be >= 0 seconds")

    @property
    def first(self) -> float:
        """Round (dwells in rounds) or time in seconds of the first dwell."""
        if self.start is not None:
            return self.start
        return 1.0 if self.dwell_s is None else 0.0


class Jammer:
    """One jammer: its law, reach, budget, and present jamming.

    `target`: sub-channels that it jams; links and cables count as sub-channels here. `reach`: those that it can jam (None: all).
    `at_once`: largest number of them in one dwell. `budget`: largest sum over dwells of the numbers of jammed sub-channels
    (None: unlimited). Raises ValueError for a value out of range.
    """

    def __init__(
        self,
        *,
        name: str,
        law: JammerLaw,
        target: Jammable[Any],
        draws: Stream,
        dwells: Dwells,
        reach: list[int] | None = None,
        at_once: int = 1,
        budget: int | None = None,
    ) -> None:
        if at_once < 1:
            raise ParameterError("at_once", at_once, "must be at least 1 sub-channel")
        if budget is not None and budget < 0:
            raise ParameterError("budget", budget, "must be >= 0 sub-channels times dwells")
        channels = target.count
        reached = list(range(channels)) if reach is None else sorted(reach)
        if not reached or reached[0] < 0 or reached[-1] >= channels or len(set(reached)) < len(reached):
            raise ParameterError("reach", reach, f"must name at least one channel, each once, all from 0 to {channels - 1}")
        self.name = name
        self.law = law
        self.target = target
        """Sub-channels, links or cables that it jams."""
        self.reach: IntArray = np.array(reached, np.int64)
        self.at_once = min(at_once, len(reached))
        self.budget = budget
        self.dwell_rounds = dwells.dwell_rounds
        self.dwell_s = dwells.dwell_s
        self.dwell = 0
        """Number of dwells begun."""
        self.spent = 0
        """Sum over dwells of the numbers of jammed sub-channels so far."""
        self.jams: list[Jam] = []
        """Jams in progress."""
        first = dwells.first
        self.next_round = None if first == _NEVER or self.dwell_s is not None else int(first)
        """Round with which the next dwell begins; None if dwells are in seconds or none is planned."""
        self.next_s = _NEVER if self.dwell_s is None else first
        """Time of the next dwell; inf if dwells are in rounds or none is planned."""
        self._since = (first, 0)
        """Time after which dwells in seconds begin, at multiples of their length, and number of dwells before it."""
        self._draws = draws
        self._begun: IntArray = np.zeros(channels, np.int64)
        """Transmissions begun on each sub-channel (N,) up to the last dwell: the law sees the difference."""
        self._delivered: IntArray = np.zeros(channels, np.int64)
        """Transmissions delivered on each sub-channel (N,) up to the last dwell."""

    @property
    def allowed(self) -> int:
        """Number of sub-channels that the jammer may jam in the next dwell."""
        return self.at_once if self.budget is None else min(self.at_once, self.budget - self.spent)

    def decide(self, round: int, time_s: float, recorder: Recorder) -> None:
        """End the present dwell, ask the law which sub-channels to jam, and jam them; rest if the budget is spent."""
        self.stop(time_s, recorder)
        self.dwell += 1
        allowed = self.allowed
        if allowed == 0:
            self.next_round, self.next_s = None, _NEVER
            return
        if self.dwell_s is None:
            self.next_round = round + (self.dwell_rounds or 1)
        else:
            since_s, dwells_before = self._since
            # Move by at least one float: a very short dwell would otherwise not advance the clock.
            self.next_s = max(since_s + (self.dwell - dwells_before) * self.dwell_s, math.nextafter(time_s, _NEVER))
        # The law sees the counts since the last dwell. Copies, because the lists of the target go on changing.
        target = self.target
        begun, delivered = np.array(target.begun, np.int64), np.array(target.delivered, np.int64)
        view = JamView(
            dwell=self.dwell,
            time_s=time_s,
            reach=self.reach,
            allowed=allowed,
            used=begun - self._begun,
            delivered=delivered - self._delivered,
            busy=np.array([bool(sent) for sent in target.under_way], np.bool_),
            rng=self._draws.generator(self.dwell),
        )
        self._begun, self._delivered = begun, delivered
        for channel in self._check_choice(self.law.choose(view), allowed):
            jam = Jam(jammer=self.name, channel=channel, round=round, start_s=time_s)
            self.jams.append(jam)
            self.spent += 1
            target.jam(jam, time_s)

    def stop(self, time_s: float, recorder: Recorder) -> None:
        """End the present dwell, and record it."""
        for jam in self.jams:
            self.target.clear(jam)
            row = JamRow(
                round=jam.round,
                jammer=jam.jammer,
                channel=jam.channel,
                start_s=jam.start_s,
                end_s=time_s,
                hit=jam.hit,
                destroyed=jam.destroyed,
            )
            recorder.jam(row)
        self.jams = []

    def follow(self, law: JammerLaw) -> None:
        """Replace the law from the next dwell on."""
        self.law = law

    @property
    def rests(self) -> bool:
        """True if no dwell is in progress and none will begin by itself."""
        return not self.jams and self.next_round is None and self.next_s == _NEVER

    def lasting_channels(self) -> set[int]:
        """Return the sub-channels that are jammed now and stay so, unless another round opens."""
        present = {jam.channel for jam in self.jams}
        if self.dwell_s is None or not present:
            # Dwells in rounds end as a round opens.
            return present
        if self.budget is not None:
            # A budget is spent some day.
            return set()
        # The law itself must promise the same choice in every dwell.
        return present & set(self.law.constant_choice(self.reach, self.allowed).tolist())

    def begin(self, round: int, time_s: float) -> None:
        """Start the dwells: with round `round`, or now if they are counted in seconds."""
        if self.dwell_s is None:
            self.next_round = round
        else:
            self.next_s = time_s
            self._since = (time_s, self.dwell)

    def rest(self, time_s: float, recorder: Recorder) -> None:
        """End the present dwell now and plan no other, until `begin`."""
        self.stop(time_s, recorder)
        self.next_round, self.next_s = None, _NEVER

    def _check_choice(self, chosen: IntArray, allowed: int) -> list[int]:
        """Return the sub-channels that the law chose, as a list; raises AnswerError for any other answer."""
        # The law may be a user's class, so its answer is checked before use.
        chosen = np.asarray(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise AnswerError("jammer", "choose", chosen, "expected a 1-d array of sub-channels", name=self.name)
        channels: list[int] = chosen.tolist()
        if len(channels) > allowed:
            raise AnswerError("jammer", "choose", channels, f"its budget allows {allowed} sub-channels now", name=self.name)
        if len(set(channels)) < len(channels) or not set(channels) <= set(self.reach.tolist()):
            reason = f"each must be one of {self.reach.tolist()}, named once"
            raise AnswerError("jammer", "choose", channels, reason, name=self.name)
        return channels

    def state_dict(self) -> State:
        """Return the budget spent, the observations, the jams in progress and the time of the next decision."""
        return {
            "law": self.law.state_dict(),
            "dwell": self.dwell,
            "spent": self.spent,
            "next_round": self.next_round,
            "next_s": self.next_s,
            "since": self._since,
            "begun": self._begun.copy(),
            "delivered": self._delivered.copy(),
            "jams": [{name: getattr(jam, name) for name in Jam.__slots__} for jam in self.jams],
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state, with the jamming in progress. `Jammers` puts it back on the target."""
        self.law.load_state_dict(state["law"])
        self.dwell, self.spent = state["dwell"], state["spent"]
        self.next_round, self.next_s = state["next_round"], state["next_s"]
        self._since = (state["since"][0], state["since"][1])
        self._begun, self._delivered = state["begun"].copy(), state["delivered"].copy()
        self.jams = []
        for saved in state["jams"]:
            jam = Jam(jammer=saved["jammer"], channel=saved["channel"], round=saved["round"], start_s=saved["start_s"])
            jam.order, jam.hit, jam.destroyed = saved["order"], saved["hit"], saved["destroyed"]
            self.jams.append(jam)


class Jammers:
    """Jammers whose dwells count the same rounds, on the clock of a run. Their targets may differ.

    Nothing is scheduled unless a jammer counts in seconds. `priority`: priority of the calls that begin dwells, among the calls
    of their instant.
    """

    def __init__(
        self,
        *,
        jammers: list[Jammer],
        clock: Clock,
        recorder: Recorder,
        priority: int = NORMAL,
    ) -> None:
        check_unique([jammer.name for jammer in jammers])
        self.all = jammers
        self._recorder = recorder
        self.next_s = _NEVER
        """Time of the next dwell that is counted in seconds; inf: none is planned."""
        self._clock = clock
        self._priority = priority
        self._round = 0
        """Round under way, or the last one; 0: none has opened yet."""
        self._called_s = _NEVER
        """Time of the last call of the clock that was scheduled for a dwell."""
        self._number = -1
        """Number of the last call of the clock that this object scheduled."""
        self._next_act_s: Callable[[], float] = lambda: _NEVER

    def expect(self, next_act_s: Callable[[], float]) -> None:
        """Ask `next_act_s` for the time of a script's next act, which may stop a jammer; inf: none is planned."""
        self._next_act_s = next_act_s

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self._recorder = recorder

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def spent(self) -> int:
        """Sum of `Jammer.spent` over all jammers."""
        return sum(jammer.spent for jammer in self.all)

    @property
    def call(self) -> int:
        """Number of the clock's call that begins the next dwell counted in seconds; -1: none."""
        return self._number if self._clock.now < self.next_s < _NEVER else -1

    def jammed_for_ever(self) -> set[int]:
        """Return the channels that are jammed now and stay so, unless another round opens: nothing planned ends it."""
        if self._next_act_s() < _NEVER:
            return set()
        return {channel for jammer in self.all for channel in jammer.lasting_channels()}

    def open_round(self, round: int) -> None:
        """Begin dwells that start with this round, after dwells in seconds that are due."""
        # The first round may not be number 1: an edge that the model of round 1 does not reach begins with a later one.
        is_first = self._round == 0
        self._round = round
        if is_first:
            self.arm()
        # Dwells in seconds that are due now began before the round opened, so they come before dwells in rounds.
        self.catch_up()
        for jammer in self.all:
            if jammer.next_round is not None and round >= jammer.next_round:
                jammer.decide(round, self._clock.now, self._recorder)

    def catch_up(self) -> None:
        """Begin all dwells in seconds that are due by now.

        Transmissions call it before they begin, because jamming precedes them.
        """
        now = self._clock.now
        # One instant of dwells after the other. Within an instant jammers decide in their order in the scenario: of two jams on
        # one channel the first has the hits.
        while self.next_s <= now:
            for jammer in self.all:
                if jammer.next_s == self.next_s:
                    jammer.decide(self._round, self.next_s, self._recorder)
            self.arm()

    def find(self, name: str) -> Jammer:
        """Return the jammer of this name; raises ValueError if there is none."""
        for jammer in self.all:
            if jammer.name == name:
                return jammer
        names = [jammer.name for jammer in self.all]
        raise ParameterError("name", name, f"there is no such jammer; there are {', '.join(names)}")

    def start(self, name: str) -> None:
        """Start a jammer: with the next round, or now with dwells in seconds. Raises ValueError unless it rests."""
        jammer = self.find(name)
        if not jammer.rests:
            raise ParameterError("name", name, "this jammer is at work already; stop it before it is started again")
        if not jammer.allowed:
            raise ParameterError("name", name, f"this jammer has spent its budget of {jammer.budget}; give it more")
        jammer.begin(self._round + 1, self._clock.now)
        self.arm()
        if self._round:
            self.catch_up()

    def halt(self, name: str) -> None:
        """Stop a jammer until it is started again. Raises ValueError if it rests already."""
        jammer = self.find(name)
        if jammer.rests:
            raise ParameterError("name", name, "this jammer rests already; start it before it is stopped")
        jammer.rest(self._clock.now, self._recorder)
        self.arm()

    def arm(self) -> None:
        """Schedule the next dwell that is counted in seconds."""
        # A dwell of this very instant is begun by `catch_up`, without a call; a call already set for this time is kept.
        self.next_s = min((jammer.next_s for jammer in self.all), default=_NEVER)
        if self._clock.now < self.next_s < _NEVER and self._called_s != self.next_s:
            self._called_s = self.next_s
            self._number = self._clock.call_at(self.next_s, self._on_alarm, None, self._priority)

    def _on_alarm(self, payload: None) -> None:
        """Callback at the time of the next dwell."""
        self.catch_up()

    def stop(self) -> None:
        """Record the jamming in progress at the end of the run."""
        for jammer in self.all:
            jammer.stop(self._clock.now, self._recorder)

    def state_dict(self) -> State:
        """Return every jammer's state, by name."""
        return {jammer.name: jammer.state_dict() for jammer in self.all}

    def load_state_dict(self, state: State, round: int) -> None:
        """Restore a saved state. The caller schedules the next dwell by `arm`, in the right order among other events."""
        self._round = round
        for jammer in self.all:
            jammer.load_state_dict(state[jammer.name])
        # Keep the jams of a sub-channel in the order in which they began.
        jams = [(jam, jammer.target) for jammer in self.all for jam in jammer.jams]
        for jam, target in sorted(jams, key=lambda pair: pair[0].order):
            target.jams[jam.channel].append(jam)
