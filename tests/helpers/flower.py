"""Small Flower apps, as objects, and a world in which every phase takes a number of seconds that a reader can add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import netsim

Main = Callable[[Grid, Context], None]


def world(clients: int = 3, **tables: Any) -> dict[str, Any]:
    """Downloads take 1 s, work 2 s at client 0 and 10 s more at each next one, uploads 3 s."""
    return {
        "name": "by-hand",
        "clients": {"count": clients},
        "downlink": {"delay": {"kind": "constant", "value_s": 1.0}},
        "compute": {"delay": {"kind": "constant", "value_s": [2.0 + 10.0 * client for client in range(clients)]}},
        "uplink": {"delay": {"kind": "constant", "value_s": 3.0}},
        **tables,
    }


def server(main: Main) -> ServerApp:
    """Return a ServerApp with this main function."""
    app = ServerApp()
    app.main()(main)
    return app


def client(**answers: Callable[[Message, Context], Mapping[str, float]]) -> ClientApp:
    """Return a ClientApp that answers messages of each type by metrics; without `answers` it trains on 10 samples."""
    app = ClientApp()
    for kind, answer in (answers or {"train": lambda message, context: {"num-examples": 10}}).items():

        def reply(message: Message, context: Context, answer: Any = answer) -> Message:
            metrics = MetricRecord(dict(answer(message, context)))
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        getattr(app, kind)()(reply)
    return app


def request(node: int, kind: str = "train", round: int = 1, **keywords: Any) -> Message:
    """Return a message to a node."""
    content = RecordDict({"config": ConfigRecord({"server-round": round}), "arrays": ArrayRecord([])})
    return Message(content, node, kind, **keywords)


def run(main: Main, clientapp: ClientApp | None = None, clients: int = 3, flower: Any = (), **tables: Any) -> netsim.Run:
    """Run `main` in the world by hand; `flower`: keys of `[flower]`."""
    given = world(clients, **tables) | ({"flower": dict(flower) | {"app": "replaced"}})
    return netsim.run(given, app=(server(main), clientapp or client()))


def weights_app(mods: Any = ()) -> ClientApp:
    """Return a ClientApp whose node i moves every weight by i + 1, and reports the mean weight."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        node = int(context.node_config["partition-id"])
        noise = np.random.normal(size=weights.shape) * 1e-3  # noqa: NPY002  (apps may use the global generator)
        metrics = MetricRecord({"train_loss": float(node), "num-examples": 10 * (node + 1)})
        return Message(RecordDict({"arrays": ArrayRecord([weights + node + 1 + noise]), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        return Message(RecordDict({"metrics": MetricRecord({"acc": float(weights.mean()), "num-examples": 5})}), reply_to=message)

    return app
