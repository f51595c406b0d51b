"""Changes to one round: a client is left out, the deadline is another, or bandwidths are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario

Sort = Literal["without", "deadline", "bandwidth", "nothing"]


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one round."""

    sort: Sort
    value: float | None = None
    """The client that is left out, the deadline in seconds, or the factor of bandwidths."""
    link: str | None = None
    """Cable of `[network]` with the multiplied bandwidth; None: all bandwidths between server and clients."""

    @property
    def client(self) -> int | None:
        """The client that is left out; None for other changes."""
        return int(self.value) if self.sort == "without" and self.value is not None else None

    @property
    def deadline_s(self) -> float | None:
        """Deadline of the round, seconds from its opening; None for other changes."""
        return self.value if self.sort == "deadline" else None

    @property
    def label(self) -> str:
        """Label of the change in a row of a table."""
        if self.sort == "without":
            return f"without client {self.client}"
        if self.sort == "nothing":
            return "as it was"
        if self.value is None:
            return ""
        if self.sort == "deadline":
            return f"deadline {self.value:g} s"
        cable = "" if self.link is None else f" of {self.link}"
        return f"bandwidth{cable} times {self.value:g}"

    @property
    def factor(self) -> float | None:
        """Factor of bandwidths from the round's opening on; None for other changes."""
        return self.value if self.sort == "bandwidth" else None

    def check(self, scenario: Scenario) -> None:
        """Raise UserError for a value out of range, or a scenario whose rounds have no deadline."""
        if self.sort == "deadline":
            self._check_deadline(scenario)
        if self.sort == "bandwidth":
            self._check_factor()

    def _check_deadline(self, scenario: Scenario) -> None:
        """Raise UserError if the server has no deadline, or for a deadline that is not > 0 and finite."""
        kind, deadline_s = scenario.server.kind, self.value or 0.0
        if not scenario.server.closes_by_deadline:
            raise UserError(f"--deadline {deadline_s:g}: server.kind = {kind!r} closes its rounds by no deadline; leave it out")
        if not 0 < deadline_s < float("inf"):
            raise UserError(f"--deadline {deadline_s:g}: must be > 0 seconds")

    def _check_factor(self) -> None:
        """Raise UserError for a factor of bandwidth that is not > 0 and finite."""
        if not 0 < (self.value or 0.0) < float("inf"):
            raise UserError(f"--bandwidth {self.value:g}: must be a factor > 0, such as 2 for twice the bandwidth")
