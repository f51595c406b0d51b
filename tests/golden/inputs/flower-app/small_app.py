"""A Flower app without training: node i answers with the metrics of 10 (i + 1) samples."""

import time

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server, client = ServerApp(), ClientApp()


def answer(message, context, **metrics):
    samples = 10 * (context.node_config["partition-id"] + 1)
    content = RecordDict({"metrics": MetricRecord({**metrics, "num-examples": samples})})
    if message.has_content() and "arrays" in message.content:
        content["arrays"] = message.content["arrays"]
    return Message(content, reply_to=message)


@client.train()
def train(message, context):
    return answer(message, context, train_loss=1.0 / message.content["config"]["server-round"])


@client.evaluate()
def evaluate(message, context):
    return answer(message, context, accuracy=1.0 - 1.0 / message.content["config"]["server-round"])


@client.query()
def query(message, context):
    time.sleep(0.5)
    return answer(message, context)


@server.main()
def main(grid, context):
    import numpy as np

    arrays = ArrayRecord([np.zeros(100)])
    for number in range(1, context.run_config["rounds"] + 1):
        for kind in ("query", "train", "evaluate"):
            config = ConfigRecord({"server-round": number})
            messages = [Message(RecordDict({"arrays": arrays, "config": config}), node, kind) for node in grid.get_node_ids()]
            grid.send_and_receive(messages, timeout=context.run_config["timeout-s"])
        time.sleep(1.0)
