"""World of a script: state of the run, events to wait for, and acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netsim.core.protocols import IntArray
from netsim.core.rows import ScriptRow
from netsim.network.jamming import Jammers
from netsim.network.transport.link_outages import Outage, links_down
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError
from scenarios.wiring.script.acts import Absence, Change, Cut, CutOff, Jamming
from scenarios.wiring.script.observed import Observed
from scenarios.wiring.script.targets import Overlay
from scenarios.wiring.script.values import Some, integer, label, plain, read, to_list, value_text


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

    def change(self, target: str, /, *, clients: Some = None, channels: Some = None, **parameters: Any) -> Change:
        """From now on, parameters of a law have other values, until the change is restored.

        `target`: the key of the law in the scenario, such as compute.delay, uplink.channel, channels.states. `parameters`: by the
        names of the law, as a scenario file gives them. `clients`, of sub-channels' laws `channels`: whose; None: all.
        """
        return self._change(target, clients, channels, parameters, scale=False)

    def scale(self, target: str, /, *, clients: Some = None, channels: Some = None, **factors: Any) -> Change:
        """Multiply parameters, in force at any time, until the act is taken back; otherwise like `change`."""
        return self._change(target, clients, channels, factors, scale=True)

    def start_jammer(self, name: str) -> Jamming:
        """Start a jammer of the scenario that rests: now, or, where its dwells are rounds, with the next round that opens.

        With `start = "script"` in the scenario it has rested from the beginning.
        """
        jammers = self._jammers_of()
        number = self._do("start", f"jammers.{name}", None, ["start", name], lambda: jammers.start(name))
        return Jamming(lambda: self._halt(name, number))

    def stop_jammer(self, name: str) -> None:
        """Stop a jammer of the scenario: its present dwell ends now, and it rests."""
        self._halt(name, None)

    def take_away(self, clients: Some) -> Absence:
        """Clients go away now: what they are making is aborted, and they are not selectable until they are brought back.

        The presence that the scenario says goes on underneath.
        """
        some = self._clients_or_all(clients)
        number = self._do("take_away", "clients", label(clients, some), ["take_away", some.tolist()], lambda: self._take(some))

        def back() -> None:
            entry = ["bring_back", number]
            self._do("bring_back", "clients", label(clients, some), entry, lambda: self._bring_back(some), of=number)

        return Absence(back)

    def cut_off(self, clients: Some) -> CutOff:
        """Clients are cut off from the server: what they send or are sent is lost, as in an outage (cause "cut-off").

        What is under way is lost, too, but for what ends in this very instant. Clients do not know it, and go on working.
        """
        some, cut_offs, now = self._clients_or_all(clients), self._targets.cut_offs, self.time_s
        text, gone = label(clients, some), some.tolist()
        number = self._do("cut_off", "clients", text, ["cut_off", gone], lambda: cut_offs.cut(gone, now))

        def back() -> None:
            entry, time_s = ["reconnect", number], self.time_s
            self._do("reconnect", "clients", text, entry, lambda: cut_offs.restore(gone, time_s), of=number)

        return CutOff(back)

    def cut_links(self, links: Sequence[tuple[int, int]] = (), *, groups: Sequence[Some] = ()) -> Cut:
        """Cut links between clients, both ways: pairs of neighbours, or with `groups` all links between two of these.

        Who is in none of the groups belongs to one further group. Messages under way are lost, but for those that end in this
        very instant. Nobody waits for such a link to come back; once it is healed, the two tell each other what they know.
        """
        cuts, graph = self._targets.cuts, self._graph
        if cuts is None or graph is None:
            kinds = 'server.kind = "fl-da" or "peers" has such'
            raise UserError(f"there are no links between clients over which messages take time: {kinds}")
        pairs = [(integer("links", a, 0), integer("links", b, 0)) for a, b in links]
        members = [self._clients_or_all(group).tolist() for group in groups]
        down, now = links_down(graph, Outage(start_s=0.0, links=pairs, groups=members)), self.time_s
        text = json.dumps([list(pair) for pair in pairs] or members)
        number = self._do("cut_links", "peers.links", text, ["cut_links", down], lambda: cuts.cut(down, now))

        def back() -> None:
            entry, time_s = ["heal_links", number], self.time_s
            self._do("heal_links", "peers.links", text, entry, lambda: cuts.restore(down, time_s), of=number)

        return Cut(back)

    def _halt(self, name: str, of: int | None) -> None:
        jammers = self._jammers_of()
        self._do("stop", f"jammers.{name}", None, ["stop", name], lambda: jammers.halt(name), of=of)

    def _jammers_of(self) -> Jammers:
        if self._jammers is None:
            raise UserError("this scenario has no jammers; add [[jammers]]")
        return self._jammers

    def _take(self, clients: IntArray) -> None:
        self._pool.advance()
        self._targets.absent.take(clients)
        self._pool.leave(clients)

    def _bring_back(self, clients: IntArray) -> None:
        self._pool.advance()
        self._targets.absent.bring_back(clients)
        self._pool.on_move(clients)

    def _do(
        self, action: str, target: str, entities: str | None, entry: list[Any], do: Callable[[], None], *, of: int | None = None
    ) -> int:
        """One act without parameters; its number."""
        if self._runner.over:
            return 0
        live = self._runner.journal.act(entry, do)
        self._acts += 1
        if live:
            self._record(action, target, entities, of=of)
        return self._acts

    def _change(self, target: str, clients: Some, channels: Some, parameters: Keywords, *, scale: bool) -> Change:
        """Check the arguments of a change, and apply it."""
        law = self._targets.find(target)
        if not parameters:
            raise UserError(f"{target}: changes nothing; name a parameter and its value")
        keywords = {"clients": clients, "channels": channels}
        wrong = [name for name, some in keywords.items() if some is not None and name != law.entity]
        if wrong:
            remedy = f"its parameters may differ between {law.entity}" if law.entity else "its parameters are of no client"
            raise UserError(f"{wrong[0]}: {target} has none; {remedy}")
        some = keywords[law.entity] if law.entity else None
        entities = self._some(some, law.entity or "clients")
        values = {name: read(value, f"{target}.{name}") for name, value in parameters.items()}
        overlay = Overlay(parameters=values, entities=entities, scale=scale, told=self._runner.describe_act())
        action = "scale" if scale else "change"
        entry = [action, target, to_list(entities), {name: plain(value) for name, value in parameters.items()}]
        number = self._lay(action, target, label(some, entities), overlay, entry, lay=True)
        return Change(lambda: self._restore(target, label(some, entities), overlay, number))

    def _restore(self, target: str, entities: str | None, overlay: Overlay, number: int) -> None:
        self._lay("restore", target, entities, overlay, ["restore", target, number], lay=False, of=number)

    def _lay(
        self, action: str, key: str, entities: str | None, overlay: Overlay, entry: list[Any], *, lay: bool, of: int | None = None
    ) -> int:
        """Apply a change to a law, or take it back; return the number of the act.

        A replay does it, too, because checkpoints do not hold laws.
        """
        if self._runner.over:
            return 0
        target, names = self._targets.find(key), list(overlay.parameters)
        live = self._runner.journal.note("act", *entry)
        round, _, time_s = self._runner.moment
        before = {name: target.value(name, round, time_s) for name in names}
        (target.lay if lay else target.lift)(overlay, round, time_s)
        self._acts += 1
        if live:
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
        round, _, time_s = self._runner.moment
        row = ScriptRow(self._acts, round, time_s, action, target, entities, parameter, *values, of)
        self._runner.recorder.script(row)

    def _clients_or_all(self, clients: Some) -> IntArray:
        some = self._some(clients, "clients")
        return np.arange(self._population.count) if some is None else some
