"""The `[work]` table: amount of local training of an update."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from scenarios.schema.per_client import PerClientField
from scenarios.schema.section import Section, problem


class Work(Section):
    """Work of each client in an update. With `[learner]` it takes the place of the learner's own numbers.

    Without one they are what an update takes: `clients.data_sizes` says how many samples a pass has.
    """

    epochs: PerClientField | None = None
    """Passes over a client's samples. Absent, with `steps`: those of `[learner]`, or 1."""
    steps: PerClientField | None = None
    """Local steps, in place of passes."""
    batch_size: PerClientField | None = None
    """Samples of a local step; the last batch of a pass may be short. Absent: that of `[learner]`, or a pass is one step."""
    partial_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of updates that are made with only some of the passes, 1 to epochs - 1, drawn by client and round, and that are used
    as they are (the stragglers of FedProx). They take less time where [compute] gives a speed, which expected latencies
    count in."""
    forward_share: Annotated[float, Field(ge=0)] = 1 / 3
    """Cost of evaluating the model on a sample, as a share of training on it."""

    @model_validator(mode="after")
    def _check_amount(self) -> Self:
        """Refuse `steps` together with keys that count in passes."""
        if self.epochs is not None and self.steps is not None:
            raise problem(("steps",), self.steps, "leave it out; epochs says how much")
        if self.partial_share and self.steps is not None:
            raise problem(("partial_share",), self.partial_share, "is of passes; give epochs in place of steps")
        return self
