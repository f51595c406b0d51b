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
class ReportedEvaluation:
    """Evaluation of a round, as the app reported it; numbers are NaN if it reported none."""

    accuracy: float
    loss: float
    training_loss: float
    metrics: Mapping[str, float]
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Reports:
    """Metrics of the open round.

    `accuracy_key`, `loss_key`: keys of `[flower]`, or None. `samples_key`: metric that weights the means.
    """

    samples_key: str
    accuracy_key: str | None = None
    loss_key: str | None = None
    _server: dict[str, float] = field(default_factory=dict)
    """Metrics that the server measured."""
    _sums: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Weighted sum and sum of weights of each metric, by kind of message."""

    def add_reply(self, kind: str, metrics: Mapping[str, float], samples: int | None) -> None:
        """Add the `metrics` of a reply to a message of `kind`.

        A round reports their means, weighted by `samples`; None counts as one sample.
        """
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

    def take(self) -> ReportedEvaluation | None:
        """Return the reports since the last call, and forget them; None without any."""
        if not (self._server or self._sums):
            return None
        # Kind of reply to the means of its metrics over clients.
        means: dict[str, dict[str, float]] = {}
        for kind, sums in self._sums.items():
            means[kind] = {name: total / weight for name, (total, weight) in sums.items()}
        evaluation, training, server = means.get("evaluate", {}), means.get("train", {}), self._server
        self._sums, self._server = {}, {}
        metrics: dict[str, float] = {}
        for source, values in sorted({**means, "server": server}.items()):
            metrics.update(_add_source(source, values))
        return ReportedEvaluation(
            accuracy=_metric("acc", self.accuracy_key, server, evaluation),
            loss=_metric("loss", self.loss_key, server, evaluation),
            training_loss=_metric("loss", self.loss_key, training),
            metrics=metrics,
        )


def _add_source(source: str, metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield pairs of the finite metrics in order of name, with "source." before each name."""
    return ((f"{source}.{name}", value) for name, value in sorted(metrics.items()) if math.isfinite(value))


def _metric(part: str, key: str | None, *sources: Mapping[str, float]) -> float:
    """Return a metric from the first of `sources` that has it; NaN if none has.

    Its name is `key`. If that is None, it is "accuracy" for the `part` "acc" and "loss" for "loss", or else the first name that
    contains `part`.
    """
    for source in sources:
        if key is not None:
            names = [key]
        else:
            usual_name = "accuracy" if part == "acc" else part
            names = [usual_name, *(name for name in source if part in name)]
        for name in names:
            if name in source:
                return source[name]
    return _NAN


class ReportedMetrics(NoLearner):
    """Learner of a run in which an app trains. It trains nothing, and returns the metrics that the app reported."""

    round_columns: Sequence[str] = ("accuracy", "loss", "training_loss")

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self.reports = reports

    def evaluate(self, round: int, time_s: float, last: bool) -> ReportedEvaluation | None:
        return self.reports.take()


@contextmanager
def report_server_metrics(reports: Reports) -> Iterator[None]:
    """Within the block, add metrics that strategies measure at the server to `reports`.

    They come from `evaluate_fn` of a strategy, and from the history of the old API.
    """
    from flwr.server.history import History
    from flwr.serverapp.strategy import Strategy

    add_loss, add_metrics = History.add_loss_centralized, History.add_metrics_centralized

    # The parameters need flwr's names, because flwr passes them by keyword.
    def report_loss(self: Any, server_round: int, loss: float) -> None:
        reports.add_server({"loss": loss})
        add_loss(self, server_round, loss)

    def report_metrics(self: Any, server_round: int, metrics: Any) -> None:
        reports.add_server(metrics)
        add_metrics(self, server_round, metrics)

    starts = [(kind, vars(kind)["start"]) for kind in _subclasses(Strategy) if "start" in vars(kind)]
    changes: list[tuple[Any, str, Any]] = [(kind, "start", _report_evaluations(start, reports)) for kind, start in starts]
    changes += [(History, "add_loss_centralized", report_loss), (History, "add_metrics_centralized", report_metrics)]
    with replace_attributes(changes):
        yield


def _subclasses(kind: Any) -> list[Any]:
    """Return a class and all classes that are derived from it, also those of the app; each once."""
    classes = [kind]
    for derived in kind.__subclasses__():
        classes += _subclasses(derived)
    return list(dict.fromkeys(classes))


def _report_evaluations(start: Callable[..., Any], reports: Reports) -> Callable[..., Any]:
    """Return the method `start` of a strategy, with an `evaluate_fn` that also adds its results to `reports`."""
    signature = inspect.signature(start)

    def start_with_reports(*args: Any, **kwargs: Any) -> Any:
        """Call `start` with its arguments, in which an `evaluate_fn`, if there is one, is replaced by one that also reports."""
        bound = signature.bind(*args, **kwargs)
        # `evaluate_fn` is an argument itself, or an entry of a dict of keyword arguments.
        holder = next((entry for entry in (bound.arguments, *bound.arguments.values()) if _has_evaluate(entry)), None)
        if holder is not None:
            holder["evaluate_fn"] = _report_result(holder["evaluate_fn"], reports)
        return start(*bound.args, **bound.kwargs)

    return start_with_reports


def _report_result(evaluate: Callable[..., Any], reports: Reports) -> Callable[..., Any]:
    """Return a function that calls `evaluate`, adds the metrics that it returns to `reports`, and returns them."""

    def evaluate_and_report(*args: Any, **kwargs: Any) -> Any:
        metrics = evaluate(*args, **kwargs)
        # A strategy may evaluate nothing, and return None.
        if isinstance(metrics, Mapping):
            reports.add_server(metrics)
        return metrics

    return evaluate_and_report


def _has_evaluate(arguments: Any) -> bool:
    """Return True if `arguments` is a dict with an `evaluate_fn`."""
    return isinstance(arguments, dict) and arguments.get("evaluate_fn") is not None
