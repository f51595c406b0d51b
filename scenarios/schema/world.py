"""Tables of a scenario file about its world: clients, laws of time, links, sub-channels, change points."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue

from scenarios.registry.components import component_of
from scenarios.schema.peers import PeerKeys, ResendKeys
from scenarios.schema.per_client import PER_CLIENT_JSON, PerClientField, read_per_client
from scenarios.schema.section import Section, missing, problem, refusal
from scenarios.schema.servers.slotted import OpinionKeys

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
Rounds = Annotated[float, Field(ge=1)]
_OUTAGE_TIMES = (
    ("from_s", "to_s"),
    ("from_round", "to_round"),
    ("mean_up_s", "mean_down_s"),
    ("mean_up_rounds", "mean_down_rounds"),
)
"""Pairs of keys with the times of an outage. An outage has one pair."""


def _read_clients(value: object) -> object:
    """Return `value` unchanged; refuse anything but a group's name and a list of client numbers."""
    if isinstance(value, str):
        return value
    # A bool is an int in Python.
    if isinstance(value, list) and all(isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0 for entry in value):
        return value
    raise refusal("must be a group's name, or a list of client numbers from 0")


def _read_changed(value: object) -> object:
    """Return the new value of a law's parameter, a table as values per client."""
    # Parameters that are neither may change, too: the law itself checks them.
    return read_per_client(value) if isinstance(value, dict) else value


_CLIENTS_JSON: JsonSchemaValue = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0}}]}
_CHANGED_JSON: JsonSchemaValue = {"anyOf": [PER_CLIENT_JSON, {"type": "string"}, {"type": "boolean"}]}
SomeClients = Annotated[Any, BeforeValidator(_read_clients), WithJsonSchema(_CLIENTS_JSON)]
Changed = Annotated[Any, BeforeValidator(_read_changed), WithJsonSchema(_CHANGED_JSON)]


SPEEDS = ("seconds_per_sample", "samples_per_s", "flops_per_s")
"""Keys that set the speed of a client's training."""


class Speed(NamedTuple):
    """The speed of local training, in the unit of its key."""

    key: str
    """One of SPEEDS."""
    value: Any
    """Checked value of the key: numbers per client."""


