"""Jammers: actors that decide at the start of every dwell which sub-channels to jam, within a budget.

A dwell lasts a number of rounds (it then begins as a round opens) or of seconds (it then begins at a multiple of them, in the
middle of a round or not). What a law decides is checked: no more than is allowed, and only what is in reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.clock import NORMAL
from netsim.core.errors import AnswerError, ParameterError
from netsim.core.jamming import JammerLaw, JamView
from netsim.core.rows import JamRow
from netsim.network.jammable import Jam, Jammable

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import IntArray, State
    from netsim.core.streams import Stream
    from netsim.records.sinks import Recorder

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dwells:
    """Schedule of a jammer's dwells: one every so many rounds, or every so many seconds.

    Raises ValueError unless it is one of the two, and where the first of them is no such round or time.
    """

    dwell_rounds: int | None = None
    dwell_s: float | None = None
    start: float | None = None
    """The round, or the time in seconds, of the first; None: from the beginning, inf: it rests until it is started."""

    def __post_init__(self) -> None:
        if (self.dwell_rounds is None) == (self.dwell_s is None):
            raise ParameterError("dwell_s", self.dwell_s, "give either dwell_rounds or dwell_s")
        if self.dwell_rounds is not None and self.dwell_rounds < 1:
            raise ParameterError("dwell_rounds", self.dwell_rounds, "must be at least 1")
        if self.dwell_s is not None and not 0 < self.dwell_s < _NEVER:
            raise ParameterError("dwell_s", self.dwell_s, "must be > 0 seconds and finite")
        first, by_rounds = self.first, self.dwell_s is None
        if first == _NEVER:
            return
        if not (first >= (1.0 if by_rounds else 0.0) and (not by_rounds or first == int(first))):
            raise ParameterError("start", self.start, f"must be {'a round from 1 on' if by_rounds else '>= 0 seconds'}")

    @property
    def first(self) -> float:
        """The round, or the time, of the first."""
        if self.start is not None:
            return self.start
        return 1.0 if self.dwell_s is None else 0.0


class Jammer:
    """One jammer: its law, its reach, its budget, and what it does at present. Links and cables are sub-channels to it.

    `reach`: the sub-channels it can jam (None: all). `at_once`: how many of them at most in one dwell. `budget`: how many in all,
    each dwell counted (None: no end). Raises ValueError where one of these is out of its range.
    """

    def __init__(
        self,
        *,
        name: str,
        law: JammerLaw,
        channels: int,
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
        reached = list(range(channels)) if reach is None else sorted(reach)
        if not reached or reached[0] < 0 or reached[-1] >= channels or len(set(reached)) < len(reached):
            raise ParameterError("reach", reach, f"must name at least one sub-channel, each once, all from 0 to {channels - 1}")
        self.name = name
        self.law = law
        self.reach: IntArray = np.array(reached, np.int64)
        self.at_once = min(at_once, len(reached))
        self.budget = budget
        self.dwell_rounds = dwells.dwell_rounds
        self.dwell_s = dwells.dwell_s
        self.dwell = 0
        """Dwells begun."""
        self.spent = 0
        """Sub-channels times dwells so far."""
        self.jams: list[Jam] = []
        """Jams under way."""
        first = dwells.first
        self.next_round = None if first == _NEVER or self.dwell_s is not None else int(first)
        self.next_s = _NEVER if self.dwell_s is None else first
        # Dwells in seconds begin at multiples of their length, counted from here.
        self._since = (first, 0)
        self._draws = draws
        self._begun: IntArray = np.zeros(channels, np.int64)
        self._delivered: IntArray = np.zeros(channels, np.int64)

    @property
    def allowed(self) -> int:
        """Return the number of sub-channels that the budget allows in the next dwell."""
        return self.at_once if self.budget is None else min(self.at_once, self.budget - self.spent)

    def decide(self, round: int, time_s: float, spectrum: Jammable[Any], recorder: Recorder) -> None:
        """End the present dwell and begin the next."""
        self.stop(time_s, spectrum, recorder)
        self.dwell += 1
        allowed = self.allowed
        if allowed == 0:
            self.next_round, self.next_s = None, _NEVER
            return
        if self.dwell_s is None:
            self.next_round = round + (self.dwell_rounds or 1)
        else:
            since_s, dwell = self._since
            # The clock goes on, though a dwell be shorter than the least it can show at this time.
            self.next_s = max(since_s + (self.dwell - dwell) * self.dwell_s, math.nextafter(time_s, _NEVER))
        begun, delivered = np.array(spectrum.begun, np.int64), np.array(spectrum.delivered, np.int64)
        view = JamView(
            dwell=self.dwell,
            time_s=time_s,
            reach=self.reach,
            allowed=allowed,
            used=begun - self._begun,
            delivered=delivered - self._delivered,
            busy=np.array([bool(those) for those in spectrum.under_way], np.bool_),
            rng=self._draws.generator(self.dwell),
        )
        self._begun, self._delivered = begun, delivered
        for channel in self._check_choice(self.law.choose(view), allowed):
            jam = Jam(jammer=self.name, channel=channel, round=round, start_s=time_s)
            self.jams.append(jam)
            self.spent += 1
            spectrum.jam(jam, time_s)

    def stop(self, time_s: float, spectrum: Jammable[Any], recorder: Recorder) -> None:
        """End the present dwell, and record it."""
        for jam in self.jams:
            spectrum.clear(jam)
            recorder.jam(JamRow(jam.round, jam.jammer, jam.channel, jam.start_s, time_s, jam.hit, jam.destroyed))
        self.jams = []

    def follow(self, law: JammerLaw) -> None:
        """From its next dwell on another law decides."""
        self.law = law

    @property
    def rests(self) -> bool:
        """True if no dwell is under way and none will begin by itself."""
        return not self.jams and self.next_round is None and self.next_s == _NEVER

    def begin(self, round: int, time_s: float) -> None:
        """Its dwells begin: with round `round`, or, counted in seconds, now."""
        if self.dwell_s is None:
            self.next_round = round
        else:
            self.next_s, self._since = time_s, (time_s, self.dwell)

    def rest(self, time_s: float, spectrum: Jammable[Any], recorder: Recorder) -> None:
        """Its present dwell ends now, and none follows until it begins again."""
        self.stop(time_s, spectrum, recorder)
        self.next_round, self.next_s = None, _NEVER

    def _check_choice(self, chosen: IntArray, allowed: int) -> list[int]:
        # A law may be the user's own: what it returns is checked before it can do harm.
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
        """Return the energy spent, the observations, the jams under way and the time of the next decision."""
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

    def load_state_dict(self, state: State, spectrum: Jammable[Any]) -> None:
        """Go on from a saved state, with the jamming that was under way."""
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
    """All jammers of a run, on its clock. Nothing is scheduled unless one of them counts in seconds.

    `priority`: place of dwells that begin at a time among the calls of their instant, where no transmission begins then.
    """

    def __init__(
        self,
        *,
        jammers: list[Jammer],
        clock: Clock,
        spectrum: Jammable[Any],
        recorder: Recorder,
        priority: int = NORMAL,
    ) -> None:
        names = [jammer.name for jammer in jammers]
        if len(set(names)) < len(names):
            raise ParameterError("name", names, "every jammer needs a name of its own")
        self.all = jammers
        self._recorder = recorder
        self.next_s = _NEVER
        self._clock = clock
        self._priority = priority
        self._spectrum = spectrum
        self._round = 0
        self._called_s = _NEVER
        self._number = -1
        """Of the last call of the clock."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self._recorder = recorder

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def channels(self) -> int:
        """Number of sub-channels that can be jammed."""
        return self._spectrum.count

    @property
    def spent(self) -> int:
        """Sub-channels times dwells so far, of all of them."""
        return sum(jammer.spent for jammer in self.all)

    @property
    def call(self) -> int:
        """The number of the call of the clock by which the next dwell begins that begins at a time; -1: there is none."""
        return self._number if self._clock.now < self.next_s < _NEVER else -1

    def open_round(self, round: int) -> None:
        """Decide for jammers whose dwell begins with this round, after those whose time has come."""
        self._round = round
        if round == 1:
            self.arm()
        self.catch_up()
        for jammer in self.all:
            if jammer.next_round is not None and round >= jammer.next_round:
                jammer.decide(round, self._clock.now, self._spectrum, self._recorder)

    def catch_up(self) -> None:
        """Let every jammer whose dwell begins by now decide. Transmissions call it as they begin: jamming precedes them."""
        now = self._clock.now
        while self.next_s <= now:
            for jammer in self.all:
                if jammer.next_s == self.next_s:
                    jammer.decide(self._round, self.next_s, self._spectrum, self._recorder)
            self.arm()

    def find(self, name: str) -> Jammer:
        """The jammer of that name; raises ValueError where there is none."""
        for jammer in self.all:
            if jammer.name == name:
                return jammer
        raise ParameterError("name", name, f"there is no such jammer; there are {', '.join(one.name for one in self.all)}")

    def start(self, name: str) -> None:
        """Let a jammer begin: with the next round, or, with dwells in seconds, now. Raises ValueError unless it rests."""
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
        """Let a jammer rest from now on. Raises ValueError where it does already."""
        jammer = self.find(name)
        if jammer.rests:
            raise ParameterError("name", name, "this jammer rests already; start it before it is stopped")
        jammer.rest(self._clock.now, self._spectrum, self._recorder)
        self.arm()

    def arm(self) -> None:
        """Put the next dwell that begins at a time on the clock."""
        self.next_s = min((jammer.next_s for jammer in self.all), default=_NEVER)
        if self._clock.now < self.next_s < _NEVER and self._called_s != self.next_s:
            self._called_s = self.next_s
            self._number = self._clock.call_at(self.next_s, self._rings, None, self._priority)

    def _rings(self, payload: None) -> None:
        self.catch_up()

    def stop(self) -> None:
        """The run is over: record what is being jammed."""
        for jammer in self.all:
            jammer.stop(self._clock.now, self._spectrum, self._recorder)

    def state_dict(self) -> State:
        """Every jammer's state by name."""
        return {jammer.name: jammer.state_dict() for jammer in self.all}

    def load_state_dict(self, state: State, round: int) -> None:
        """Go on from a saved state; who is next is put on the clock by `arm`, among the ends of what is under way."""
        self._round = round
        for jammer in self.all:
            jammer.load_state_dict(state[jammer.name], self._spectrum)
        # Jammers of one sub-channel are kept in the order in which they began.
        for jam in sorted((jam for jammer in self.all for jam in jammer.jams), key=lambda jam: jam.order):
            self._spectrum.jams[jam.channel].append(jam)
