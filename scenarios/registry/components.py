"""Sections of components, such as `{kind = "gaussian", mean_s = 0.2, ...}`, whose keys follow from a constructor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from netsim.core.errors import ParameterError
from scenarios.registry.arguments import Argument, argument_names, arguments_of, gather_keywords
from scenarios.registry.hints import HintError, annotation_of, key_type, meaning_of, takes_per_client
from scenarios.registry.in_process import stored_kind
from scenarios.registry.kinds import (
    ANY_ORDER,
    FACTORIES,
    NESTED,
    POSITIONAL,
    SUPPLIED,
    check_trusted,
    is_own,
    known_names,
    resolve,
    supplied_arguments,
)
from scenarios.schema.errors import UserError, describe_own_error, did_you_mean
from scenarios.schema.section import Section, problem, refusal

Keywords = dict[str, Any]
"""Keyword arguments of a constructor, by name."""
KINDS_OF, IN_A_GROUP, THAT_FIT = "kinds-of-", "-in-a-group", "-that-fit"
"""Parts of the comment that marks a choice of components in the JSON Schema: its beginning, the end of a choice without laws by
group, and the end of a choice without unfit classes."""
GIANT = 10**12
"""Largest absolute value of a whole number in a section."""
PER_CLIENT_GROUPS = frozenset({"policy", "delay", "bandwidth", "noise", "channel", "availability", "reward", "states"})
"""Groups of components whose parameters may differ between clients (for sub-channels: between these)."""
OWN_CLASS = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
_SUPPLIED_BY = {
    "clients": "clients.count",
    "channels": "channels.count",
    "per_round": "server.per_round",
    "per_model": "server.buffer",
    "data_sizes": "clients.data_sizes",
    "schedule": "privacy.schedule",
}
"""Argument that the builder supplies to the key of the scenario that it comes from, for errors of the constructor."""


class Component(Section):
    """Section of a component, with the name of its class."""

    kind: str

    @model_validator(mode="before")
    @classmethod
    def _refuse_giants(cls, value: object) -> object:
        """Refuse whole numbers above `GIANT`."""
        # Constructors check their parameters, but expect numbers of at most 64 bits.
        if isinstance(value, dict):
            for key, entry in value.items():
                if isinstance(entry, int) and abs(entry) > GIANT:
                    raise problem((key,), entry, f"must be between -{GIANT:g} and {GIANT:g}")
        return value

    def parameters(self) -> Keywords:
        """Return the keys other than `kind`, which are keywords of the constructor."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}


@cache
def component_model(group: str, kind: str, base: type[Component] = Component) -> type[Component]:
    """Return the pydantic model of the section of the component `kind`, made from the arguments of its constructor.

    Every argument is a key, but for those that the builder supplies; the docstring becomes the description. Cached, because a
    model is slow to make, and equal sections must have one class. Raises UserError if there is no such component, or an argument
    cannot be a key.
    """
    target = resolve(group, kind)
    doc = _description(inspect.getdoc(target) or "")
    fields: Keywords = {"kind": (Literal[kind], kind) if ":" not in kind else (str, kind)}
    for name, argument in _key_arguments(target, group, kind).items():
        if base is not Component and hasattr(base, name):
            raise UserError(f"{kind!r}: argument {name!r} of its constructor has a name that a key cannot have; rename it")
        default = argument.default
        hint = component_of(NESTED[name], nested=True) if name in NESTED else _key_type(argument, name, group, kind)
        meaning = meaning_of(argument.owner, name)
        # A key with the default None accepts None, even if its annotation does not.
        fields[name] = (hint if default is not None else hint | None, Field(default, description=meaning))
    model = create_model(kind, __base__=base, __doc__=doc, **fields)
    model.moved = base.moved | _supplied_keys(target, group)
    return model


def _supplied_keys(target: object, group: str) -> dict[str, str]:
    """Return a message for each argument that the builder supplies, for scenarios that give it as a key; by name."""
    names = [name for name, _ in arguments_of(target) if name in supplied_arguments(group)]
    remedy = "leave the key out, or rename the argument of a class of your own that means something else"
    return {name: f"is no key: netsim supplies this argument of a {group}, {SUPPLIED[name]}; {remedy}" for name in names}


