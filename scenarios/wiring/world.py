"""World of a scenario: its parts, the server that is built from them, and the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from models.privacy import Ledger, NoPrivacy, NoSchedule, Schedule
from netsim.clients.pool import ClientPool
from netsim.clients.power.energy import FollowedPresence
from netsim.clients.rules import UpdateRules
from netsim.clients.vectorised.columns import CLIENT, DELIVERED, OUTCOME, ROUND, Columns
from netsim.core.null_objects import NoLearner
from netsim.core.protocols import Accountant, ProbedLearner, RewardMeter, SelectionPolicy
from netsim.network.access import OwnLinkAccess, QueuedAccess, UplinkAccess
from netsim.network.medium import Carriers, Medium, MediumLaws
from netsim.network.sizes import Sizes
from netsim.records.sinks import NoRecorder
from netsim.servers.rounds.dispatch import SelectionRule
from netsim.servers.rounds.instruments import LinkJamming
from netsim.servers.sub_channels.channels import OwnLinks
from netsim.simulation import Simulation
from scenarios.registry.components import Component, Keywords, construct
from scenarios.registry.kinds import is_own
from scenarios.schema.errors import UserError
from scenarios.wiring.clients.energy import build_energy
from scenarios.wiring.clients.population import Context, Population, resolve_parameters
from scenarios.wiring.laws import channel_timeline
from scenarios.wiring.learning.accounting import require_accountant
from scenarios.wiring.network.jammers import build_own_link_jamming
from scenarios.wiring.network.outages import build_outages
from scenarios.wiring.network.resending import resending_rule
from scenarios.wiring.script.wiring import build_script
from scenarios.wiring.servers.probes import build_probing

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner
    from models.laws.expectations import Truth
    from netsim.clients.rules import Load
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.clock import Clock
    from netsim.core.protocols import Availability, FloatArray
    from netsim.core.streams import Streams
    from netsim.network.access import AssignedAccess
    from netsim.network.own_link_jamming import MediumJamming, NoMediumJamming
    from netsim.network.transport.messages import PeerGraph
    from netsim.servers.rounds.probing import Probing
    from scenarios.schema.cautions import Caution
    from scenarios.schema.scenario import Scenario
    from scenarios.schema.servers.base import Server as ServerSection
    from scenarios.wiring.cautions.outlook import HasLaws
    from scenarios.wiring.clients.work import Training
    from scenarios.wiring.network.bandwidth import Carried
    from scenarios.wiring.network.cables import WiredNetwork
    from scenarios.wiring.network.channels import BuiltChannels
    from scenarios.wiring.servers.server import Server


@dataclass(frozen=True, kw_only=True)
class World:
    """The parts of a scenario. Server and simulation are built from them when they are first read."""

    compose: Callable[[World], Server]
    """Puts the server together: `scenarios.wiring.servers.kinds.compose`."""
    scenario: Scenario
    context: Context
    """Context for building laws. `rounds` are rounds of training: a slot has several."""
    clock: Clock
    availability: Availability
    trained: FederatedLearner | None
    """The torch learner; None if nothing is trained, or the scenario is only checked."""
    sizes: Sizes
    """Bytes of models and updates."""
    data_sizes: FloatArray
    """(K,) samples each client holds."""
    truth: Truth
    """Expected latencies of all clients, over time."""
    delays: Mapping[str, HasLaws]
    """Delays of the phases of an update: download, compute, upload."""
    training: Training
    """Work of the clients, and the time of a sample."""
    down: Carried
    """The bytes of models on their way to clients."""
    up: Carried
    """The bytes of updates on their way to the server."""
    network: WiredNetwork | None
    """Network that all messages cross; None: every client has a link of its own."""
    warned: Sequence[Caution]
    """Warnings of the scenario so far; complete once the world is built."""

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """The warnings of the scenario."""
        return tuple(self.warned)

    @property
    def population(self) -> Population:
        """The clients and their groups."""
        return self.context.population

    @property
    def streams(self) -> Streams:
        """Random numbers of the run, by address."""
        return self.context.streams

    @cached_property
    def server(self) -> Server:
        """The server, with columns of rounds for the jamming of cables and of clients' own links; raises UserError."""
        server, trained = self.compose(self), self.trained
        if trained is not None and trained.eager:
            _report_deliveries(server, trained)
        # Only where the server aggregates with this learner itself, and no edge does between them.
        if trained is not None and trained.promises and server.loop.outlast and server.loop.learner is trained:
            _train_ahead(server, trained)
        network = None if self.network is None else self.network.network
        if network is not None and network.jammed is not None and network.jammers is not None:
            server.loop.add_instrument(LinkJamming(links=[network.jammed], jammers=network.jammers))
        medium = server.clients.medium
        if medium.access.assigned is None:
            # With sub-channels, their instrument counts all jammers of the medium.
            for jammers in medium.jamming.groups:
                server.loop.add_instrument(LinkJamming(links=medium.jamming.links, jammers=jammers))
        return server

    def start_workers(self) -> AbstractContextManager[None]:
        """Start the workers that train, and end them after the block."""
        return nullcontext() if self.trained is None else self.trained.start_workers()

    @cached_property
    def simulation(self) -> Simulation:
        """The simulation of the server, which records nothing yet; raises UserError."""
        keywords: Keywords = {
            "clock": self.clock,
            "recorder": NoRecorder(),
            "rounds": self.scenario.rounds,
            "time_limit_s": self.scenario.time_limit_s,
            "script": build_script(self, self.server),
            "log": None if self.network is None else self.network.network,
        }
        if self.scenario.flower is not None:
            from scenarios.flower.running import app_simulation

            return app_simulation(self.scenario, self.server, keywords)
        return Simulation(server=self.server, **keywords)

    @property
    def channels(self) -> AssignedAccess[Update] | None:
        """The sub-channels with states, or None if the server has none."""
        return self.server.clients.medium.access.assigned

    @property
    def graph(self) -> PeerGraph | None:
        """The graph between the clients, or None if they do not decide among themselves."""
        transport = self.server.transport if self.scenario.server.sends_between_clients else None
        return None if transport is None else transport.graph

    @property
    def parameters(self) -> int | None:
        """Numbers in one update; None without a learner."""
        return None if self.trained is None else self.trained.release.numbers

    @property
    def unprotected(self) -> int:
        """Numbers in one update that no mechanism protects."""
        return 0 if self.trained is None else self.trained.release.unprotected

    @property
    def learner(self) -> ProbedLearner:
        """Learner that trains and aggregates; a null object without `[learner]`."""
        return NoLearner() if self.trained is None else self.trained

    @cached_property
    def schedule(self) -> Schedule:
        """Budgets of a client's releases; raises UserError."""
        section = self.scenario.privacy
        if section is None or section.mechanism == "none":
            return NoSchedule()
        require_accountant(self.scenario)
        schedule: Schedule = construct(section.schedule, "schedule", "privacy.schedule", section.schedule.parameters(), {})
        return schedule

    @property
    def rule(self) -> ServerSection:
        """The table of keys of the coordinator: `[server]`."""
        section: ServerSection = self.scenario.server
        return section

    @property
    def rule_path(self) -> str:
        """The path of that table."""
        return "server"

    @property
    def clients(self) -> int:
        """The number of clients, K."""
        return self.population.count

    def channels_and_pool(self, places: int, *, refill: bool = False) -> tuple[OwnLinks, ServedClients]:
        """Return the sub-channels of `[channels]`, if any, and the clients that transmit over them.

        `places`: number of clients of a round. `refill`: a sub-channel that becomes free is assigned again at once. Raises
        UserError.
        """
        from scenarios.wiring.network.channels import build_channels

        if self.scenario.channels is None:
            return OwnLinks(), self.new_pool()
        built = build_channels(self, places)
        pool = self.new_pool(built)
        return built.schedule(self, pool, places=places, refill=refill), pool

    def new_pool(
        self,
        channels: BuiltChannels | None = None,
        *,
        retry: bool = False,
        instant: bool = False,
        on_work: Callable[[Update], Load] | None = None,
    ) -> ClientPool:
        """Return the clients. `channels`: None for the access of `[uplink]`. Other arguments are those of `UpdateRules`. Raises
        UserError.
        """
        scenario, context = self.scenario, self.context
        if channels is None:
            count = scenario.uplink.sub_channels
            access: UplinkAccess[Update] = OwnLinkAccess() if count is None else QueuedAccess(count=count)
            jamming = build_own_link_jamming(scenario, self.clients, self.streams, self.clock)
        else:
            access, jamming = channels.access, channels.jamming
        charge_on = scenario.privacy.charge_on if scenario.privacy is not None else "upload"
        groups = self.population if self.population.grouped else None
        taken_away = None if context.targets is None else context.targets.absent.away
        return ClientPool(
            clock=self.clock,
            medium=self._medium(access, jamming),
            presence=FollowedPresence(self.availability, self.streams["availability"]),
            accountant=self._accountant(),
            rules=UpdateRules(
                charge_on=charge_on,
                retry=retry,
                instant=instant,
                on_work=on_work,
                reports_phases=scenario.clients.report_phases,
            ),
            energy=build_energy(scenario, context.population, context.streams, self.availability),
            groups=groups,
            taken_away=taken_away,
        )

    def _accountant(self) -> Accountant:
        """Return the accountant of privacy: a ledger with a mechanism, otherwise a null object."""
        section = self.scenario.privacy
        if section is None or section.mechanism == "none":
            return NoPrivacy(clients=self.clients)
        return Ledger(clients=self.clients, schedule=self.schedule)

    def _medium(self, access: UplinkAccess[Update], jamming: MediumJamming | NoMediumJamming) -> Medium:
        """Return the links of all clients, with `access` to the uplink, and the jammers of both."""
        scenario, context, delays = self.scenario, self.context, self.delays
        cut_offs = None if context.targets is None else context.targets.cut_offs
        sizes = self.sizes if scenario.server.sends_updates else Sizes()
        return Medium(
            clients=self.clients,
            laws=MediumLaws(
                download=delays["download"],
                compute=delays["compute"],
                upload=delays["upload"],
                downlink=channel_timeline(scenario.downlink, "downlink", context),
                uplink=channel_timeline(scenario.uplink, "uplink", context),
                work=self.training.work,
                sample=self.training.update_sample(),
                down_resending=resending_rule(scenario.downlink),
                up_resending=resending_rule(scenario.uplink),
                reached_by_outages=scenario.server.sends_updates,
            ),
            streams=context.streams,
            access=access,
            carriers=Carriers(down=self.down.carrier, up=self.up.carrier),
            outages=build_outages(scenario, context.streams, context.population, cut_offs),
            sizes=sizes,
            jamming=jamming,
        )

    def component(self, section: Component, group: str, path: str, supplied: Keywords, protocol: type | None = None) -> Any:
        """Return the object of a section of the scenario; raises UserError."""
        keywords = resolve_parameters(section, group, path, self.population)
        return construct(section, group, path, keywords, {"clients": self.population.count} | supplied, protocol)

    def _constructor_arguments(self, per_round: int, per_model: int | None) -> Keywords:
        """Return the arguments that policies may name in their constructors."""
        return {
            "per_round": per_round,
            "per_model": per_model,
            "data_sizes": self.data_sizes,
            "schedule": self.schedule,
            "truth": self.truth,
            "presence": self.availability,
        }

    def policy(self, per_round: int, per_model: int | None = None, *, reported_losses: bool = False) -> SelectionPolicy:
        """Return the policy that selects clients for rounds; raises UserError, also if it needs training and there is none.

        `per_round`: clients of a decision. `per_model`: updates of a model. `reported_losses`: True if updates report losses
        although the run trains nothing.
        """
        policy: SelectionPolicy = self.decider(SelectionPolicy, per_round, per_model)
        if self.scenario.learner is not None:
            return policy
        kind, missing = self.scenario.method.kind, None
        if policy.needs_updates:
            missing = "the content of updates"
        # A policy of the user's own may do without losses.
        elif policy.needs_losses and not reported_losses and not is_own("policy", kind):
            missing = "losses"
        if missing is not None:
            raise UserError(f"policy.kind = {kind!r}: chooses by {missing}, and nothing is trained; add a [learner]")
        return policy

    def decider(self, protocol: type, per_round: int, per_model: int | None = None) -> Any:
        """Return the object of `[policy]`, which fulfils `protocol`; raises UserError."""
        supplied = self._constructor_arguments(per_round, per_model)
        return self.component(self.scenario.method, "policy", "policy", supplied, protocol)

    def probing(self, pool: ServedClients) -> Probing | None:
        """Return the probing of clients of `pool` before a selection, or None; raises UserError."""
        return build_probing(self, pool.pool, self.scenario.policy)

    def selection(self, pool: ServedClients, per_round: int, *, need: int = 0, reselect_busy: bool = False) -> SelectionRule:
        """Return the rule by which the policy selects `per_round` clients of `pool`; raises UserError."""
        return SelectionRule(
            policy=self.policy(per_round),
            streams=self.streams,
            need=need,
            reselect_busy=reselect_busy,
            probing=self.probing(pool),
        )

    def meter(self, per_round: int) -> RewardMeter | None:
        """Return the meter of the policy's reward, or None without one; raises UserError."""
        reward = self.scenario.metrics.reward
        if reward is None:
            return None
        meter: RewardMeter = self.component(reward, "reward", "metrics.reward", self._constructor_arguments(per_round, None))
        return meter


