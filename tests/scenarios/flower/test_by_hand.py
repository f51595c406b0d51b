"""Times of messages that a reader can add up: download 1 s, work 2 s, 12 s and 22 s, upload 3 s."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from tests.helpers.flower import client, request, run


def test_three_clients_answer_after_the_sum_of_their_phases() -> None:
    seen: dict[str, Any] = {}

    def main(grid: Any, context: Any) -> None:
        replies = grid.send_and_receive([request(node) for node in grid.get_node_ids()])
        seen["now"] = grid.now
        seen["nodes"] = [reply.metadata.src_node_id for reply in replies]

    done = run(main)
    assert seen == {"now": 26.0, "nodes": [2, 3, 4]}
    table = done.clients
    assert table["outcome_s"].tolist() == [6.0, 16.0, 26.0]
    assert table["compute_start_s"].tolist() == [1.0, 1.0, 1.0]
    assert table["upload_start_s"].tolist() == [3.0, 13.0, 23.0]
    assert table["kind"].tolist() == ["train"] * 3
    assert table["samples"].tolist() == [10] * 3
    assert done.rounds[["start_s", "end_s", "selected", "delivered"]].to_numpy().tolist() == [[0.0, 26.0, 3, 3]]


def test_a_timeout_ends_the_wait_and_not_the_work() -> None:
    waits = []

    def main(grid: Any, context: Any) -> None:
        replies = grid.send_and_receive([request(node) for node in grid.get_node_ids()], timeout=20.0)
        waits.append((grid.now, len(replies)))
        replies = grid.send_and_receive([request(4, round=2)])
        waits.append((grid.now, len(replies)))

    done = run(main)
    # The third client ends its first message at 26 s, and then takes another 26 s for the second.
    assert waits == [(20.0, 2), (52.0, 1)]
    last = done.clients.iloc[-1]
    assert (last["selected_s"], last["download_start_s"], last["outcome_s"], last["round"]) == (20.0, 26.0, 52.0, 2)


def test_a_reply_at_the_instant_of_the_timeout_is_in_time() -> None:
    waits = []

    def main(grid: Any, context: Any) -> None:
        waits.append((len(grid.send_and_receive([request(2), request(3)], timeout=16.0)), grid.now))

    run(main)
    assert waits == [(2, 16.0)]


def test_messages_of_a_node_wait_in_a_queue() -> None:
    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2), request(2)])

    table = run(main).clients
    assert table["outcome_s"].tolist() == [6.0, 12.0]
    assert table["download_start_s"].tolist() == [0.0, 6.0]
    assert table["selected_s"].tolist() == [0.0, 0.0]


def test_a_lost_reply_is_silence_until_the_timeout_or_until_the_message_expires() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        seen.append((len(grid.send_and_receive([request(2)], timeout=100.0)), grid.now))
        (reply,) = grid.send_and_receive([request(2, round=2, ttl=500.0)])
        seen.append((reply.error.code, reply.metadata.src_node_id, grid.now))
        (reply,) = grid.send_and_receive([request(2, round=3)])
        seen.append((reply.error.code, reply.metadata.src_node_id, grid.now))

    delay = {"kind": "constant", "value_s": 3.0}
    done = run(main, uplink={"delay": delay, "channel": {"kind": "bernoulli", "success": 0.0}})
    assert seen == [(0, 100.0), (4, 1, 600.0), (4, 1, 600.0 + 43_200.0)]
    assert done.clients["outcome"].tolist() == ["lost"] * 3


def test_a_lost_message_is_an_error_at_once_if_asked_for() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        (reply,) = grid.send_and_receive([request(2)])
        seen.append((reply.error.code, grid.now))

    delay = {"kind": "constant", "value_s": 3.0}
    run(main, flower={"lost": "error"}, uplink={"delay": delay, "channel": {"kind": "bernoulli", "success": 0.0}})
    assert seen == [(4, 6.0)]


def test_an_absent_node_is_an_error_at_once(tmp_path: Any) -> None:
    seen = []
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,1000\n1,50,1000\n2,0,1000\n", encoding="utf-8")

    def main(grid: Any, context: Any) -> None:
        seen.append(list(grid.get_node_ids()))
        (reply,) = grid.send_and_receive([request(3)])
        seen.append((reply.error.code, grid.now))
        time.sleep(60.0)
        seen.append(list(grid.get_node_ids()))

    done = run(main, availability={"kind": "trace", "path": str(presence)})
    assert seen == [[2, 4], (5, 0.0), [2, 3, 4]]
    assert done.clients[["outcome", "cause", "kind"]].to_numpy().tolist() == [["aborted", "absent", "train"]]


def test_sleep_of_a_client_is_part_of_its_work_and_takes_no_real_time() -> None:
    seen = []

    def train(message: Message, context: Any) -> dict[str, float]:
        before = time.monotonic()
        time.sleep(5.0)
        seen.append((before, time.monotonic()))
        return {"num-examples": 10}

    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2)])
        seen.append(grid.now)

    started = time.perf_counter()
    run(main, client(train=train))
    assert seen == [(1.0, 6.0), 11.0]
    assert time.perf_counter() - started < 5.0


def test_samples_of_replies_take_the_time_of_a_sample() -> None:
    kinds = {"train": 1.0, "evaluate": 0.5, "query": 0.0}
    times = {}

    def main(grid: Any, context: Any) -> None:
        for number, kind in enumerate(kinds, 1):
            before = grid.now
            grid.send_and_receive([request(2, kind, round=number)])
            times[kind] = grid.now - before

    app = client(**dict.fromkeys(kinds, lambda message, context: {"num-examples": 40}))
    speed = {"samples_per_s": 4.0, "delay": {"kind": "constant", "value_s": 2.0}}
    flower = {"epochs_key": "epochs", "run_config": {"epochs": 3}, "evaluate_share": 0.5}
    run(main, app, compute=speed, flower=flower)
    # 1 s down, 2 s overhead, 40 samples of 0.25 s, three times in training and half of one pass in evaluation, 3 s up.
    assert times == {"train": 36.0, "evaluate": 11.0, "query": 6.0}


def test_push_freezes_the_content_and_pull_returns_replies_as_they_arrive() -> None:
    seen: list[Any] = []

    def main(grid: Any, context: Any) -> None:
        messages = [request(2), request(3)]
        ids = grid.push_messages(messages)
        messages[0].content["config"]["server-round"] = 77
        messages[1].content["arrays"] = messages[0].content["arrays"]
        while ids:
            for reply in grid.pull_messages(ids):
                ids.remove(reply.metadata.reply_to_message_id)
                seen.append((grid.now, reply.content["metrics"]["round"]))

    app = client(train=lambda message, context: {"round": message.content["config"]["server-round"], "num-examples": 1})
    run(main, app)
    assert seen == [(6.0, 1), (16.0, 1)]


def test_bytes_are_those_of_the_content_over_the_links() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2)])
        seen.append(grid.now)

    links = {"bandwidth_bytes_per_s": 10.0}
    done = run(main, downlink=links, uplink=links, compute={"delay": {"kind": "constant", "value_s": 1.0}})
    # config (6) server-round (12) 8 bytes, arrays (6): 32; metrics (7) num-examples (12) 8 bytes: 27.
    assert done.clients[["bytes_down", "bytes_up"]].to_numpy().tolist() == [[32, 27]]
    assert seen == [pytest.approx(3.2 + 1.0 + 2.7)]


def test_polls_of_a_real_server() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2)])
        seen.append(grid.now)

    run(main, flower={"polls": {"server_s": 4.0}})
    assert seen == [8.0]


def test_polls_of_real_nodes() -> None:
    def main(grid: Any, context: Any) -> None:
        time.sleep(1.0)
        grid.send_and_receive([request(2), request(2)])

    table = run(main, flower={"polls": {"node_s": 3.0, "reply_s": 1.5}}).clients
    # It asks at 3 s, and finds the app ready 3 s after it began; idle at 10 s, it asks at once for what waits.
    assert table["download_start_s"].tolist() == [3.0, 10.0]
    assert table["compute_end_s"].tolist() == [7.0, 14.0]
    assert table["outcome_s"].tolist() == [10.0, 17.0]