def _key_type(argument: Argument, name: str, group: str, kind: str) -> Any:
    """Return the type of the key for argument `name` of a constructor; raises UserError if the argument cannot be a key."""
    where, default = f"{kind!r}: argument {name!r} of its constructor", argument.default
    try:
        hint = key_type(annotation_of(argument.owner, name), per_client=group in PER_CLIENT_GROUPS)
    except HintError as error:
        raise UserError(f"{where} {error}") from error
    # Tests check the defaults of netsim's classes, so only defaults of users' classes are checked here.
    if default is not ... and default is not None and is_own(group, kind):
        try:
            TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(default)
        except ValidationError as error:
            reason = f"which its key cannot have ({error.errors()[0]['msg']})"
            raise UserError(f"{where} has the default {default!r}, {reason}; change the default or the annotation") from error
    return hint


def _description(doc: str) -> str:
    """Return a docstring up to its first section or example that is only for users of Python."""
    return re.split(r"\n(?:(?:Raises|Returns|Examples?):\n|>{3} )", doc)[0].strip()


def _key_arguments(target: object, group: str, kind: str) -> dict[str, Argument]:
    """Return the arguments of a constructor that are keys, by name: all but those that the builder supplies.

    Raises UserError for an argument that cannot be a key.
    """
    supplied, positional_count = supplied_arguments(group), POSITIONAL.get(group, 0)
    arguments: dict[str, Argument] = {}
    for index, (name, argument) in enumerate(arguments_of(target)):
        parameter = argument.parameter
        is_positional = index < positional_count and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        # A module class without a constructor has *args and **kwargs, which are left empty.
        stays_empty = group in ANY_ORDER and "VAR" in parameter.kind.name
        if name in supplied or is_positional or stays_empty:
            continue
        if name in arguments:
            raise UserError(f"{kind!r}: argument {name!r} of its constructor is also a field of a set of parameters; rename one")
        arguments[name] = argument
    for name, argument in arguments.items():
        _check_parameter(argument.parameter, name, group, kind)
    return arguments


def _check_parameter(parameter: inspect.Parameter, name: str, group: str, kind: str) -> None:
    """Raise UserError unless a key called `name` can give this parameter of a constructor its value."""
    may_be_positional = group in ANY_ORDER and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    if parameter.kind is not parameter.KEYWORD_ONLY and not may_be_positional:
        remedy = "write each of its keywords out" if "VAR" in parameter.kind.name else "put it after a '*'"
        raise UserError(f"{kind!r}: argument {name!r} of its constructor must be keyword-only; {remedy}")
    if may_be_positional and parameter.default is parameter.empty and parameter.annotation is parameter.empty:
        remedy = "call it inputs (the shape of a sample) or classes, or annotate it if it is a key of the scenario"
        raise UserError(f"{kind!r}: nothing is known to pass as argument {name!r}; {remedy}")
    if name == "kind" or name[0] == "_" or hasattr(Component, name):
        raise UserError(f"{kind!r}: argument {name!r} of its constructor has a name that a key cannot have; rename it")


@cache
def per_client_parameters(group: str, kind: str) -> frozenset[str]:
    """Return the names of a component's parameters that may differ between clients."""
    if group not in PER_CLIENT_GROUPS:
        return frozenset()
    names = []
    for name, argument in _key_arguments(resolve(group, kind), group, kind).items():
        # The annotation of a nested component may name a type that is imported for type checkers only.
        if name not in NESTED and takes_per_client(annotation_of(argument.owner, name)):
            names.append(name)
    return frozenset(names)


@cache
def section_schema(model: type[Component]) -> JsonSchemaValue:
    """Return the JSON Schema of a section. It is cached, because the schema of a scenario contains a section several times.

    It depends on the registered classes, so `json_schema` clears the cache. A caller that changes the result must copy it.
    """
    return model.model_json_schema(by_alias=True)


