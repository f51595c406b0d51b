"""Row types of the tables that a run leaves, and the schemas of these tables, for the engine that writes and analyses that read.

Every table states its name and format version in its metadata. Columns carry their units; null means not reached or not measured.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args, get_type_hints

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 3
"""Version of the tables and of the summary."""


class RoundRow(NamedTuple):
    """One round.

    Counts of outcomes cover updates (of any round) that ended since the last round closed. Sums up to any row satisfy: selected
    = delivered + lost + late + aborted + in_flight of that row.
    """

    round: int
    start_s: float
    end_s: float
    selected: int
    delivered: int
    lost: int
    late: int
    aborted: int
    in_flight: int
    max_leak: float
    version: int
    accuracy: float
    loss: float
    reward: float
    genie_reward: float
    bytes_down: int
    bytes_up: int
    sum_age: int | None = None
    """Sum over clients of the age of information after the round (asynchronous server)."""
    age_variance: float | None = None
    """Sum over clients of (age - mean age)^2 after the round."""
    oracle_sum_age: float | None = None
    """The oracle's sum of ages on the same channel states; AoI regret is the sum of the differences."""
    jammed: int | None = None
    """Transmissions hit by a jammer."""
    collided: int | None = None
    """Transmissions lost because two used one sub-channel at once."""
    jam_dwells: int | None = None
    """Cost of jamming: sub-channels times dwells, of all jammers."""
    members: int | None = None
    """Clients that took part in the slot. With slotted servers a row is a slot; its counts cover its communication rounds."""
    opinion: float | None = None
    """Average opinion of all clients at the end of the slot: its reward."""
    opinion_s: float | None = None
    """Seconds at the end of the slot for testing the model and uploading opinions."""
    opinions_missing: int | None = None
    """Opinions that did not reach the server in this slot."""
    consensus_s: float | None = None
    """Seconds the clients spent deciding who takes part, before the slot's training."""
    converged_s: float | None = None
    """Seconds of the consensus phase until belief propagation had settled; null: it had not when training started."""
    agreed_s: float | None = None
    """Seconds of the consensus phase until all clients named the same top m; null: they did not when training started."""
    exchanges: int | None = None
    """Exchanges of belief propagation (asynchronous: the most messages on one edge)."""
    residual: float | None = None
    """The largest change of a message in the last exchange, in log-odds."""
    disagreement: float | None = None
    """Share of clients that did not name the true top m when training started."""
    messages: int | None = None
    """Messages sent between clients in the slot, every sending counted; sums over rows satisfy
    messages = messages_delivered + messages_lost, + messages_in_flight of the last row."""
    messages_delivered: int | None = None
    messages_lost: int | None = None
    messages_in_flight: int | None = None
    """Messages in flight as the slot ends."""
    messages_resent: int | None = None
    """Of the messages sent: those that had been lost before."""
    message_bytes: int | None = None
    """Bytes of the messages sent between clients in the slot."""
    rounds_ahead: int | None = None
    """Own rounds by which the farthest peer is ahead as the round closes (training without a server)."""
    peer_accuracy: float | None = None
    """Mean accuracy of the models of the peers that are tested; `accuracy` and `loss` are those of the mean of all models."""
    worst_peer_accuracy: float | None = None
    """Accuracy of the worst tested peer."""
    best_peer_accuracy: float | None = None
    """Accuracy of the best tested peer."""
    consensus_distance: float | None = None
    """Mean squared Euclidean distance of the peers' parameters from their mean."""
    probes: int | None = None
    """Clients that were asked for their loss before the selection, if the policy probes."""
    probes_answered: int | None = None
    """Probes that were answered in time."""
    probe_s: float | None = None
    """Seconds that the round spent on probes."""
    training_loss: float | None = None
    """Mean loss of the samples trained on since the last evaluation of the model; null without an evaluation, or if not
    requested.
    """
    compute_j: float | None = None
    """Energy that all clients drew in local training and tests of the model since the last round closed (with `[energy]`)."""
    send_j: float | None = None
    """Energy that all clients drew in sending updates, opinions and messages since the last round closed."""
    receive_j: float | None = None
    """Energy that all clients drew in receiving models and messages since the last round closed."""
    idle_j: float | None = None
    """Energy that all clients, absent ones included, drew outside of phases since the last round closed."""
    besides_j: float | None = None
    """Part of `compute_j`, `send_j` and `receive_j` that tests, opinions and messages drew."""
    batteries_empty: int | None = None
    """Clients whose battery is empty as the round closes, and that are off."""
    picked: int | None = None
    """Updates picked for the model of this round (server of SAFA)."""
    picked_s: float | None = None
    """Seconds from the round's start until the last picked update arrived; null: none was picked."""
    renewed: int | None = None
    """Clients forced to take the new model as the round opened, because their own was too old."""
    groups: int | None = None
    """Groups of clients at work as the round closes (server of FedCompass)."""
    edges_selected: int | None = None
    """Attempts of edges of all tiers begun since the last round closed (with `[edges]`); counts of outcomes are of clients."""
    edges_delivered: int | None = None
    """Attempts of edges that ended since the last round closed and whose model arrived."""
    backhaul_bytes: int | None = None
    """Bytes of models and states sent between edges and nodes above since the last round closed, both ways.

    `bytes_down` and `bytes_up` count clients only.
    """
    opened_by: str | None = None
    """The kind of what opened the round: start (of the run), close (of the round before), end (of an attempt that was waited
    for), return (of a client that was waited for). Servers with slots state causes in the table communication_rounds."""
    opened_after: int | None = None
    """Number that belongs to `opened_by`: of a round, of an attempt (`number` in the client table), or of a client; null: none.
    """
    closed_by: str | None = None
    """The kind of what closed the round: end (of an attempt), open (of this round: a deadline set then, or nothing to wait for),
    schedule (a time of the clock that does not depend on the round), message or sent (as of attempts)."""
    closed_after: int | None = None
    """Number that belongs to `closed_by`. If the round closes later than that event, the event set the timer that closed it."""
    close_rule: str | None = None
    """Name of the rule that closed the round, such as deadline; null: a user's rule without a name."""


