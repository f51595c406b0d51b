"""Discrete-event engine: its actors and media, and the records that they leave.

The only folder that imports SimPy. What the world, the policies and the learner compute is called through the Protocols of
`netsim.core.protocols`; nothing here knows a law, a policy or a network by name. The exception are the public functions,
which are those of `scenarios.api`, imported when first asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from netsim.collisions import NameCollisionError, refuse_collisions, started_as_command
from netsim.core.collector import pause_collector, skip_last_collection
from netsim.core.interrupts import ignore_interrupts_at_the_end, raise_interrupts

if TYPE_CHECKING:
    from scenarios.api import Scenario, Script, World, fit, load, open_run, open_sweep, register, resume, run, sweep

__all__ = ["Scenario", "Script", "World", "fit", "load", "open_run", "open_sweep", "register", "resume", "run", "sweep"]

if not started_as_command():
    refuse_collisions()


if not TYPE_CHECKING:  # a type checker would take any name to be there

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import scenarios.api

        value = getattr(scenarios.api, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _command() -> None:
    """Run the command `netsim`. It starts here, so that a collision of names is reported before anything else is imported, and
    without a traceback.
    """
    try:
        raise_interrupts()
        refuse_collisions()
        with pause_collector():
            from scenarios.cli.main import main
        main()
    except NameCollisionError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        ignore_interrupts_at_the_end()
        skip_last_collection()