class _ComponentOf:
    """Marker of a field that holds a component of `group`. The model of its `kind` validates it.

    Args:
        group: group of the component.
        described: models by kind, for kinds with a class that is too slow to import when a scenario is read.
        base: base class of all other models.
        nested: True for a component within another one. It must not contain one of its own group in turn.
        fits: function that returns True for allowed classes; None: all are allowed.
        why: end of the message about a class that is not allowed.
    """

    def __init__(
        self,
        group: str,
        described: Mapping[str, type[Component]] | None,
        base: type[Component],
        nested: bool,
        fits: Callable[[Any], bool] | None = None,
        why: str = "",
    ) -> None:
        self.group = group
        self.described = described or {}
        self.base = base
        self.by_group = group in BY_GROUP and not nested
        """True if the kind "by-group" is allowed, which gives each group of clients a law of its own."""
        self.innermost = nested and group in NESTED.values()
        """True if the component must not contain one of its own group."""
        self.fits, self.why = fits, why

    def kinds(self) -> list[str]:
        """Return the names that the field allows."""
        names = list({**self.described, **known_names(self.group)})
        if self.innermost:
            names = [name for name in names if self._fits_within(name)]
        if self.fits is not None:
            names = [name for name in names if self.fits(resolve(self.group, name))]
        return [*names, "by-group"] if self.by_group else names

    def model(self, kind: str) -> type[Component]:
        """Return the model of the section for `kind`; raises UserError for a kind that the field does not allow."""
        if kind == "by-group" and self.by_group:
            return BY_GROUP[self.group]
        if kind in self.described:
            return self.described[kind]
        if self.described and ":" not in kind and kind not in known_names(self.group):
            remedy = did_you_mean(kind, self.kinds(), "name a class as 'package.module:Class'")
            raise UserError(f"unknown {self.group} {kind!r}; {remedy}")
        check_trusted(self.group, kind)  # check each time, because models are cached
        if self.innermost and not self._fits_within(kind):
            raise UserError(f"{kind!r} cannot stand within another {self.group}; choose one of {', '.join(self.kinds())}")
        if self.fits is not None and not self.fits(resolve(self.group, kind)):
            raise UserError(f"{kind!r} {self.why}; choose one of {', '.join(self.kinds())}")
        return component_model(self.group, kind, self.base)

    def _fits_within(self, kind: str) -> bool:
        """Return True if this kind fits within another component of its group.

        It must not contain one of that group itself, and must not let clients share a sub-channel.
        """
        target = resolve(self.group, kind)
        holds_its_group = self.group in argument_names(target)
        lets_clients_share = self.group == "scheduler" and target.contends
        return not holds_its_group and not lets_clients_share

    def read(self, value: object) -> object:
        """Return the validated section of a table; a section is returned unchanged. Raises errors of pydantic."""
        if isinstance(value, BaseModel):
            return value
        if isinstance(value, dict) and "kind" in value:
            try:
                value = {**value, "kind": stored_kind(self.group, value["kind"])}
            except UserError as error:
                raise problem(("kind",), value["kind"], str(error)) from error
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            names = ", ".join(self.kinds())
            kinds = f"one of: {names}" if names else "such as 'package.module:name'"
            raise refusal(f"must be a table with a key kind, {kinds}")
        try:
            model = self.model(value["kind"])
        except UserError as error:
            raise problem(("kind",), value["kind"], str(error)) from error
        return model.model_validate(value)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        kinds = []
        for kind in self.kinds():
            table = deepcopy(section_schema(self.model(kind)))
            # The section has a default for `kind`, but a user must write it: it chooses the section.
            table["required"] = ["kind", *table.get("required", [])]
            kinds.append(table)
        address = {"type": "string", "pattern": OWN_CLASS, "description": "A class of your own, as package.module:Class."}
        kinds.append({"type": "object", "title": "a class of your own", "properties": {"kind": address}, "required": ["kind"]})
        ending = ""
        if self.group in BY_GROUP and not self.by_group:
            ending = IN_A_GROUP
        elif self.fits is not None:
            ending = THAT_FIT
        return {"anyOf": kinds, "$comment": f"{KINDS_OF}{self.group}{ending}"}


def component_of(
    group: str,
    *,
    described: Mapping[str, type[Component]] | None = None,
    base: type[Component] = Component,
    nested: bool = False,
    fits: Callable[[Any], bool] | None = None,
    why: str = "",
) -> Any:
    """Return the type of a field that holds a component of `group`. See `_ComponentOf` for the arguments."""
    marker = _ComponentOf(group, described, base, nested, fits, why)
    return Annotated[Any, BeforeValidator(marker.read), marker]


class ByGroup(Component):
    """Different kinds of a law for different groups of clients."""

    kind: Literal["by-group"] = "by-group"
    groups: dict[str, Any]


class DelayByGroup(ByGroup):
    """Different kinds of delay law for different groups of clients."""

    groups: dict[str, component_of("delay", nested=True)]  # type: ignore[valid-type]
    """A delay law for every group, by the group's name."""


