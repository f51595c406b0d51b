"""The ServerApp: FedAvg, or FedBuff by push and pull."""

import random
import time

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import initial, test, test_set

app = ServerApp()


def evaluate(server_round, arrays):
    """Return the accuracy of a model on the server's test set."""
    return MetricRecord({"accuracy": test(arrays.to_numpy_ndarrays(), *test_set())})


class FedBuff(FedAvg):
    """Buffered asynchronous aggregation: `per_round` nodes are at work at all times, and `buffer` replies make a model."""

    def __init__(self, per_round, buffer, **keywords):
        super().__init__(**keywords)
        self.per_round, self.buffer = per_round, buffer

    def start(self, grid, initial_arrays, num_rounds, evaluate_fn, **ignored):
        """Run until `num_rounds` models were made: each from the old one and the mean of `buffer` changes by nodes.

        At most `per_round` nodes train at once. A change counts from the model that its node was sent, which may be an old one.
        """
        weights, version, asked, busy = initial_arrays.to_numpy_ndarrays(), 1, {}, set()
        steps = []
        while version <= num_rounds:
            free = [node for node in sorted(grid.get_node_ids()) if node not in busy]
            random.shuffle(free)
            messages = []
            for node in free[: self.per_round - len(busy)]:
                content = RecordDict({"arrays": ArrayRecord(weights), "config": ConfigRecord({"server-round": version})})
                messages.append(Message(content, node, "train"))
                busy.add(node)
            for identity, message in zip(grid.push_messages(messages), messages, strict=True):
                asked[identity] = (message.metadata.dst_node_id, weights)
            replies = list(grid.pull_messages(asked))
            if not replies:
                time.sleep(0.1)
            for reply in replies:
                node, before = asked.pop(reply.metadata.reply_to_message_id)
                busy.discard(node)
                if reply.has_error():
                    continue
                after = reply.content["arrays"].to_numpy_ndarrays()
                steps.append([new - old for new, old in zip(after, before, strict=True)])
                if len(steps) >= self.buffer:
                    weights = [old + sum(each) / len(steps) for old, each in zip(weights, zip(*steps, strict=True), strict=True)]
                    steps = []
                    evaluate_fn(version, ArrayRecord(weights))
                    version += 1
        return weights


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy that the run config names."""
    config = context.run_config
    nodes = len(list(grid.get_node_ids()))
    share = min(config["per-round"] / nodes, 1.0)
    keywords = {"fraction_train": share, "fraction_evaluate": 0.0}
    strategy = FedAvg(**keywords)
    if config["strategy"] == "fedbuff":
        strategy = FedBuff(config["per-round"], config["buffer"], **keywords)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(list(initial())),
        num_rounds=config["num-server-rounds"],
        timeout=config["timeout-s"] or None,
        evaluate_fn=evaluate,
    )