class UpdateRow(NamedTuple):
    """One attempt of a client: times of its steps, outcome, costs.

    `age_rounds` is the age of information as the round began. With the asynchronous server every client present makes an
    attempt in every round, and an update may take several: a step is recorded, start and end, in the attempt in which it ended;
    an attempt that the end of the round cut short, in computing or sending, is late.
    """

    round: int
    client: int
    outcome: str
    selected_s: float
    download_start_s: float
    download_end_s: float
    compute_start_s: float
    compute_end_s: float
    upload_start_s: float
    upload_end_s: float
    outcome_s: float
    censored: bool
    version: int
    age_rounds: int
    epsilon: float
    leak: float
    started_round: int | None = None
    """Round in which the model from which the update starts was sent to the client."""
    channel: int | None = None
    """Sub-channel assigned to the client."""
    good: bool | None = None
    """True if that sub-channel was Good; null if no transmission was begun."""
    jammed: bool | None = None
    """True if a jammer hit the transmission."""
    collided: bool | None = None
    """True if another transmission was on the same sub-channel at the same time."""
    age_after_rounds: int | None = None
    """Age of information after the round: 1 if delivered, else one more than before."""
    age_after_s: float | None = None
    """Seconds from the client's last delivery (before the first: from the start of the run) to the end of the round."""
    cause: str | None = None
    """Cause of a loss: channel (its own link), sub-channel (Bad), jammed, collided, trace-end (the link's trace of bandwidth
    was over), cut-off (by a script), or the name of an outage. Of an aborted attempt: battery, if it ran empty; with `[edges]`
    above (the edge failed or gave up), moved (the client moved to another edge), or handed-over (likewise, and the update goes
    on in an attempt of that edge).
    """
    bytes_down: int = 0
    """Bytes of the model that was sent in this attempt; 0 where none was."""
    bytes_up: int = 0
    """Bytes of the upload that was begun in this attempt; 0 where none was."""
    loss: float | None = None
    """Mean loss of the first pass over the client's samples, as training saw them; null: not delivered, or not requested."""
    loss_rms: float | None = None
    """Root mean square of the losses of all samples of that pass."""
    samples: int | None = None
    """Samples that the local training recorded here processes; null without training, or if unknown."""
    steps: int | None = None
    """Steps that this training takes; null in the same cases."""
    compute_j: float | None = None
    """Energy that the client drew in local training during this attempt (with `[energy]`)."""
    send_j: float | None = None
    """Energy that the client drew in sending the update during this attempt."""
    receive_j: float | None = None
    """Energy that the client drew in receiving the model during this attempt."""
    group: str | None = None
    """The client's group, or class of devices; null where the scenario names none."""
    number: int = 0
    """Number of the attempt in the order of beginnings, from 1."""
    begun_by: str | None = None
    """Kind of cause of the beginning: open (its round opened), end (another attempt ended and made room), return (the client
    came back), earlier (an earlier attempt of the same update, which goes on), message (a peer's message that left at the
    end of its attempt), sent (a peer's message that left at the beginning of its attempt).
    """
    begun_after: int | None = None
    """Number of that round, attempt (`number`) or client."""
    sent_after: int | None = None
    """Attempt (`number`) whose end let the upload begin; null: the upload did not wait, or waited for a probe."""
    kind: str | None = None
    """Type of the message of an application, such as train, evaluate or query; null without one."""
    edge: str | None = None
    """The edge that coordinates the attempt (with `[edges]`): its round, and the version from which its age counts, are of this
    edge. Of an update that is handed over with the client's state, the download is that of the state."""


