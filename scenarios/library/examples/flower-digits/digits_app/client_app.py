"""The ClientApp: trains and evaluates on the node's own digits."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import partition, test, train

app = ClientApp()


def own_data(context):
    """Return the images and labels of this node."""
    return partition(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def on_train(message: Message, context: Context) -> Message:
    """Train the model of the message."""
    images, labels = own_data(context)
    config = context.run_config
    weights, loss = train(
        message.content["arrays"].to_numpy_ndarrays(),
        images,
        labels,
        epochs=config["local-epochs"],
        rate=config["learning-rate"],
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(list(weights)), "metrics": metrics}), reply_to=message)


@app.evaluate()
def on_evaluate(message: Message, context: Context) -> Message:
    """Test the model of the message."""
    images, labels = own_data(context)
    accuracy = test(message.content["arrays"].to_numpy_ndarrays(), images, labels)
    metrics = MetricRecord({"eval_acc": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
