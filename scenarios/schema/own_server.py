"""The `[server]` table of a server of the user's own: a class that puts one together of the engine's rules."""

from typing import TYPE_CHECKING, Any, ClassVar

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import resolve
from scenarios.schema.section import missing, problem
from scenarios.schema.server import Server, check_channels, refuse_oracle, refuse_policy

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario


class OwnServer(Server):
    """A server of your own.

    Nothing is taken for granted of it: no bound on the length of a round, no deadline, no probes before a selection.
    """

    own: ClassVar[bool] = True

    def _mode(self) -> Any:
        return resolve("server", self.kind)

    @property
    def caches(self) -> bool:
        """As its class says."""
        return bool(self._mode().caches)

    @property
    def contends(self) -> bool:
        """As its class says."""
        return bool(self._mode().contends)

    @property
    def limit_s(self) -> float | None:
        """None is known: what its keys mean is its own matter, whatever they are called."""
        return None

    def check(self, scenario: "Scenario") -> None:
        """It has the policy that it asks for, and sub-channels have a scheduler."""
        mode = self._mode()
        refuse_oracle(scenario)
        scheduler = scenario.scheduler
        if scheduler is not None and resolve("scheduler", scheduler.kind).contends and not self.contends:
            why = f"lets clients collide, and {self.kind} does not; set contends = True in its class"
            raise problem(("scheduler", "kind"), scheduler.kind, why)
        # Whether clients may meet on a sub-channel is said of the class, which need not be asked for any.
        check_channels(scenario, self.contends and scenario.channels is not None, "clients.count", 1)
        if not mode.selects:
            refuse_policy(scenario)
        elif scenario.policy is None:
            raise missing("policy", scenario)

    def describe(self, scenario: "Scenario") -> str:
        """Nothing is known."""
        return f"as {self.kind} decides"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Not known."""
        return 0.0