LATER = ("loss", "loss_rms")
"""Columns of an attempt that are known only when its round closes."""


class CommunicationRow(NamedTuple):
    """One communication round of a slotted server.

    Causes have the words of `RoundRow`; their numbers count communication rounds.
    """

    round: int
    slot: int
    start_s: float
    end_s: float
    opened_by: str
    opened_after: int | None
    closed_by: str
    closed_after: int | None
    close_rule: str | None


class EdgeRow(NamedTuple):
    """One attempt of an edge, which takes a model from the node above and sends one back.

    Null has the meaning of `UpdateRow`. Between the arrival of the model and the beginning of the upload lies a term: the
    edge's own rounds with its members.
    """

    round: int
    """Round of the node above."""
    edge: str
    above: str | None
    """The edge above; null: the server."""
    outcome: str
    selected_s: float
    download_start_s: float
    download_end_s: float
    term_start_s: float
    term_end_s: float
    upload_start_s: float
    upload_end_s: float
    outcome_s: float
    version: int
    """Version of the model of the node above."""
    cause: str | None
    """Cause of a loss, with the words of `UpdateRow`.

    Of an aborted attempt: nothing (no update arrived in the term), above (the edge above gave up), or null (the edge failed).
    """
    bytes_down: int
    bytes_up: int
    number: int
    """Number of the attempt among those of all edges, in the order of beginnings, from 1."""
    begun_by: str
    """Kind of cause, with the words of `UpdateRow`; open is a round of the node above."""
    begun_after: int | None


class EdgeRoundRow(NamedTuple):
    """One round of an edge. Counts cover attempts of its members (clients, or edges below it), as in `RoundRow`."""

    edge: str
    round: int
    term: int
    """The attempt of the edge (`number` in the table edges) that the round is part of; while the edge goes on, the one before."""
    start_s: float
    end_s: float
    selected: int
    delivered: int
    lost: int
    late: int
    aborted: int
    in_flight: int
    version: int
    opened_by: str
    """Kind of cause, with the words of `RoundRow`, or term: the model from above arrived."""
    opened_after: int | None
    closed_by: str
    closed_after: int | None
    close_rule: str | None