class BandwidthByGroup(ByGroup):
    """Different kinds of bandwidth for different groups of clients."""

    groups: dict[str, component_of("bandwidth", nested=True)]  # type: ignore[valid-type]
    """A bandwidth for every group, by the group's name."""


BY_GROUP: dict[str, type[ByGroup]] = {"delay": DelayByGroup, "bandwidth": BandwidthByGroup}
"""Groups of components whose kind may differ between groups of clients, and the sections that set it."""


def construct(
    section: Component, group: str, path: str, keywords: Keywords, supplied: Keywords, protocol: type | None = None
) -> Any:
    """Build and return the component that a section describes, by calling the class or function that its `kind` names.

    Args:
        section: the section.
        group: kind of component, such as "delay" or "policy".
        path: path of the section in the scenario, for messages.
        keywords: arguments from the scenario, with numbers by group resolved. Nested sections are built first.
        supplied: arguments from the builder, such as `clients`; those that the constructor does not take are not used.
        protocol: Protocol that a user's component must fulfil; None: that of its group.

    Raises:
        UserError: the constructor refuses a value (the full path of the key is named); or a class of the user's own fails, or
            lacks a member that the engine calls. Other errors of a built-in class are faults of netsim, and pass unchanged.
    """
    constructor = resolve(group, section.kind)
    is_users = is_own(group, section.kind)
    arguments: Keywords = {}
    for name, value in keywords.items():
        is_nested = isinstance(value, Component)
        arguments[name] = _construct_nested(value, name, f"{path}.{name}", supplied) if is_nested else value
    supplied_names = supplied_arguments(group) & argument_names(constructor) & supplied.keys()
    supplied_values = {name: supplied[name] for name in supplied_names}
    # If the constructor refuses a supplied value, the error names the key of the scenario that the value came from.
    keys = {name: key for name, key in _SUPPLIED_BY.items() if name in supplied_names}
    try:
        with name_refusals(path, {*arguments, *supplied_names}, keys):
            component = constructor(**gather_keywords(constructor, arguments), **supplied_values)
    except UserError:
        raise
    except ValueError as error:
        if not is_users:
            raise
        raise UserError(f"{path}: {section.kind!r} refuses: {describe_own_error(error)}") from error
    except (MemoryError, OverflowError) as error:
        raise UserError(f"{path}: a number is too large ({error}); give smaller ones") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit included
        if not is_users:
            raise
        raise UserError(f"{path}: {section.kind!r} cannot be built: {describe_own_error(error)}; fix its constructor") from error
    if is_users:
        from scenarios.registry.protocols import check_component

        check_component(group, component, section.kind, path, int(supplied.get("clients", 0)), protocol)
    return component


def _construct_nested(section: Component, name: str, path: str, supplied: Keywords) -> Any:
    """Return the component for argument `name` of the outer constructor; for `FACTORIES` a function that makes new ones.

    One is built in any case, so that wrong keys are refused now.
    """
    component = construct(section, NESTED[name], path, section.parameters(), supplied)
    if is_own(NESTED[name], section.kind):
        from scenarios.registry.protocols import check_component_within

        check_component_within(NESTED[name], component, section.kind, path)
    if name not in FACTORIES:
        return component
    return lambda: construct(section, NESTED[name], path, section.parameters(), supplied)


@contextmanager
def name_refusals(path: str, names: Iterable[str], keys: Mapping[str, str] = _SUPPLIED_BY) -> Iterator[None]:
    """Turn a ParameterError of the block about one of `names` into a UserError about its key; other errors pass unchanged.

    The key is the parameter's name below `path`, or the whole key from `keys`. See `key_at`.
    """
    try:
        yield
    except ParameterError as error:
        if error.name not in names:
            raise
        raise UserError(str(error.rename(key_at(path, error.name, keys)))) from error


def name_parameters(count: int) -> set[str]:
    """Return the parameter names "0.name", "1.name", ... that `check_unique` refuses, for `name_refusals` of `count` tables."""
    return {f"{index}.name" for index in range(count)}


def key_at(path: str, name: str, keys: Mapping[str, str] = _SUPPLIED_BY) -> str:
    """Return the key of a constructor's parameter `name`: from `keys`, or below the `path` of its section."""
    return keys.get(name, f"{path}.{name}")
