"""World of a script: state of the run, events to wait for, and acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from netsim.core.errors import ParameterError
from netsim.core.protocols import IntArray
from netsim.core.rows import ScriptRow
from netsim.network.jamming import Jammers
from netsim.network.transport.link_outages import Outage, links_down
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError
from scenarios.wiring.script.acts import Absence, Change, Cut, CutOff, Jamming
from scenarios.wiring.script.edges import SomeEdges
from scenarios.wiring.script.observed import Observed
from scenarios.wiring.script.targets import Overlay
from scenarios.wiring.script.values import Some, integer, label, plain, read_value, to_list, value_text


class World(Observed):
    """The run, as a script sees it. Clients and sub-channels count from 0, rounds from 1; times are simulated seconds.

    >>> import netsim
    >>> def script(world: netsim.World) -> netsim.Script:
    ...     yield world.until_round(2)
    ...     world.take_away([0, 1])
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> run = netsim.run({"name": "small", **small}, script=script)
    >>> sorted(run.clients.loc[run.clients["round"] == 3, "client"])
    [2, 3]
    """

    def change(
        self, target: str, /, *, clients: Some = None, channels: Some = None, edges: SomeEdges = None, **parameters: Any
    ) -> Change:
        """Give parameters of a law new values from now on, until the change is restored.

        `target`: the key of the law in the scenario, such as compute.delay, uplink.channel, channels.states. `parameters`: by the
        names of the law, as a scenario file gives them. `clients` (for laws of sub-channels `channels`, for links of edges
        `edges`): those whose parameters change; None: all.
        """
        return self._change(target, {"clients": clients, "channels": channels, "edges": edges}, parameters, scale=False)

    def scale(
        self, target: str, /, *, clients: Some = None, channels: Some = None, edges: SomeEdges = None, **factors: Any
    ) -> Change:
        """Multiply parameters of a law by factors from now on, until the change is restored. Arguments are those of `change`."""
        return self._change(target, {"clients": clients, "channels": channels, "edges": edges}, factors, scale=True)

    def start_jammer(self, name: str) -> Jamming:
        """Start a resting jammer of the scenario: now, or at the next round if its dwells are rounds.

        A jammer with `start = "script"` rests from the beginning of the run.
        """
        number = self._do("start", f"jammers.{name}", None, ["start", name], do=lambda: self._jammers_of(name).start(name))
        return Jamming(lambda: self._stop(name, of=number))

    def stop_jammer(self, name: str) -> None:
        """Stop a jammer of the scenario: its present dwell ends now, and no other follows."""
        self._stop(name, of=None)

    def take_away(self, clients: Some = None, *, edges: SomeEdges = None) -> Absence:
        """Take clients away now: their attempts are aborted, and no policy can select them until they are brought back.

        After that they are present when the scenario's `[availability]` says so. With `edges`, these fail in place of clients:
        their rounds end with all attempts of their members, until they are brought back.
        """
        if edges is not None:
            return self._take_edges_away(edges)
        chosen = self._clients_or_all(clients)
        entities, entry = label(clients, chosen), ["take_away", chosen.tolist()]
        number = self._do("take_away", "clients", entities, entry, do=lambda: self._remove_clients(chosen))

        def undo() -> None:
            undo_entry = ["bring_back", number]
            self._do("bring_back", "clients", entities, undo_entry, do=lambda: self._return_clients(chosen), of=number)

        return Absence(undo)

    def _take_edges_away(self, edges: SomeEdges) -> Absence:
        """Take edges away; the returned act brings them back."""
        tiers = self._edges()
        chosen = tiers.numbers_of(edges)
        assert chosen is not None
        entities = json.dumps([edges] if isinstance(edges, str) else plain(edges))
        entry = ["take_away", "edges", chosen.tolist()]
        number = self._do("take_away", "edges", entities, entry, do=lambda: tiers.take_away(chosen))

        def undo() -> None:
            undo_entry = ["bring_back", number]
            self._do("bring_back", "edges", entities, undo_entry, do=lambda: tiers.bring_back(chosen), of=number)

        return Absence(undo)

    def move(self, clients: Some, edge: str) -> None:
        """Move clients to the edge named `edge`, where they stay until they move again.

        `edges.moving` says what becomes of the updates that they are making or sending. Later lines of `edges.moves` still apply.
        """
        tiers, chosen = self._edges(), self._clients_or_all(clients)
        numbers = chosen.tolist()
        # The values before are for the record only; a replay records nothing.
        before = None if self._runner.journal.replaying else json.dumps([tiers.edge_of(client) for client in numbers])
        values = before, json.dumps(edge)
        entities, entry = label(clients, chosen), ["move", numbers, edge]
        self._do("move", "edges", entities, entry, do=lambda: tiers.move(numbers, edge), values=values)

    def cut_off(self, clients: Some) -> CutOff:
        """Cut clients off from the server: all messages to and from them are lost, as in an outage (cause "cut-off").

        Messages in flight are lost, too, unless they end in this instant. The clients do not notice, and go on working.
        """
        chosen, cut_offs, now_s = self._clients_or_all(clients), self._targets.cut_offs, self.time_s
        entities, numbers = label(clients, chosen), chosen.tolist()
        act_number = self._do("cut_off", "clients", entities, ["cut_off", numbers], do=lambda: cut_offs.cut(numbers, now_s))

        def undo() -> None:
            undo_entry, time_s = ["reconnect", act_number], self.time_s
            self._do("reconnect", "clients", entities, undo_entry, do=lambda: cut_offs.restore(numbers, time_s), of=act_number)

        return CutOff(undo)

    def cut_links(self, links: Sequence[tuple[int, int]] = (), *, groups: Sequence[Some] = ()) -> Cut:
        """Cut links between clients in both directions: pairs of neighbours, or with `groups` all links between two groups.

        Clients in none of the groups form one more group. Messages in flight are lost, unless they end in this instant. Clients
        do not wait for a cut link; when it is healed, its two ends send each other what they know.
        """
        cuts, graph = self._targets.cuts, self._graph
        if cuts is None or graph is None:
            kinds = 'server.kind = "fl-da" or "peers" has such'
            raise UserError(f"there are no links between clients over which messages take time: {kinds}")
        pairs = [(integer("links", a, 0), integer("links", b, 0)) for a, b in links]
        members = [self._clients_or_all(group).tolist() for group in groups]
        down, now_s = links_down(graph, Outage(start_s=0.0, links=pairs, groups=members)), self.time_s
        entities = json.dumps([list(pair) for pair in pairs] or members)
        number = self._do("cut_links", "peers.links", entities, ["cut_links", down], do=lambda: cuts.cut(down, now_s))

        def undo() -> None:
            undo_entry, time_s = ["heal_links", number], self.time_s
            self._do("heal_links", "peers.links", entities, undo_entry, do=lambda: cuts.restore(down, time_s), of=number)

        return Cut(undo)

    def _stop(self, name: str, *, of: int | None) -> None:
        """Stop a jammer. `of`: number of the act that started it, if this takes that act back."""
        self._do("stop", f"jammers.{name}", None, ["stop", name], do=lambda: self._jammers_of(name).halt(name), of=of)

    def _jammers_of(self, name: str) -> Jammers:
        """Return the jammers among which one is called `name`; raises UserError if there is none in the run."""
        names: list[str] = []
        for group in self._jammers:
            names_of_group = [jammer.name for jammer in group.all]
            if name in names_of_group:
                return group
            names += names_of_group
        if not names:
            raise UserError("this scenario has no jammers; add [[jammers]]")
        raise ParameterError("name", name, f"there is no such jammer; there are {', '.join(names)}")

    def _remove_clients(self, clients: IntArray) -> None:
        """Take clients (n,) away."""
        # Count energy and presence up to now before clients leave.
        self._pool.advance()
        self._targets.absent.take(clients)
        self._pool.leave(clients)

    def _return_clients(self, clients: IntArray) -> None:
        """Bring clients (n,) back, and tell the pool and the edges."""
        self._pool.advance()
        self._targets.absent.bring_back(clients)
        self._pool.on_move(clients)
        if self._targets.edges is not None:
            self._targets.edges.on_return()

    def _do(
        self,
        action: str,
        target: str,
        entities: str | None,
        entry: list[object],
        *,
        do: Callable[[], None],
        values: tuple[str | None, str | None] = (None, None),
        of: int | None = None,
    ) -> int:
        """Do an act that changes no parameter of a law; return the number of the act, 0 once the run is over.

        `do` does the act; a replay leaves it out, because its effect is part of the checkpoint. `entry`: entry of the journal.
        The other arguments are for the row of the table: name of the act, its `target`, the `entities` in it, `values` before
        and after, and `of`, the number of the act that this one takes back.
        """
        if self._runner.over:
            return 0
        is_new = self._runner.journal.act(entry, do)
        self._acts += 1
        if is_new:
            self._record(action, target, entities, None, values, of=of)
        return self._acts

    def _change(self, target: str, keywords: Mapping[str, Any], parameters: Keywords, *, scale: bool) -> Change:
        """Check a change of the law `target`, and apply it; raises UserError.

        `keywords`: the clients, channels and edges that the script named, each None if it named none. The parameters of
        a law differ between one of the three at most, and no other may be named. `parameters`: new values, or factors with
        `scale`.
        """
        law = self._targets.find(target)
        if not parameters:
            raise UserError(f"{target}: changes nothing; name a parameter and its value")
        wrong = [name for name, named in keywords.items() if named is not None and name != law.entity]
        if wrong:
            remedy = f"its parameters may differ between {law.entity}" if law.entity else "its parameters are of no client"
            raise UserError(f"{wrong[0]}: {target} has none; {remedy}")
        named = keywords[law.entity] if law.entity else None
        entities = self._numbers_of(named, law.entity or "clients")
        values = {name: read_value(value, f"{target}.{name}") for name, value in parameters.items()}
        overlay = Overlay(parameters=values, entities=entities, scale=scale, description=self._runner.locate_act())
        action = "scale" if scale else "change"
        entry: list[object] = [action, target, to_list(entities), {name: plain(value) for name, value in parameters.items()}]
        named_entities = label(named, entities)
        number = self._change_law(action, target, named_entities, overlay, entry, add=True)
        return Change(lambda: self._restore(target, named_entities, overlay, number))

    def _restore(self, target: str, entities: str | None, overlay: Overlay, number: int) -> None:
        """Take back act `number`, which laid `overlay` over the law `target`."""
        self._change_law("restore", target, entities, overlay, ["restore", target, number], add=False, of=number)

    def _change_law(
        self,
        action: str,
        key: str,
        entities: str | None,
        overlay: Overlay,
        entry: list[object],
        *,
        add: bool,
        of: int | None = None,
    ) -> int:
        """Add an overlay to the law at `key`, or remove it; return the number of the act, 0 once the run is over.

        A replay does this, too, because checkpoints do not hold laws. `entry`: entry of the journal. `action`, `entities` and
        `of` (the act that this one takes back) are for the rows of the table, one for each parameter.
        """
        if self._runner.over:
            return 0
        target, names = self._targets.find(key), list(overlay.parameters)
        is_new = self._runner.journal.note("act", *entry)
        round, _, time_s = self._runner.moment
        before = {name: target.value(name, round, time_s) for name in names}
        if add:
            target.add(overlay, round, time_s)
        else:
            target.remove(overlay, round, time_s)
        self._acts += 1
        if is_new:
            target.renew()
            for name in names:
                after = target.value(name, round, time_s)
                values = value_text(before[name], overlay.entities), value_text(after, overlay.entities)
                self._record(action, key, entities, name, values, of=of)
        return self._acts

    def _record(
        self,
        action: str,
        target: str,
        entities: str | None,
        parameter: str | None = None,
        values: tuple[str | None, str | None] = (None, None),
        *,
        of: int | None = None,
    ) -> None:
        """Write a row of the present act to the table of the script."""
        round, _, time_s = self._runner.moment
        before, after = values
        row = ScriptRow(self._acts, round, time_s, action, target, entities, parameter, before, after, of)
        self._runner.recorder.script(row)

    def _clients_or_all(self, clients: Some) -> IntArray:
        """Return the clients (n,) that `clients` names; None: all."""
        chosen = self._numbers_of(clients, "clients")
        return np.arange(self._population.count) if chosen is None else chosen