class Group(Section):
    """A named group of clients: consecutive indices, in the order of the list."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Name of the group in other keys."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """A group of clients; a group's size is its share of them to within one, and the groups fill up `clients.count`."""
    count: Size | None = None
    """Number of clients, in place of a share."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if (self.share is None) == (self.count is None):
            raise ValueError("give either share or count")
        return self


class Clients(Section):
    """Clients that take part."""

    count: Size
    """K, the number of clients."""
    groups: list[Group] = []
    """Groups whose parameters differ; empty: one group named "all"."""
    devices: Annotated[str, Field(min_length=1)] | None = None
    """A CSV file of what clients can do: a line for each class (columns class, share, samples_per_s, ..), whose classes are then
    the groups, or a line for each client (column client). See docs/world.md."""
    data_sizes: PerClientField | None = None
    """Samples each client holds, for a study without a learner (with one, its partition says). Absent: all hold as many."""
    report_phases: bool = False
    """Clients tell the server how long download, training and upload of a delivered update took, which it cannot see: it sees
    when it sends a model and when an update arrives. A policy of your own then finds it in `RoundOutcome.reports`."""


class Change(Section):
    """From a change point on, a law has other parameters."""

    at_round: Annotated[int, Field(ge=2)] | None = None
    """First round with the new values."""
    at_s: Positive | None = None
    """Time of the change."""
    clients: SomeClients | None = None
    """A group's name or client indices; absent: all clients."""
    delay: dict[str, Changed] = {}
    """New values of parameters of the delay law, by their names."""
    channel: dict[str, Changed] = {}
    """New values of parameters of the channel law, by their names."""
    bandwidth_bytes_per_s: PerClientField | None = None
    """New bandwidth (links only). It acts on what is under way, too, where the link is `[downlink]` or `[uplink]`."""
    bandwidth: dict[str, Changed] = {}
    """New values of parameters of the bandwidth law, by their names."""
    seconds_per_sample: PerClientField | None = None
    """New value of `compute.seconds_per_sample`, where that key gives the speed."""
    samples_per_s: PerClientField | None = None
    """New value of `compute.samples_per_s`, where that key gives the speed."""
    flops_per_s: PerClientField | None = None
    """New value of `compute.flops_per_s`, where that key gives the speed."""
    noise: dict[str, Changed] = {}
    """New values of parameters of the noise, by their names (`[compute]` only)."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        """Refuse a change point without one time, and one that changes nothing."""
        if (self.at_round is None) == (self.at_s is None):
            raise ValueError("give either at_round or at_s")
        changes_link = self.delay or self.channel or self.bandwidth or self.bandwidth_bytes_per_s is not None
        if not (changes_link or self.changes_compute):
            links = "delay, channel, bandwidth_bytes_per_s or bandwidth"
            raise ValueError(f"changes nothing: give {links}, or the speed or noise of [compute]")
        return self

    @property
    def speed(self) -> Speed | None:
        """The new speed of training; None if it does not change."""
        for key in SPEEDS:
            value = getattr(self, key)
            if value is not None:
                return Speed(key, value)
        return None

    @property
    def changes_compute(self) -> bool:
        """True if it changes something that only local training has: noise or a speed."""
        return bool(self.noise) or self.speed is not None


class RandomChanges(Section):
    """Change points drawn from the run's seed: when, and by which factor parameters are multiplied (of their first values)."""

    count: Annotated[int, Field(ge=1, le=100_000)]
    """Number of change points."""
    unit: Literal["rounds", "seconds"] = "rounds"
    """Unit of `horizon` and `min_spacing`."""
    horizon: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Last round of a change, or the time before which all fall; absent: the run's rounds, or its time_limit_s."""
    min_spacing: NonNegative = 0.0
    """Least distance between changes, and of the first from the start, in `unit`."""
    parameter: str | Annotated[list[str], Field(min_length=1)]
    """Which parameter changes, as "delay.NAME", "channel.NAME", "bandwidth.NAME" or "noise.NAME"; or several, all multiplied by
    one factor at a time."""
    factor_low: Positive = 0.5
    """Smallest factor; factors are drawn with a uniform logarithm."""
    factor_high: Positive = 2.0
    """Largest factor."""
    clients: SomeClients | None = None
    """A group's name or client indices; absent: all clients."""

    @property
    def parameters(self) -> list[str]:
        """The names in `parameter`, one or several."""
        return [self.parameter] if isinstance(self.parameter, str) else self.parameter

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.factor_high < self.factor_low:
            raise problem(("factor_high",), self.factor_high, f"must be at least factor_low = {self.factor_low}")
        return self


class Timed(Section):
    """Something that takes time, by a law with change points."""

    changing: ClassVar[tuple[str, ...]] = ("delay",)
    """Laws whose parameters change points may change."""
    delay: component_of("delay") = {"kind": "constant", "value_s": 0.0}  # type: ignore[valid-type]
    """Duration in seconds (for a link, beside the time that the bandwidth takes)."""
    changes: list[Change] = []
    """Change points, in order of time."""
    random_changes: RandomChanges | None = None
    """Change points drawn from the seed."""


class Compute(Timed):
    """Local training as time: a delay, and, where a speed is given, samples times seconds per sample times noise.

    The speed is given as `seconds_per_sample`, as `samples_per_s`, or as `flops_per_sample` with `flops_per_s`.
    """

    changing: ClassVar[tuple[str, ...]] = ("delay", "noise")
    seconds_per_sample: PerClientField | None = None
    """Mean time for a sample. Absent, with the other speeds: training takes `delay` alone."""
    samples_per_s: PerClientField | None = None
    """Samples in a second, its reciprocal."""
    flops_per_sample: PerClientField | None = None
    """Operations of a training step for each sample (forward and backward)."""
    flops_per_s: PerClientField | None = None
    """Operations in a second."""
    noise: component_of("noise") = {"kind": "constant"}  # type: ignore[valid-type]
    """Factor of the time of all samples of an update, drawn once an update, with mean 1."""

    @model_validator(mode="after")
    def _check_speed(self) -> Self:
        """Refuse a speed given by two keys, and one of the two flops keys without the other."""
        keys = [name for name in SPEEDS if getattr(self, name) is not None]
        if len(keys) > 1:
            raise problem((keys[1],), getattr(self, keys[1]), f"leave it out; {keys[0]} says it")
        has_flops = self.flops_per_sample is not None
        if has_flops != (self.flops_per_s is not None):
            raise missing("flops_per_s" if has_flops else "flops_per_sample", self)
        return self


