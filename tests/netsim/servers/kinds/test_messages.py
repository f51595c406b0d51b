"""Messages of an application: queues, expiry, absence and rounds, by hand. A plain function stands in for the app, without flwr.

Downloads take 1 s, work 2 s at client 0 and 10 s more at each next one, uploads 3 s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import scenarios.flower.running as running
from netsim.clients.rules import Load
from netsim.core.clock import NothingScheduledError
from netsim.servers.kinds.messages import ABSENT, BY_ROUNDS, BY_TIME, EXPIRED, UNSENT, Message, MessageServer
from netsim.simulation import BY_APP, AppSimulation
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build

EVER = float("inf")
WORK = Load(bytes_up=1)
App = Callable[["Sender"], None]


def constant(value_s: Any) -> dict[str, Any]:
    return {"delay": {"kind": "constant", "value_s": value_s}}


class Sender:
    """Sends messages and notes their ends: (client, outcome, time)."""

    def __init__(self, server: MessageServer) -> None:
        self.server, self.clock = server, server.loop.clock
        self.ends: list[tuple[int, str, float]] = []
        self.began_s: list[float] = []

    def message(self, client: int, expires_s: float = EVER, load: Load = WORK) -> Message:
        def work(sent: Message) -> Load:
            self.began_s.append(self.clock.now)
            return load

        def on_end(sent: Message) -> None:
            self.ends.append((sent.client, sent.outcome, self.clock.now))

        return Message(client=client, kind="train", bytes_down=1, expires_s=expires_s, work=work, on_end=on_end)

    def send(self, *clients: int, **keywords: Any) -> None:
        self.server.messages.send([self.message(client, **keywords) for client in clients])


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Sender, AppSimulation]]:
    """Return a function that runs an application in the world by hand, with other tables of the scenario if given."""
    monkeypatch.setitem(sys.modules, "flwr", None)

    def run(app: App, **tables: Any) -> tuple[Sender, AppSimulation]:
        senders = []

        def app_simulation(scenario: Any, server: Any, keywords: Any) -> AppSimulation:
            senders.append(Sender(server))
            return AppSimulation(app=lambda: app(senders[0]), server=server, **keywords)

        monkeypatch.setattr(running, "app_simulation", app_simulation)
        world: dict[str, Any] = {"name": "by-hand", "clients": {"count": 3}, "flower": {"app": "none"}, "downlink": constant(1.0)}
        world |= {"compute": constant([2.0, 12.0, 22.0]), "uplink": constant(3.0)}
        simulation = build(parse(world | tables)).simulation
        assert isinstance(simulation, AppSimulation)
        simulation.run()
        return senders[0], simulation

    return run


def test_messages_of_a_client_wait_in_the_order_in_which_they_were_sent(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, 1, 0)
        sender.server.wait_until(100.0)

    sender, simulation = play(app)
    assert sender.ends == [(0, "delivered", 6.0), (0, "delivered", 12.0), (1, "delivered", 16.0)]
    assert sender.began_s == [1.0, 1.0, 7.0]
    assert simulation.ended == BY_APP


def test_a_pause_of_the_application_and_looks_make_work_longer(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, load=Load(bytes_up=1, besides_s=0.5))
        # 2.5 s of work are noticed after 4 s.
        sender.send(0, load=Load(bytes_up=1, besides_s=0.5, look_s=2.0))
        sender.server.wait_until(100.0)

    assert [end_s for _, _, end_s in play(app)[0].ends] == [6.5, 6.5 + 1.0 + 4.0 + 3.0]


def test_a_message_that_expires_ends_there_and_its_client_goes_on(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, 0, expires_s=4.0)
        sender.send(0)
        sender.server.wait_until(100.0)

    sender, _ = play(app)
    # The first is at work and its reply void; the second leaves the queue; the third begins as the client is free.
    assert sender.ends == [(0, EXPIRED, 4.0), (0, EXPIRED, 4.0), (0, "delivered", 12.0)]


def test_messages_to_absent_clients_end_at_once(play: Any, tmp_path: Any) -> None:
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,1000\n2,50,1000\n", encoding="utf-8")

    def app(sender: Sender) -> None:
        sender.server.open_round()
        assert sender.server.messages.present().tolist() == [True, False, False]
        sender.send(2, 0)
        assert sender.ends == [(2, ABSENT, 0.0)]
        sender.server.wait_until(60.0)
        assert sender.server.messages.present().tolist() == [True, False, True]

    play(app, availability={"kind": "trace", "path": str(presence)})


def test_a_lost_reply_ends_as_its_upload_does(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0)
        sender.server.wait_until(10.0)

    sender, _ = play(app, uplink=constant(3.0) | {"channel": {"kind": "bernoulli", "success": 0.0}})
    assert sender.ends == [(0, "lost", 6.0)]


def test_steps_go_from_event_to_event_until_nothing_is_left(play: Any) -> None:
    seen = []

    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0)
        for _ in range(4):
            try:
                sender.server.step()
            except NothingScheduledError:
                break
            seen.append(sender.clock.now)

    play(app)
    assert seen == [1.0, 3.0, 6.0]


def test_the_run_ends_at_its_time_limit_or_past_its_last_round(play: Any) -> None:
    def waits(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, 0)
        sender.server.wait_until(100.0)

    sender, simulation = play(waits, time_limit_s=5.0)
    assert simulation.ended == BY_TIME
    simulation.server.record_unfinished()
    # The first is in flight; the second never left the server.
    assert sender.ends == [(0, UNSENT, 5.0)]

    def opens(sender: Sender) -> None:
        while True:
            sender.server.open_round()
            sender.server.wait_until(sender.clock.now + 1.0)

    _, simulation = play(opens, rounds=3)
    assert (simulation.ended, simulation.server.round) == (BY_ROUNDS, 3)


def test_a_reply_that_arrives_in_the_instant_of_its_expiry_is_delivered(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, expires_s=6.0)
        sender.server.wait_until(100.0)

    assert play(app)[0].ends == [(0, "delivered", 6.0)]


def test_each_message_of_a_client_in_a_round_has_its_own_random_delay(play: Any) -> None:
    def app(sender: Sender) -> None:
        sender.server.open_round()
        sender.send(0, 0)
        sender.server.wait_until(1000.0)

    drawn = {"delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}}
    sender, _ = play(app, uplink=drawn)
    first_s, second_s = (end_s for _, _, end_s in sender.ends)
    # Before its upload a message takes 3 s.
    assert first_s - 3.0 != pytest.approx(second_s - first_s - 3.0)


def test_messages_to_absent_clients_are_counted_and_numbered_as_attempts(play: Any, tmp_path: Any) -> None:
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,1000\n", encoding="utf-8")
    ended: list[tuple[int, int]] = []

    def app(sender: Sender) -> None:
        pool = sender.server.messages.pool
        pool.follow(lambda update: ended.append((update.client, update.number)))
        sender.server.open_round()
        sender.send(0)
        sender.send(1, 2)
        assert pool.started == 3
        sender.server.wait_until(60.0)

    play(app, availability={"kind": "trace", "path": str(presence)})
    assert ended == [(1, 2), (2, 3), (0, 1)]
