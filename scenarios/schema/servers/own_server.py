"""The `[server]` table of a user's server: a class that composes it from the engine's rules."""

from typing import TYPE_CHECKING, Any, ClassVar

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import resolve
from scenarios.schema.section import missing, problem
from scenarios.schema.servers.base import Server, check_channels, refuse_oracle, refuse_policy

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario


class OwnServer(Server):
    """A server of your own.

    Nothing is taken for granted of it: no bound on the length of a round, no deadline, no probes before a selection.
    """

    own: ClassVar[bool] = True
    why_no_tier: ClassVar[str] = ""

    def _mode(self) -> Any:
        """Return the user's class, which states what the server does as class attributes (`registry.server_mode`)."""
        return resolve("server", self.kind)

    @property
    def caches(self) -> bool:
        return bool(self._mode().caches)

    @property
    def contends(self) -> bool:
        return bool(self._mode().contends)

    @property
    def limit_s(self) -> float | None:
        """None: no limit is known, because the class alone gives meaning to its keys."""
        return None

    def check(self, scenario: "Scenario") -> None:
        """Refuse a policy that the class does not use, a missing one that it does, and sub-channels without a scheduler."""
        mode = self._mode()
        refuse_oracle(scenario)
        scheduler = scenario.scheduler
        if scheduler is not None and resolve("scheduler", scheduler.kind).contends and not self.contends:
            reason = f"lets clients collide, and {self.kind} does not; set contends = True in its class"
            raise problem(("scheduler", "kind"), scheduler.kind, reason)
        # A class may allow contention and be used without sub-channels, so contention counts only where there are some. With 1
        # sender any number of sub-channels is enough: how many clients send at once is unknown.
        check_channels(scenario, self.contends and scenario.channels is not None, "clients.count", 1)
        if not mode.selects:
            refuse_policy(scenario)
        elif scenario.policy is None:
            raise missing("policy", scenario)

    def describe(self, scenario: "Scenario") -> str:
        """Name the class: nothing else is known of its rounds."""
        return f"as {self.kind} decides"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return 0: no lower bound on the length of a round is known."""
        return 0.0
