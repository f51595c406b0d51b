"""Options of a sweep: machines, limits, and the treatment of an earlier attempt in its folder."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.runs.wall_limit import WallLimit
from scenarios.schema.errors import UserError
from scenarios.sweeps.attempts import RETRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines that simulate runs: processes of this machine, or the workers of a Dask scheduler."""

    jobs: int | None = None
    """Processes of this machine; None: all cores."""
    cluster: str | None = None
    """Address of a Dask scheduler whose workers are used instead, or "local:N", which starts one with N processes."""
    send_back: bool = False
    """True if results travel back from the workers of a scheduler; otherwise they share the folder with this process."""
    retries: int = RETRIES
    """Number of times that a run is simulated again after its worker was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Treatment of an earlier attempt in the folder; by default a folder that holds a sweep is refused.

    Raises UserError where it is to be both replaced and gone on with.
    """

    overwrite: bool = False
    resume: bool = False
    """True: complete runs are kept, even if the plan has changed (a run is known by its identity, see `identity`); interrupted
    runs are resumed from their last checkpoint.
    """
    allow_changed_code: bool = False
    """True: resume although the code of users' components has changed since the earlier runs; False: refuse that."""

    def __post_init__(self) -> None:
        if self.overwrite and self.resume:
            raise UserError("overwrite and resume: one replaces the earlier sweep, the other goes on with it; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of every run. Raises UserError for a wall time that is none."""

    event_limit: int | None = None
    """Number of events after which a run ends. Such runs are simulated again when a sweep is resumed."""
    wall_limit_s: float | None = None
    """Wall seconds after which a run ends. Such a run counts as failed, and can be resumed."""

    def __post_init__(self) -> None:
        self.wall(may_end_process=False)

    def wall(self, *, may_end_process: bool) -> WallLimit:
        """Return the limit of the wall time of one run."""
        return WallLimit(self.wall_limit_s, may_end_process=may_end_process)


THIS_MACHINE = Machines()
NO_LIMITS = Limits()
REFUSE = Earlier()