def _report_deliveries(server: Server, trained: FederatedLearner) -> None:
    """Tell an eager learner, which trains ahead, which updates were delivered, so that it keeps their results."""

    def on_end(update: Update) -> None:
        """Callback at the end of each attempt."""
        if update.outcome == "delivered":
            trained.on_delivery(update.client, update.begun_round)

    server.clients.follow(on_end)


def _train_ahead(server: Server, trained: FederatedLearner) -> None:
    """Let workers train updates from their beginning on, and drop the results of updates that are not delivered.

    For servers whose updates may outlast their round: otherwise the close needs all results at once, and nothing is gained. No
    result of the run changes.
    """
    pool = server.clients

    def end_promise(client: int, begun_round: int, delivered: bool) -> None:
        """End the promise of a training: its result is needed now, or not any more."""
        # With `retry` an update that was not delivered is sent again, and its result is needed then.
        if delivered or not pool.life.retry:
            trained.end_promise(client, begun_round, needed=delivered)

    def on_end(update: Update) -> None:
        """Callback at the end of one attempt."""
        end_promise(update.client, update.begun_round, update.outcome == "delivered")

    def on_ends(ended: Columns) -> None:
        """Callback for many ends at once; does for each what `on_end` does."""
        for client, begun_round, outcome in ended.counts[[CLIENT, ROUND, OUTCOME]].T.tolist():
            end_promise(client, begun_round, outcome == DELIVERED)

    pool.begin_followers.append(trained.promise)
    pool.follow(on_end, on_ends)