class ProbeRow(NamedTuple):
    """One probe: a client was asked for its loss before a selection. Null has the meaning of `UpdateRow`."""

    round: int
    client: int
    outcome: str
    sent_s: float
    """Time at which the model was sent."""
    outcome_s: float
    version: int
    """The model's."""
    samples: int | None
    """Samples that the client evaluates; null if unknown."""
    loss: float
    """Mean loss of the model on these samples; null without an answer, and without training."""
    accuracy: float = float("nan")
    """Accuracy of the model on the client's own test data; null without an answer, or if not requested."""
    download_start_s: float = float("nan")
    download_end_s: float = float("nan")
    compute_start_s: float = float("nan")
    """Start of the evaluation."""
    compute_end_s: float = float("nan")
    upload_start_s: float = float("nan")
    """Start of the transfer of the answer."""
    upload_end_s: float = float("nan")
    bytes_down: int = 0
    bytes_up: int = 0
    cause: str | None = None
    compute_j: float | None = None
    send_j: float | None = None
    receive_j: float | None = None
    edge: str | None = None
    """Edge that asked; the round is its own."""


class JamRow(NamedTuple):
    """One dwell of one jammer on one sub-channel."""

    round: int
    jammer: str
    channel: int
    start_s: float
    end_s: float
    hit: int
    """Transmissions spoilt by the jammer; each is counted for the first jammer that hit it."""
    destroyed: int
    """Transmissions among these whose channel was Good."""


class DetectionRow(NamedTuple):
    """A change on one sub-channel that the scheduler declared. The scheduler then reset what it had learnt."""

    round: int
    """Round after which the change was declared; its observations contributed."""
    time_s: float
    channel: int
    detector: str
    """Kind of the detector that declared the change."""
    observations: int
    """Observations of the sub-channel by the detector since the scheduler's last reset."""
    jammed: int
    """Transmissions on the sub-channel that a jammer hit since that reset."""


class MessageRow(NamedTuple):
    """One sending of a message between two clients, or of an opinion to the server."""

    round: int
    protocol: str
    source: int
    target: int
    """Client that receives it; -1: the server."""
    number: int
    """Belief propagation: the exchange (asynchronous: the sequence number of the message on this edge); push: the repetition;
    flooding: the best client whose index it carries."""
    resend: int
    """Number of earlier sendings of the same message."""
    sent_s: float
    end_s: float
    outcome: str
    """delivered, lost, late (the server had stopped waiting) or in_flight."""
    cause: str | None
    """Cause of the loss: jammed, cut, cut-off (by a script), the name of an outage, trace-end (as in `UpdateRow`) or channel."""
    size_bytes: int


class TransferRow(NamedTuple):
    """A transfer over the cables of `[network]`."""

    round: int
    """Round in which it was sent."""
    kind: str
    """model, update, probe, test, opinion, peers, or background with the name of its source."""
    source: str
    """Node that sends."""
    target: str
    """Node that receives."""
    number: int
    """Client, or number of the message among those of its kind."""
    size_bytes: int | None
    """None for background traffic without an end."""
    sent_s: float
    begin_s: float
    """Time at which the delay was over and the bytes began to flow."""
    end_s: float
    outcome: str
    """delivered, lost, aborted or in_flight."""
    cause: str | None
    route: str
    """Names of its cables in order, joined by >."""
    mean_bytes_per_s: float | None
    """Bytes over the seconds of its flow; None if they have not all passed, or took no time."""
    limit: str | None
    """Link that limited the rate the longest, as CABLE>NODE (half-duplex: CABLE); own: the transfer's own limit or window."""
    limited_s: float
    """Seconds for which that link limited it."""
    limits: str
    """Seconds by limiting link, as JSON."""


class LinkRow(NamedTuple):
    """Bytes that crossed a link of `[network]` in a round; a link without any has no row."""

    round: int
    link: str
    start_s: float
    end_s: float
    carried_bytes: float
    bytes_per_s: float
    """Mean bandwidth over the round."""


class BeliefRow(NamedTuple):
    """Belief of one client at the end of one consensus phase."""

    round: int
    """The slot."""
    client: int
    opinion: float
    """Own test of the model, with which the phase began."""
    belief: float
    """Probability that it should be selected, as the client computed it."""
    index_value: float
    """Index that the client sent to the other clients."""
    member: bool
    """True if it takes part."""


class EvaluationRow(NamedTuple):
    """Value of one of the user's metrics at the end of a round, or a slot."""

    round: int
    time_s: float
    version: int
    """Version of the model: number of aggregations that changed it."""
    metric: str
    value: float