class Link(Timed):
    """A link: a delay, then bytes over bandwidth, over a channel that may lose the transmission."""

    changing: ClassVar[tuple[str, ...]] = ("delay", "channel")
    bandwidth_bytes_per_s: PerClientField | None = None
    """Bytes that a client sends or receives in a second. Absent: unlimited."""
    channel: component_of("channel") = {"kind": "perfect"}  # type: ignore[valid-type]
    """Law by which a transmission gets through."""


class SharedLink(Section):
    """The server's own bandwidth, which all messages under way share: n clients get an n-th of it each (processor sharing).

    A client with less bandwidth of its own takes no more than that, and the others share the rest (max-min fairness). Sharing
    begins once the link's delay has passed.
    """

    bandwidth_bytes_per_s: Positive | None = None
    """Bytes that the server sends or receives in a second, of all clients together."""
    bandwidth: component_of("bandwidth", nested=True) | None = None  # type: ignore[valid-type]
    """The same where it changes in time, in place of the number."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_moved_key(cls, value: object) -> object:
        """Name the new place of a former key, which is in another table and so cannot stand in `Section.moved`."""
        if isinstance(value, dict) and "per_client_bytes_per_s" in value:
            moved = "is now bandwidth_bytes_per_s of the link itself, beside [shared]; write it there"
            raise problem(("per_client_bytes_per_s",), value["per_client_bytes_per_s"], moved)
        return value

    @model_validator(mode="after")
    def _check_bandwidth(self) -> Self:
        """Refuse a table with neither of the two keys of bandwidth, and with both."""
        if self.bandwidth_bytes_per_s is None and self.bandwidth is None:
            raise missing("bandwidth_bytes_per_s", self)
        if self.bandwidth_bytes_per_s is not None and self.bandwidth is not None:
            raise problem(("bandwidth_bytes_per_s",), self.bandwidth_bytes_per_s, "leave it out where bandwidth is given")
        return self


class VaryingLink(Link):
    """A link whose bandwidth may change in time."""

    changing: ClassVar[tuple[str, ...]] = ("delay", "channel", "bandwidth")
    endless: ClassVar[bool] = False
    """True if its bandwidth must never end."""
    bandwidth: component_of("bandwidth") | None = None  # type: ignore[valid-type]
    """Bytes that a client sends or receives in a second, if that changes in time: in place of `bandwidth_bytes_per_s`."""

    @model_validator(mode="after")
    def _check_bandwidth(self) -> Self:
        """Refuse bandwidth given both as a number and as a law, also in change points."""
        if self.bandwidth is None:
            for i, change in enumerate(self.changes):
                if change.bandwidth:
                    reason = "there is no law of bandwidth; give bandwidth, or change bandwidth_bytes_per_s"
                    raise problem(("changes", i, "bandwidth"), change.bandwidth, reason)
            return self
        if self.bandwidth_bytes_per_s is not None:
            raise problem(("bandwidth_bytes_per_s",), self.bandwidth_bytes_per_s, "leave it out where bandwidth is given")
        for i, change in enumerate(self.changes):
            if change.bandwidth_bytes_per_s is not None:
                reason = "leave it out where the link has a bandwidth; change its parameters by changes.bandwidth"
                raise problem(("changes", i, "bandwidth_bytes_per_s"), change.bandwidth_bytes_per_s, reason)
        return self


class Downlink(ResendKeys, VaryingLink):
    """A link between server and clients: a delay, then bytes over bandwidth, over a channel that may lose the transmission."""

    shared: SharedLink | None = None
    """A bandwidth that all clients share. Absent: nobody slows down another."""


class Uplink(Downlink):
    """The way back, with sub-channels."""

    sub_channels: Count | None = None
    """Number of transmissions that fit at once; the others wait in order. Absent: every client has its own sub-channel."""


class ClientOutage(Section):
    """Clients that nothing reaches and that reach nobody for a while: what they send or are sent meanwhile is lost.

    When: `from_s` and `to_s`, or `from_round` and `to_round`, or drawn as a two-state Markov process with `mean_up_s` and
    `mean_down_s`, or `mean_up_rounds` and `mean_down_rounds`. Lost are models, updates, opinions, and messages between clients of
    whom either is cut off (with slots.start = "zero" messages take no time and none is lost). A round in which everybody is cut
    off lasts as long as the downloads that are lost.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """The cause of what it destroys, in the tables."""
    clients: SomeClients | None = None
    """Clients that it hits together: a group's name or client indices; absent: all clients."""
    from_s: NonNegative | None = None
    """Time of its beginning."""
    to_s: Positive | None = None
    """Time of its end; absent: never."""
    from_round: Count | None = None
    """It begins as this round (with slots: communication round) opens."""
    to_round: Count | None = None
    """It ends as this round opens; absent: never."""
    mean_up_s: Positive | None = None
    """Mean time from the end of an outage to the beginning of the next."""
    mean_down_s: Positive | None = None
    """Mean length of an outage."""
    mean_up_rounds: Rounds | None = None
    """Mean number of rounds from the end of an outage to the beginning of the next."""
    mean_down_rounds: Rounds | None = None
    """Mean number of rounds of an outage."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        """Refuse an outage without exactly one pair of times, and a pair that lacks a key: only an end may be absent (never)."""
        given_pairs = [pair for pair in _OUTAGE_TIMES if any(getattr(self, key) is not None for key in pair)]
        if len(given_pairs) != 1:
            allowed = ", ".join(" and ".join(pair) for pair in _OUTAGE_TIMES)
            raise problem(("name",), self.name, f"give one of {allowed}")
        begin_key, end_key = given_pairs[0]
        if getattr(self, begin_key) is None:
            raise missing(begin_key, self)
        if getattr(self, end_key) is None and begin_key.startswith("mean"):
            raise missing(end_key, self)
        return self


class Channels(VaryingLink):
    """N sub-channels, on top of the clients' own links in `[uplink]`: an upload takes the delays of both, and both may lose it.

    Where a key may differ between clients, here it may between sub-channels.
    """

    endless: ClassVar[bool] = True
    count: Size
    """N, at least as many as clients."""
    states: component_of("states") | None = None  # type: ignore[valid-type]
    """Probabilities that a sub-channel is Good, as a table over rounds, written out or drawn. Absent: `channel` says it."""

    @model_validator(mode="after")
    def _check_laws(self) -> Self:
        """Refuse a law of the channel, or changes of one, beside `states`, which decide alone if a transmission gets through."""
        has_changes = any(change.channel for change in self.changes)
        drawn_parameters = self.random_changes.parameters if self.random_changes is not None else []
        has_drawn_changes = any(parameter.startswith("channel.") for parameter in drawn_parameters)
        if self.states is not None and (self.channel.kind != "perfect" or has_changes or has_drawn_changes):
            raise problem(("states",), self.states.kind, "leave it out where channel, or a change of it, is given")
        return self


class Peers(PeerKeys, VaryingLink):
    """The links between clients (fl-da). A message takes distance over speed, bytes over bandwidth and a delay.

    A parameter that differs between clients is the sender's. Every message has all of its sender's bandwidth, but for what
    `shared` leaves it.
    """

    shared: SharedLink | None = None
    """A bandwidth that all messages between clients share. Absent: no message slows down another."""


class Opinions(OpinionKeys, Downlink):
    """Tests of the model by clients, and their way to the server (fl-fa): a dedicated channel for each.

    Opinions that share a bandwidth (`shared`) share it with each other, and not with updates.
    """
