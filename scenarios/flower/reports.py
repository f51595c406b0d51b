"""Metrics that an app reports: in replies, by `evaluate_fn`, and in the history of the old API."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netsim.core.null_objects import NoLearner
from scenarios.flower.internals import replace_attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Reported:
    """Evaluation of a round, as the app reported it."""

    accuracy: float
    loss: float
    training_loss: float
    metrics: Mapping[str, float]
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Reports:
    """Metrics of the round under way. `accuracy_key`, `loss_key`: as of `[flower]`; `samples_key`: the weight in means."""

    samples_key: str
    accuracy_key: str | None = None
    loss_key: str | None = None
    _server: dict[str, float] = field(default_factory=dict)
    _sums: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add_reply(self, kind: str, metrics: Mapping[str, float], samples: int | None) -> None:
        """Add the `metrics` of a reply to a message of `kind`; rounds have their means, weighted by `samples`, None: as one."""
        weight = float(samples) if samples else 1.0
        sums = self._sums.setdefault(kind.partition(".")[0], {})
        for name, value in metrics.items():
            if name != self.samples_key and math.isfinite(value):
                total = sums.setdefault(name, [0.0, 0.0])
                total[0] += weight * value
                total[1] += weight

    def loss_of(self, metrics: Mapping[str, float]) -> float:
        """Return the loss among the `metrics` of a reply; NaN if there is none."""
        return _metric("loss", self.loss_key, metrics)

    def add_server(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics that the server itself measured."""
        self._server |= {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}

    def take(self) -> Reported | None:
        """Return the reports since the last call, or None without any."""
        if not (self._server or self._sums):
            return None
        means = {kind: {name: total / weight for name, (total, weight) in of.items()} for kind, of in self._sums.items()}
        evaluated, trained, server = means.get("evaluate", {}), means.get("train", {}), self._server
        self._sums, self._server = {}, {}
        loss = _metric("loss", self.loss_key, server, evaluated)
        return Reported(
            accuracy=_metric("acc", self.accuracy_key, server, evaluated),
            loss=loss,
            training_loss=_metric("loss", self.loss_key, trained),
            metrics=dict(item for source, found in sorted({**means, "server": server}.items()) for item in _names(source, found)),
        )


def _names(source: str, metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    return ((f"{source}.{name}", value) for name, value in sorted(metrics.items()) if math.isfinite(value))


def _metric(word: str, key: str | None, *sources: Mapping[str, float]) -> float:
    """Return a metric of the first of `sources` that has it; NaN if none has.

    It is `key`. Without a key it is "accuracy" for `word` "acc", "loss" for "loss", else the first with `word` in its name.
    """
    for source in sources:
        names = [key] if key is not None else [{"acc": "accuracy"}.get(word, word), *(name for name in source if word in name)]
        for name in names:
            if name in source:
                return source[name]
    return _NAN


class ReportedMetrics(NoLearner):
    """Learner of a run whose app trains: it trains nothing, and hands on what the app reported of each round."""

    round_columns: Sequence[str] = ("accuracy", "loss", "training_loss")

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self.reports = reports

    def evaluate(self, round: int, time_s: float, last: bool) -> Reported | None:
        return self.reports.take()


@contextmanager
def watched(reports: Reports) -> Iterator[None]:
    """Hear what strategies of flwr learn of the model at the server, within the block: `evaluate_fn`, and the old history."""
    from flwr.server.history import History
    from flwr.serverapp.strategy import Strategy

    add_loss, add_metrics = History.add_loss_centralized, History.add_metrics_centralized

    # Named as in flwr, which gives them by name.
    def heard_loss(self: Any, server_round: int, loss: float) -> None:
        reports.add_server({"loss": loss})
        add_loss(self, server_round, loss)

    def heard_metrics(self: Any, server_round: int, metrics: Any) -> None:
        reports.add_server(metrics)
        add_metrics(self, server_round, metrics)

    starting = [kind for kind in _family(Strategy) if "start" in vars(kind)]
    changes: list[tuple[Any, str, Any]] = [(kind, "start", _heard_start(vars(kind)["start"], reports)) for kind in starting]
    changes += [(History, "add_loss_centralized", heard_loss), (History, "add_metrics_centralized", heard_metrics)]
    with replace_attributes(changes):
        yield


def _family(kind: Any) -> list[Any]:
    """Return a class and all classes that are derived from it, also those of the app."""
    return list(dict.fromkeys([kind, *(subclass for derived in kind.__subclasses__() for subclass in _family(derived))]))


def _heard_start(start: Callable[..., Any], reports: Reports) -> Callable[..., Any]:
    """Return the method `start` of a strategy with an `evaluate_fn` that also reports its results."""
    signature = inspect.signature(start)

    def heard_start(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = next((held for held in (bound.arguments, *bound.arguments.values()) if _holds(held)), None)
        if given is not None:
            evaluate = given["evaluate_fn"]

            def heard(*arguments: Any, **named: Any) -> Any:
                result = evaluate(*arguments, **named)
                if isinstance(result, Mapping):
                    reports.add_server(result)
                return result

            given["evaluate_fn"] = heard
        return start(*bound.args, **bound.kwargs)

    return heard_start


def _holds(arguments: Any) -> bool:
    return isinstance(arguments, dict) and arguments.get("evaluate_fn") is not None
