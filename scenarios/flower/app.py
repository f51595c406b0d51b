"""A Flower app: its folder, components and run config."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsim.collisions import FOLDERS
from scenarios.flower.internals import require_flwr
from scenarios.flower.simulated_time import is_library_file
from scenarios.registry.in_process import find_object
from scenarios.schema.errors import UserError, did_you_mean, first_line
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    from scenarios.schema.servers.flower import Flower

_PROJECT = "pyproject.toml"
_ROOT = Path(__file__).parents[2]
_LIBRARY = _ROOT / "scenarios" / "library"
_NETSIM_FOLDERS = tuple(f"{_ROOT / name}{os.sep}" for name in ("netsim", *FOLDERS))
"""Beginnings of the names of netsim's files."""


@dataclass(frozen=True)
class App:
    """Flower app: its components, and its run config."""

    name: str
    run_config: Tables
    serverapp: str = ""
    """The ServerApp as "module:object"; empty for an app of objects."""
    clientapp: str = ""
    folder: Path | None = None
    """Folder on the import path while the app runs; None: the components are objects."""
    objects: tuple[Any, Any] | None = None
    """The ServerApp and the ClientApp, if they are objects of this process."""

    def is_file(self, file: str) -> bool:
        """Return True if `file` belongs to the app. For an app of objects: all files but those of libraries and of netsim."""
        if self.folder is not None:
            return file.startswith(f"{self.folder}{os.sep}")
        return not (is_library_file(file) or f"{os.sep}flwr{os.sep}" in file or file.startswith(_NETSIM_FOLDERS))

    def owns(self, module: str) -> bool:
        """Return True if the imported module of this name belongs to the app."""
        file = getattr(sys.modules.get(module), "__file__", None)
        return module == "__main__" if file is None else self.is_file(file)

    def _paths(self) -> list[str]:
        """Return the folders on the import path while the app runs."""
        assert self.folder is not None
        return [str(place) for place in (self.folder, self.folder / "src") if place.is_dir()]

    @contextmanager
    def components(self) -> Iterator[tuple[Any, Any]]:
        """Import the ServerApp and the ClientApp for the block, and remove the app's modules after it; raises UserError."""
        require_flwr()
        if self.objects is not None:
            yield self.objects
            return
        # Hide modules of the same names, of another app or of the user's program, during the block.
        names = {name for path in self._paths() for name in _top_modules(Path(path))}
        hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
        for name in hidden:
            del sys.modules[name]
        sys.path[:0] = self._paths()
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield self._load("serverapp"), self._load("clientapp")
        finally:
            sys.dont_write_bytecode = before
            for name in _modules_in(self.folder):
                del sys.modules[name]
            sys.modules.update(hidden)

    def _load(self, component: str) -> Any:
        """Import a component of the app; raises UserError if that fails."""
        location: str = getattr(self, component)
        module, colon, name = location.partition(":")
        message = f"flower.app = {self.name!r}: {component} = {location!r}"
        if not (module and colon and name):
            raise UserError(f"{message}: must be of the form module:object, in [tool.flwr.app.components] of its {_PROJECT}")
        try:
            value: Any = import_module(module)
            for part in name.split("."):
                value = getattr(value, part)
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"{message}: cannot be imported: {reason}; {_remedy(error)}") from error
        return value


def _remedy(error: BaseException) -> str:
    """Return the remedy for a component that cannot be imported."""
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name}, or correct the name"
    return "correct the app"


def _top_modules(folder: Path) -> list[str]:
    """Return the names of modules and packages in `folder`; those of the standard library are left out."""
    packages = [entry.name for entry in folder.iterdir() if entry.is_dir() and next(entry.glob("*.py"), None) is not None]
    names = [*packages, *(file.stem for file in folder.glob("*.py"))]
    return [name for name in names if name not in sys.stdlib_module_names]


def _modules_in(folder: Path | None) -> list[str]:
    """Return the names of the imported modules whose files are in `folder`, or below it."""
    assert folder is not None
    # Compare strings, because Path is slow for thousands of modules.
    names, prefix = [], f"{folder}{os.sep}"
    for name, module in list(sys.modules.items()):
        # A namespace package has folders (`__path__`) in place of a file.
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
        if file and file.startswith(prefix):
            names.append(name)
    return names


def app_folder(app: str) -> Path:
    """Return the folder of an app: the user's, or an example of netsim; raises UserError."""
    folder = Path(app)
    if not folder.is_dir() and folder.parent == Path():
        folder = next((file.parent for file in sorted(_LIBRARY.rglob(_PROJECT)) if file.parent.name == app), folder)
    if not (folder / _PROJECT).is_file():
        reason = f"has no {_PROJECT}" if folder.is_dir() else "is no folder"
        raise UserError(f"flower.app = {app!r}: {reason}; give the folder of a Flower app, in which its {_PROJECT} lies")
    return folder.resolve()


def app_files(app: str) -> list[Path]:
    """Return the pyproject.toml and the program files of an app; empty for an app of objects."""
    if find_object(app) is not None:
        return []
    folder = app_folder(app)
    return [folder / _PROJECT, *sorted(folder.rglob("*.py"))]


def read_app(app: str, run_config: Mapping[str, Any]) -> App:
    """Read the pyproject.toml of an app; raises UserError."""
    folder = app_folder(app)
    try:
        project = tomllib.loads((folder / _PROJECT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"flower.app = {app!r}: {_PROJECT} cannot be read: {error}") from error
    settings = _table(project, "tool", "flwr", "app")
    components = _table(settings, "components")
    for name in ("serverapp", "clientapp"):
        if not isinstance(components.get(name), str):
            raise UserError(
                f'flower.app = {app!r}: {_PROJECT} names no {name}; give it in [tool.flwr.app.components], as "module:object"'
            )
    for name in _top_modules(folder):
        if name in ("netsim", *FOLDERS):
            message = f"flower.app = {app!r}: its {name} has the name of a package of netsim's, which hides it"
            raise UserError(f"{message}; move it into the app's own package")
    return App(
        name=app,
        run_config=join_run_config(flatten(_table(settings, "config")), run_config),
        serverapp=components["serverapp"],
        clientapp=components["clientapp"],
        folder=folder,
    )


def _table(tables: Any, *keys: str) -> Tables:
    """Return the table below `keys`; an empty one if there is none."""
    for key in keys:
        tables = tables.get(key) if isinstance(tables, dict) else None
    return tables if isinstance(tables, dict) else {}


def join_run_config(own: Mapping[str, Any], changes: Mapping[str, Any]) -> Tables:
    """Return the run config `own` of an app with the values in `changes`; raises UserError for unknown keys."""
    values = flatten(changes)
    for name, value in values.items():
        if name not in own:
            message = f"flower.run_config.{name} = {value!r}: the app's run config has no such key"
            raise UserError(f"{message}; {did_you_mean(name, own)}")
    return {**own, **values}


def flatten(tables: Mapping[str, Any], above: str = "") -> Tables:
    """Return nested tables as one, with dots in their keys.

    >>> flatten({"train": {"lr": 0.1}, "rounds": 3})
    {'train.lr': 0.1, 'rounds': 3}
    """
    flat: Tables = {}
    for name, value in tables.items():
        flat |= flatten(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return flat


def find_app(section: Flower) -> App:
    """Return the app of a scenario; raises UserError."""
    require_flwr()
    objects = find_object(section.app)
    if objects is not None:
        return App(name=section.app, run_config=flatten(section.run_config), objects=objects)
    return read_app(section.app, section.run_config)
