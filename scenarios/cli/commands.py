"""Common part of all commands: the option --no-import, and one line if the user stops them or a file cannot be used."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from typer.core import TyperGroup

from netsim.core.collector import pause_collector
from scenarios.cli.output import complain
from scenarios.registry.trust import forbid_own_code
from scenarios.schema.errors import users_line

_NO_IMPORT = Annotated[bool, typer.Option("--no-import", help="Refuse components that are not netsim's own; import none.")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function` as a command: with the option --no-import, and one message in place of a traceback.

    Exit code 2 if a file cannot be used, or a component of the user's own ends the program. Typer reads options from a function's
    signature and annotations, so both are set here.
    """

    @functools.wraps(function)
    def run_command(*, no_import: bool, **arguments: Any) -> None:
        """Run the command; errors that are no faults of netsim end in one line and exit code 2, without a traceback."""
        try:
            with forbid_own_code(no_import):
                function(**arguments)
        except SystemExit as error:  # netsim's own commands raise typer.Exit
            message = f"a component of your own ended the program by sys.exit({error.code!r}){users_line(error)}"
            complain(f"{message}; let it raise an exception")
            raise typer.Exit(2) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename is not None else ""
            complain(f"{place}{error.strerror or error}; make room, or put right what is wrong there, and try again")
            raise typer.Exit(2) from error

    hints = get_type_hints(function, include_extras=True) | {"no_import": _NO_IMPORT}
    own = inspect.signature(function).parameters.values()
    added = inspect.Parameter("no_import", inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in (*own, added)]
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = hints
    return run_command


class Commands(TyperGroup):
    """Group of all commands. It reports an interrupt also while the command line is read, where Typer would exit silently."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        try:
            with pause_collector():  # Typer imports its converters here
                return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt as error:
            exit_interrupted(error)

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            exit_interrupted(error)


def exit_interrupted(error: KeyboardInterrupt) -> NoReturn:
    """Report an interrupt in one line, and exit with code 130."""
    complain(f"interrupted; {error}" if str(error) else "interrupted")
    sys.exit(130)
