"""The annotations of a user's own classes: every spelling of what a file can hold is read, all else is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.registry.components import component_model, per_client_parameters
from scenarios.runs.reading import load, parse, to_toml
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

MODULE = '''
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.laws.delays import PerClient

if TYPE_CHECKING:
    from nowhere import Clients

Seconds = NewType("Seconds", float)
Either = Union[PerClient, Literal["auto"]]
READ = {
    "plain": PerClient, "or_none": PerClient | None, "optional": Optional[PerClient], "union": Union[None, PerClient],
    "written_out": float | NDArray[np.float64] | None, "bare": Union[np.ndarray, float], "annotated": Annotated[PerClient, "s"],
    "within": Annotated[Optional[Annotated[PerClient, "s"]], "s"], "or_word": Either, "with_int": int | float | np.ndarray,
}


class Law:
    def quantile(self, u, entities):
        one = self.x is None or isinstance(self.x, str)
        return np.ones(len(entities)) if one else np.broadcast_to(self.x, 6)[entities] + 0 * u

    def mean_s(self, entities):
        return self.quantile(np.full(len(entities), 0.5), entities)


def law(hint):
    class Own(Law):
        def __init__(self, *, clients: Clients, x=None):
            self.x = x

    Own.__init__.__annotations__["x"] = hint
    return Own


for name, hint in READ.items():
    globals()[name] = law(hint)


class Text(Law):
    """`x` is annotated as a text, beside what only a type checker can import."""

    def __init__(self, *, clients: Clients, x: PerClient | None = None, y: PerClient = None, z: Seconds = 1.0):
        self.x = x


class Same(Law):
    x = None

    def __init__(
        self, *, word: Literal["a", "b"] | None = None, pair: tuple[float, int] = (1.0, 2), many: Sequence[float] = (),
        table: Mapping[str, list[float]] = {}, any: Any = 3, untold=4, many_or_one: list[int] | int = 1, wait: Seconds = 1.0,
        open: tuple[float, ...] | None = None,
    ):
        self.told = (word, pair, many, table, any, untold, many_or_one, wait, open)


class Array(Law):
    def __init__(self, *, x: np.ndarray): pass


class ArrayOrNone(Law):
    def __init__(self, *, x: NDArray[np.float64] | None = None): pass


class Like(Law):
    def __init__(self, *, x: ArrayLike = 1.0): pass


class Folder(Law):
    def __init__(self, *, x: Path): pass


class Deep(Law):
    def __init__(self, *, x: list[PerClient]): pass


class Numbered(Law):
    def __init__(self, *, x: dict[int, float]): pass


class Nowhere(Law):
    def __init__(self, *, x: NoSuchType): pass


class Wrong(Law):
    def __init__(self, *, x: PerClient | None = "none"): pass


class Endless(Law):
    def __init__(self, *, x: float = float("inf")): pass


class Scheduler:
    def __init__(self, *, clients: int, channels: int, x: PerClient = 1.0): pass
'''
SPELLINGS = ("plain", "or_none", "optional", "union", "written_out", "bare", "annotated", "within", "or_word", "with_int", "Text")


@pytest.fixture(scope="module", autouse=True)
def _lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hints")
    (folder / "hinted.py").write_text(MODULE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def means(kind: str, value: str | None, *settings: str) -> list[float]:
    x = "" if value is None else f",x={value}"
    truth = build(small(f"uplink.delay={{kind='hinted:{kind}'{x}}}", "uplink.changes=[]", *settings)).truth
    return truth.mean_latency_s(1, 0.0).tolist()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", SPELLINGS)
def test_every_spelling_of_a_number_for_each_client_takes_all_its_forms(kind):
    assert "x" in per_client_parameters("delay", f"hinted:{kind}")
    assert means(kind, "2.0") == [2.0] * 6
    assert means(kind, "{by_group={fast=2.0,slow={from=0.0,to=3.0}}}") == [2.0, 2.0, 2.0, 1.0, 2.0, 3.0]
    assert means(kind, "[1.0,2.0,3.0,4.0,5.0,6.0]") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert means(kind, None) == [1.0] * 6
    with pytest.raises(
        UserError, match=r'uplink\.delay\.x = "many": must be a finite number, \{ from = \.\., to = \.\. \}'
    ) as error:
        means(kind, "'many'")
    assert "\n" not in str(error.value)


def test_a_word_beside_numbers_is_one_choice_more():
    assert means("or_word", "'auto'") == [1.0] * 6
    with pytest.raises(UserError, match=r"or a list with one number a client, or must be 'auto', or \"none\" to leave it out$"):
        means("or_word", "'many'")


def test_a_parameter_that_may_be_none_changes_like_others():
    def over_time(*changes: str) -> list[list[float]]:
        settings = ("uplink.delay={kind='hinted:or_word'}", f"uplink.changes=[{','.join(changes)}]")
        truth = build(small(*settings)).truth
        return [truth.mean_latency_s(round, 0.0).tolist() for round in (1, 2, 3, 4)]

    some = "{at_round=3,clients='fast',delay={x={from=0.0,to=3.0}}}"
    assert over_time("{at_round=2,delay={x=5.0}}", some, "{at_round=4,delay={x='auto'}}") == [
        [1.0] * 6,
        [5.0] * 6,
        [1.0, 2.0, 3.0, 5.0, 5.0, 5.0],
        [1.0] * 6,
    ]
    with pytest.raises(
        UserError, match=r"uplink\.changes\.0\.delay\.x: the other clients have no number there \(None\); give them"
    ):
        over_time(some)
    with pytest.raises(UserError, match=r"'delay\.x': parameter 'x' cannot be multiplied"):
        build(small("uplink.delay={kind='hinted:or_none'}", "uplink.random_changes={count=1,parameter='delay.x'}"))


def test_what_is_the_same_for_all_is_read_as_annotated(tmp_path):
    given = {"word": "b", "pair": [2.5, 3], "many": [1.0], "table": {"a": [2.0]}, "any": [1, "x"], "open": [1.0, 2.0]}
    model = component_model("delay", "hinted:Same")
    read = model.model_validate({"kind": "hinted:Same", **given})
    assert read.parameters() | {"pair": [2.5, 3], "open": [1.0, 2.0]} == given | {"untold": 4, "many_or_one": 1, "wait": 1.0}
    # What was read is written, and read again.
    study = small("uplink.changes=[]", "rounds=1").model_copy()
    tables = study.model_dump(exclude_none=True, by_alias=True)
    study = parse(tables | {"uplink": {"delay": {"kind": "hinted:Same", **given}}})
    run(study, tmp_path / "run")
    assert load(str(tmp_path / "run" / "scenario.toml")) == parse(
        tables | {"uplink": {"delay": {"kind": "hinted:Same", **given}}}
    )
    assert to_toml(load(str(tmp_path / "run" / "scenario.toml"))) == to_toml(study)


REFUSED = {
    "Array": ("x", "is annotated ndarray, which a file cannot hold; annotate it as a number, a string, true or false, a list"),
    "ArrayOrNone": ("x", "is annotated NDArray[float64] | None, which a file cannot hold; annotate it as"),
    "Like": ("x", "is annotated _Buffer, which a file cannot hold; annotate it as"),
    "Folder": ("x", "is annotated Path, which a file cannot hold; annotate it as"),
    "Deep": ("x", "is annotated NDArray[float64], which a file cannot hold; annotate it as"),
    "Numbered": ("x", "is annotated dict[int, float], which a file cannot hold"),
    "Nowhere": ("x", "is annotated 'NoSuchType', which cannot be read (NameError: name 'NoSuchType' is not defined); annotate"),
    "Wrong": ("x", "has the default 'none', which its key cannot have (must be a finite number"),
    "Endless": ("x", "has the default inf, which its key cannot have (Input should be a finite number); change the default"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_file_can_hold_is_refused_by_argument_and_remedy(kind):
    name, fragment = REFUSED[kind]
    with pytest.raises(UserError) as error:
        small(f"uplink.delay={{kind='hinted:{kind}'}}", "uplink.changes=[]")
    told = str(error.value)
    assert f"'hinted:{kind}': argument {name!r} of its constructor {fragment}" in told
    assert "\n" not in told
    assert "pydantic" not in told.lower()


def test_where_nothing_differs_between_clients_the_annotation_is_refused():
    asynchronous: dict[str, Any] = {"name": "x", "rounds": 3, "clients": {"count": 3}, "server": {"kind": "asynchronous"}}
    with pytest.raises(UserError, match=r"argument 'x' of its constructor is annotated .*; annotate it as list\[float\]"):
        parse(asynchronous | {"channels": {"count": 3}, "scheduler": {"kind": "hinted:Scheduler"}})


def test_annotations_are_seen_through_aliases():
    from scenarios.registry.hints import takes_per_client

    assert takes_per_client(float | np.ndarray | None)
    assert not takes_per_client(float | None)
    assert not takes_per_client(np.ndarray | None)
    assert not takes_per_client(list[float] | float)
