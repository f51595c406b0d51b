"""World of a scenario: the components of which its server is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.laws.expectations import Truth
from models.privacy import Schedule
from netsim.clients.energy import Energy, Followed
from netsim.clients.pool import ClientPool
from netsim.clients.rules import UpdateRules
from netsim.core.clock import Clock
from netsim.core.protocols import (
    Accountant,
    Availability,
    FloatArray,
    Learner,
    RewardMeter,
    SelectionPolicy,
)
from netsim.network.access import OwnLinkAccess, QueuedAccess, UplinkAccess
from netsim.network.medium import Medium
from netsim.network.sizes import Sizes
from netsim.servers.channels import OwnLinks
from netsim.servers.probing import Probing
from scenarios.registry.components import Component, construct
from scenarios.registry.kinds import is_own
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.network import WiredNetwork
from scenarios.wiring.population import Context, resolve_parameters
from scenarios.wiring.probes import build_probing
from scenarios.wiring.work import Training

if TYPE_CHECKING:
    from models.fl.learner import FederatedLearner
    from netsim.clients.rules import Load
    from netsim.clients.update import Update
    from scenarios.wiring.cautions.outlook import HasLaws


@dataclass(frozen=True, kw_only=True)
class World(Context):
    """The components of a scenario, of which its server is put together. `rounds` are those of training: a slot has several."""

    scenario: Scenario
    clock: Clock
    medium_with: Callable[[UplinkAccess[Update]], Medium]
    availability: Availability
    energy: Energy | None
    """Energy of the clients and their batteries; None: not counted."""
    accountant: Accountant
    learner: Learner
    trained: FederatedLearner | None
    """The torch learner behind it; None if nothing is trained, or the scenario is only checked."""
    sizes: Sizes
    """Bytes of models and updates."""
    data_sizes: FloatArray
    """(K,) samples each client holds."""
    schedule: Schedule
    """Budgets of a client's releases."""
    truth: Truth
    """Expected latencies of all clients, over time."""
    delays: Mapping[str, HasLaws]
    """The delays of the phases of an update: download, compute, upload."""
    training: Training
    """Work of the clients, and the time of a sample."""
    network: WiredNetwork | None = None
    """The network that all messages cross; None: every client has a link of its own."""

    @property
    def clients(self) -> int:
        """The number of clients, K."""
        return self.population.count

    def channels_and_pool(self, places: int, *, refill: bool = False) -> tuple[OwnLinks, ClientPool]:
        """Return the sub-channels of `[channels]`, if any, and the clients that transmit over them.

        `places`: the clients of a round. `refill`: sub-channels are assigned again whenever one falls free. Raises UserError.
        """
        from scenarios.wiring.channels import build_channels

        if self.scenario.channels is None:
            return OwnLinks(), self.pool()
        built = build_channels(self, places)
        pool = self.pool(built.access)
        return built.schedule(self, pool, places=places, refill=refill), pool

    def pool(
        self,
        access: UplinkAccess[Update] | None = None,
        *,
        retry: bool = False,
        instant: bool = False,
        on_work: Callable[[Update], Load] | None = None,
    ) -> ClientPool:
        """The clients; `access` None: as `[uplink]` says; `on_work`: as of `UpdateRules`."""
        scenario = self.scenario
        if access is None:
            count = scenario.uplink.sub_channels
            access = OwnLinkAccess() if count is None else QueuedAccess(count=count)
        return ClientPool(
            clock=self.clock,
            medium=self.medium_with(access),
            presence=Followed(self.availability, self.streams["availability"]),
            accountant=self.accountant,
            rules=UpdateRules(
                charge_on=scenario.privacy.charge_on if scenario.privacy is not None else "upload",
                retry=retry,
                instant=instant,
                on_work=on_work,
                reports_phases=scenario.clients.report_phases,
            ),
            energy=self.energy,
            groups=self.population if self.population.grouped else None,
            taken_away=None if self.targets is None else self.targets.absent.away,
        )

    def component(
        self, section: Component, group: str, path: str, supplied: dict[str, Any], protocol: type | None = None
    ) -> Any:
        """The object of a section of the scenario; raises UserError."""
        keywords = resolve_parameters(section, group, path, self.population)
        return construct(section, group, path, keywords, {"clients": self.population.count} | supplied, protocol)

    def _constructor_arguments(self, per_round: int, per_model: int | None) -> dict[str, Any]:
        return {
            "per_round": per_round,
            "per_model": per_model,
            "data_sizes": self.data_sizes,
            "schedule": self.schedule,
            "truth": self.truth,
            "presence": self.availability,
        }

    def policy(self, per_round: int, per_model: int | None = None, *, reported_losses: bool = False) -> SelectionPolicy:
        """A policy that selects clients round by round, for so many a decision, and a model; raises UserError.

        `reported_losses`: updates report losses, although nothing is trained here.
        """
        policy: SelectionPolicy = self.decider(SelectionPolicy, per_round, per_model)
        kind = self.scenario.method.kind
        # One of the user's own may do with losses that are not there.
        misses_losses = policy.needs_losses and not reported_losses
        wants = "the content of updates" if policy.needs_updates else "losses" if misses_losses else None
        if wants and self.scenario.learner is None and (policy.needs_updates or not is_own("policy", kind)):
            raise UserError(f"policy.kind = {kind!r}: chooses by {wants}, and nothing is trained; add a [learner]")
        return policy

    def decider(self, protocol: type, per_round: int, per_model: int | None = None) -> Any:
        """The object of `[policy]`, which has what the server asks for by `protocol`; raises UserError."""
        supplied = self._constructor_arguments(per_round, per_model)
        return self.component(self.scenario.method, "policy", "policy", supplied, protocol)

    def probing(self, pool: ClientPool) -> Probing | None:
        """Return what asks clients of `pool` before a policy selects, or None; raises UserError."""
        return build_probing(self, pool)

    def meter(self, per_round: int) -> RewardMeter | None:
        """Return the meter of the policy's reward, or None without one; raises UserError."""
        reward = self.scenario.metrics.reward
        if reward is None:
            return None
        meter: RewardMeter = self.component(reward, "reward", "metrics.reward", self._constructor_arguments(per_round, None))
        return meter

