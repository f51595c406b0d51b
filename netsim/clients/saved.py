"""Updates as plain data and back, for the state that a run saves at a round boundary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.clients.update import FIELDS, ModelDraws, SendDraws, Update

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.network.medium import Medium


def updates_state(updates: Collection[Update]) -> State:
    """Return every update as plain data, with its next event and its draws (random numbers); `restored_updates` reverts it.

    `models`, `sends`: distinct sets of draws. `model_of`, `send_of`: index of the set of each update, -1 for none.
    """
    # In the order in which their next events were put on the clock: it decides between two events of one instant.
    alive = sorted(updates, key=lambda update: (update.call_number, update.round, update.send_place))
    # Updates that were started together share their draws.
    models = {id(update.model_draws): update.model_draws for update in alive}
    sends = {id(update.send_draws): update.send_draws for update in alive if not update.outcome}
    model_places = {key: place for place, key in enumerate(models)}
    send_places = {key: place for place, key in enumerate(sends)}
    return {
        "alive": [{name: getattr(update, name) for name in FIELDS} for update in alive],
        "models": [draws.state_dict() for draws in models.values()],
        "sends": [draws.state_dict() for draws in sends.values()],
        "model_of": [model_places[id(update.model_draws)] for update in alive],
        # An update whose attempt is over has no draws, or old ones: its next attempt gets new draws.
        "send_of": [-1 if update.outcome else send_places[id(update.send_draws)] for update in alive],
    }


def restored_updates(medium: Medium, state: State) -> list[Update]:
    """Return the updates that `updates_state` saved, in the same order."""
    models = [ModelDraws.restore(medium, saved_draws) for saved_draws in state["models"]]
    sends = [SendDraws.restore(medium, saved_draws) for saved_draws in state["sends"]]
    updates = []
    for saved, model_place, send_place in zip(state["alive"], state["model_of"], state["send_of"], strict=True):
        update = Update.__new__(Update)
        for name in FIELDS:
            setattr(update, name, saved[name])
        update.end_number = -1
        update.model_draws = models[model_place]
        if not update.outcome:
            update.send_draws = sends[send_place]
        updates.append(update)
    return updates


def attempts_state(attempts: Attempts, alive: Mapping[int, Update]) -> list[State | int]:
    """Return the attempts of a round under way as plain data: the client of an attempt in flight, all fields of an ended one.

    `alive`: live updates by client; their fields are saved elsewhere (`updates_state`).
    """
    states: list[State | int] = []
    for update in attempts.updates:
        in_flight = not update.outcome and alive.get(update.client) is update
        if in_flight:
            states.append(update.client)
        else:
            states.append({name: getattr(update, name) for name in (*FIELDS, "end_number")})
    return states


def restored_attempts(state: list[State | int], alive: Mapping[int, Update]) -> ObjectAttempts:
    """Return the attempts that `attempts_state` saved. Attempts in flight are the updates of `alive`."""
    return ObjectAttempts(alive[saved] if isinstance(saved, int) else _ended_update(saved) for saved in state)


def _ended_update(saved: State) -> Update:
    """Return an update whose attempt has ended, with the `saved` attributes."""
    update = Update.__new__(Update)
    for name, value in saved.items():
        setattr(update, name, value)
    return update