class ScriptRow(NamedTuple):
    """Act of a script. An act has a row for each parameter that it changed, or one row without parameters."""

    number: int
    """Number of the act, from 1. An act that takes back another has its own number, and `of` names the other."""
    round: int
    """Round under way, or the last one; 0: none yet."""
    time_s: float
    action: str
    """change, scale, restore; start, stop (jammers); take_away, bring_back (clients, edges); cut_off, reconnect (clients);
    move (of clients to an edge); cut_links, heal_links (between clients)."""
    target: str
    """Target of the act: a key of the scenario such as compute.delay, a jammer's name, clients, edges or links."""
    entities: str | None
    """Clients, sub-channels, links or edges concerned: name of a group, or numbers or names as JSON; null: all."""
    parameter: str | None
    before: str | None
    """Value in force before, as JSON: one value, a list over the entities, or least, mean and largest of many."""
    after: str | None
    of: int | None = None
    """Number of the act that is taken back."""


ColumnValues = dict[str, Any]
"""Values of a row, by column."""
ROWS: dict[str, Any] = {
    "rounds": RoundRow,
    "clients": UpdateRow,
    "communication_rounds": CommunicationRow,
    "edges": EdgeRow,
    "edge_rounds": EdgeRoundRow,
    "probes": ProbeRow,
    "jams": JamRow,
    "detections": DetectionRow,
    "messages": MessageRow,
    "beliefs": BeliefRow,
    "evaluations": EvaluationRow,
    "script": ScriptRow,
    "transfers": TransferRow,
    "link_loads": LinkRow,
}
"""The row type of each table."""
ROUND_CAUSES = ("opened_by", "opened_after", "closed_by", "closed_after", "close_rule")
"""Columns of rounds that link them to what opened and closed them."""
ALWAYS: dict[str, tuple[str, ...]] = {
    "rounds": (
        *("round", "start_s", "end_s", "selected", "delivered", "lost", "late", "aborted", "in_flight", "max_leak", "version"),
        *("bytes_down", "bytes_up"),
    ),
    "clients": UpdateRow._fields[: UpdateRow._fields.index("started_round")],
    "probes": ("round", "client", "outcome", "sent_s", "outcome_s", "version", "bytes_down", "bytes_up"),
}
"""Columns that every run fills, by table, for tables whose other columns depend on the run."""
_FEW_WORDS = ("outcome", "protocol", "detector", "action", "begun_by", "opened_by", "closed_by")
"""Columns of words that the program chooses. A dictionary of at most 128 words is enough."""
_NAMES = ("edge", "above", "cause", "group", "close_rule", "jammer", "metric", "route", "limit", "link")
"""Columns of names that a scenario or a user's class gives, which may be more."""
_COUNTED = ("selected", "delivered", "lost", "late", "aborted", "in_flight")


@cache
def schema_of(table: str, columns: tuple[str, ...] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table with these columns; None: with all columns of its row type.

    Example:
        >>> schema_of("rounds", ("round", "accuracy")).field("accuracy").type
        DataType(double)
    """
    import pyarrow as pa  # the slowest part here, and readers of single columns do not need it

    by_hint = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    # Words repeat, so a dictionary and small numbers take less space. Columns of names get larger numbers.
    by_name = dict.fromkeys(_FEW_WORDS, pa.dictionary(pa.int8(), pa.string()))
    by_name |= dict.fromkeys(_NAMES, pa.dictionary(pa.int32(), pa.string()))
    if table == "rounds":
        by_name |= dict.fromkeys(_COUNTED, pa.int32())
    kinds = {}
    for name, hint in get_type_hints(ROWS[table]).items():
        kinds[name] = by_name[name] if name in by_name else by_hint[_kind(hint)]
    fields = [(name, kinds[name]) for name in (kinds if columns is None else columns)]
    return pa.schema(fields, metadata={"netsim.table": table, "netsim.format": str(FORMAT)})


def _kind(hint: object) -> type:
    """Return the type of a column's values: `int` of `int | None`."""
    # A hint that is no union has no arguments.
    members = get_args(hint) or (hint,)
    kinds = [member for member in members if member is not type(None)]
    return cast("type", kinds[0])
