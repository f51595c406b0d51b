"""Errors and warnings that know which parameter they are about; models and engine share them."""

import pickle

import pytest

import models.errors
from netsim.core import errors


@pytest.mark.parametrize(("name", "base"), [("ParameterError", ValueError), ("ParameterWarning", UserWarning)])
def test_name_value_and_reason_are_attributes_and_make_the_message(name: str, base: type[Exception]) -> None:
    said = getattr(errors, name)("rate", "fast", "must be a number")
    assert isinstance(said, base)
    assert (said.name, said.value, said.reason) == ("rate", "fast", "must be a number")
    assert str(said) == "rate = 'fast': must be a number"
    assert str(said.rename("peers.rate")) == "peers.rate = 'fast': must be a number"
    assert type(said.rename("peers.rate")) is type(said)


def test_something_else_than_the_value_may_be_shown() -> None:
    error = errors.ParameterError("sizes", [1, 2, 3], "must be (4,)", shown=" has shape (3,)")
    assert str(error) == "sizes has shape (3,): must be (4,)"
    assert str(error.rename("clients.data_sizes")) == "clients.data_sizes has shape (3,): must be (4,)"
    assert str(errors.ParameterError("schedule", None, "is empty", shown="")) == "schedule: is empty"


def test_a_worker_of_a_sweep_can_hand_it_on() -> None:
    error = pickle.loads(pickle.dumps(errors.ParameterError("sizes", 3, "must be 4", shown=" are 3")))
    assert (str(error), error.value) == ("sizes are 3: must be 4", 3)


def test_an_answer_that_cannot_be_used_is_told_of_a_component() -> None:
    error = errors.AnswerError("jammer", "choose", [7], "must be sub-channels within reach", name="one")
    assert isinstance(error, ValueError)
    assert (error.role, error.method, error.name) == ("jammer", "choose", "one")
    assert error.without_role == "choose returned [7]; must be sub-channels within reach"
    assert str(error) == f"jammer 'one': {error.without_role}"


@pytest.mark.parametrize("name", ["AboutParameter", "AnswerError", "ParameterError", "ParameterWarning"])
def test_models_raise_what_the_engine_raises(name: str) -> None:
    assert getattr(models.errors, name) is getattr(errors, name)
