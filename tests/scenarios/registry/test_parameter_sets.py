"""Parameters that components share in one frozen dataclass: a key a field, with its type, default and meaning."""

from __future__ import annotations

import tomllib

import pytest

from scenarios.registry.components import component_model, per_client_parameters
from scenarios.runs.reading import to_toml
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

MODULE = """
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.delays import PerClient

if TYPE_CHECKING:
    from nowhere import Clients


@dataclass(frozen=True, kw_only=True)
class Base:
    mean_s: Annotated[PerClient, Doc("How long it takes on average.")] = 1.0


@dataclass(frozen=True, kw_only=True)
class Shape(Base):
    factor: int = 2

    def __post_init__(self):
        if self.factor < 1:
            raise ParameterError("factor", self.factor, "must be >= 1")


class Law:
    def __init__(self, *, clients: Clients, shape: Shape = Shape(), shift_s: float = 0.0):
        self.shape, self.shift_s = shape, shift_s

    def quantile(self, u, entities):
        return self.shift_s + self.shape.factor * np.broadcast_to(self.shape.mean_s, 6)[entities] + 0 * u

    def mean_s(self, entities):
        return self.quantile(np.full(len(entities), 0.5), entities)


class Twice:
    def __init__(self, *, shape: Shape = Shape(), factor: int = 1):
        pass


@dataclass(kw_only=True)
class Changing:
    factor: int = 2


class Other:
    def __init__(self, *, shape: Changing = Changing()):
        pass
"""


@pytest.fixture(scope="module", autouse=True)
def _lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    (folder / "with_sets.py").write_text(MODULE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def law(text: str = ""):
    return small(f"uplink.delay={{kind='with_sets:Law'{text}}}", "uplink.changes=[]")


def test_a_set_gives_a_key_for_every_field():
    model = component_model("delay", "with_sets:Law")
    assert list(model.model_fields) == ["kind", "mean_s", "factor", "shift_s"]
    assert model.model_fields["mean_s"].description == "How long it takes on average."
    assert model.model_fields["factor"].default == 2
    assert per_client_parameters("delay", "with_sets:Law") == {"mean_s"}
    assert component_model("policy", "pause").model_fields["beta"].description == "Exponent of eq. 8, > 1."


def test_its_fields_reach_the_constructor_and_the_saved_scenario():
    scenario = law(",mean_s={by_group={fast=2.0,slow=3.0}},shift_s=0.5")
    assert build(scenario).truth.mean_latency_s(1, 0.0).tolist() == [4.5] * 3 + [6.5] * 3
    assert tomllib.loads(to_toml(scenario))["uplink"]["delay"] == {
        "kind": "with_sets:Law",
        "mean_s": {"by_group": {"fast": 2.0, "slow": 3.0}},
        "factor": 2,
        "shift_s": 0.5,
    }


def test_what_a_set_refuses_names_the_key():
    with pytest.raises(UserError, match=r"uplink\.delay\.factor = 0: must be >= 1"):
        build(law(",factor=0"))
    with pytest.raises(UserError, match=r"uplink\.delay\.shape"):
        law(",shape=3")


def test_names_that_meet_and_sets_that_change_are_refused():
    with pytest.raises(UserError, match="argument 'factor' of its constructor is also a field of a set of parameters"):
        component_model("delay", "with_sets:Twice")
    with pytest.raises(UserError, match="argument 'shape' of its constructor is annotated Changing, which a file cannot hold"):
        component_model("delay", "with_sets:Other")
