"""Memory of the vectors that clients keep from one participation to the next, against the limit."""

from __future__ import annotations

from models.errors import ParameterError
from models.fl.networks.shapes import shapes_of
from scenarios.registry.kinds import is_own
from scenarios.schema.cautions import Caution
from scenarios.schema.learning import Learner
from scenarios.schema.scenario import Scenario
from scenarios.wiring.compression import build_compressions
from scenarios.wiring.training import learner_refusals, memory_bytes

_NUMBER = 4
"""Bytes."""


def check_client_state(scenario: Scenario, trained: int | None) -> list[Caution]:
    """Warn if the vectors of all clients that may deliver exceed the memory for them.

    `trained`: trained numbers of an update; None if the learner is not built. Raises UserError if not even the vectors of one
    client fit, so that the first delivery would end the run.
    """
    section = scenario.learner
    if section is not None and scenario.server.trains_peers:
        _check_peers(scenario, section, trained)
        return []
    kinds = [0] if section is None else _vectors(scenario, section)
    if section is None or not any(kinds):
        return []
    numbers = _numbers(section) if trained is None else trained
    if numbers is None:
        return []
    limit, there, clients = section.client_state_bytes, memory_bytes(), _clients(scenario)
    # The limit holds for each kind of vectors, but the machine must hold all kinds.
    limited, each = (_NUMBER * numbers * vectors for vectors in (max(kinds), sum(kinds)))
    if limited > limit:
        with learner_refusals(section):
            raise ParameterError("client_state_bytes", limit, f"less than the {limited:,} bytes that one client keeps; raise it")
    text = f"learner.client_state_bytes = {limit}: each of {clients:,} clients that may deliver keeps "
    if limited * clients > limit:
        text += f"{limited:,} bytes; once more than {limit // limited:,} have delivered, the run ends; raise it"
    elif each * clients > there:
        text += f"{each:,} bytes, and this machine has {there / 2**30:.3g} GiB; it holds {there // each:,} of them at most"
    else:
        return []
    return [Caution("client-state", f"{text}, or use a smaller network or fewer clients")]


def _check_peers(scenario: Scenario, section: Learner, trained: int | None) -> None:
    """Raise UserError where the models of all peers take more than there is for them."""
    numbers = _numbers(section) if trained is None else trained
    if numbers is None:
        return
    count, limit, there = scenario.clients.count, section.client_state_bytes, memory_bytes()
    kept = _NUMBER * numbers * count
    # As a round closes, there are the models of before, those trained from them, and those combined from these.
    needed = 3 * kept
    with learner_refusals(section):
        if kept > limit:
            raise ParameterError("client_state_bytes", limit, f"the {count:,} models of peers take {kept:,} bytes; raise it")
        if needed > there:
            reason = (
                f"has {numbers:,} parameters; {count:,} models of peers take {needed / 2**30:.1f} GiB or more as a round closes, "
                f"and this machine has {there / 2**30:.1f} GiB; make it smaller, or use fewer clients"
            )
            raise ParameterError("network.kind", section.network.kind, reason)


def _vectors(scenario: Scenario, section: Learner) -> list[int]:
    """Return the numbers of vectors as long as an update that a client keeps: of aggregation, compression and optimizer."""
    aggregation = section.aggregation
    corrects = not is_own("aggregation", aggregation.kind) and aggregation.demands.exact
    kept = _moments(section) if section.optimizer_state == "kept" else 0
    return [int(corrects), int(build_compressions(scenario).up.error_feedback), kept]


def _moments(section: Learner) -> int:
    """Return the number of moments of the optimizer; 0 for a user's, which is unknown before it is built."""
    return {"adam": 2, "sgd": 1}.get(section.optimizer.kind, 0)


def _numbers(section: Learner) -> int | None:
    """Return the number of trained numbers; None if only the built network shows it."""
    options = section.options()
    shapes = shapes_of(options.network, options.data)
    return None if shapes is None else sum(shapes.message_sizes(options.trained, local=section.batch_statistics == "local")[0])


def _clients(scenario: Scenario) -> int:
    """Return the largest number of clients of which an update can be delivered."""
    count, server = scenario.clients.count, scenario.server
    if scenario.rounds is None or not server.waits_for_all:
        return count
    selected: int = server.parameters()["per_round"]
    return min(count, scenario.rounds * selected)
