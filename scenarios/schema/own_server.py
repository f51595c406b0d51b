"""The `[server]` table of a server of the user's own: a class that puts one together of the engine's rules."""

from typing import TYPE_CHECKING, Any

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import resolve
from scenarios.schema.section import missing
from scenarios.schema.server import Server, check_channels, refuse_oracle, refuse_policy

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario


class OwnServer(Server):
    """A server of your own.

    Nothing is taken for granted of it: no bound on the length of a round, no deadline, no probes before a selection.
    """

    def _mode(self) -> Any:
        return resolve("server", self.kind)

    @property
    def caches(self) -> bool:
        """As its class says."""
        return bool(self._mode().caches)

    def check(self, scenario: "Scenario") -> None:
        """It has the policy that it asks for, and sub-channels have a scheduler."""
        mode = self._mode()
        refuse_oracle(scenario)
        check_channels(scenario, mode.contends, "clients.count", 1)
        if not mode.selects:
            refuse_policy(scenario)
        elif scenario.policy is None:
            raise missing("policy", scenario)

    def in_words(self, scenario: "Scenario") -> str:
        """Nothing is known."""
        return f"as {self.kind} decides"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Not known."""
        return 0.0
