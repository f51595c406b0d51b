"""Memory of the vectors that clients keep from one participation to the next, against the limit."""

from __future__ import annotations

from models.errors import ParameterError
from models.fl.networks.shapes import shapes_of
from scenarios.registry.kinds import is_own
from scenarios.schema.cautions import Caution
from scenarios.schema.learning import Learner
from scenarios.schema.scenario import Scenario
from scenarios.wiring.learning.training import learner_refusals, memory_bytes
from scenarios.wiring.network.compression import build_compressions

_NUMBER_BYTES = 4
"""Bytes of one number of a vector."""


def check_client_state(scenario: Scenario, trained: int | None) -> list[Caution]:
    """Return a caution if the vectors of all clients that may deliver exceed the memory for them, else none.

    `trained`: trained numbers of an update; None if the learner is not built. Raises UserError if not even the vectors of one
    client fit, so that the first delivery would end the run; among peers, if the models of all do not fit.
    """
    section = scenario.learner
    if section is None:
        return []
    if scenario.server.trains_peers:
        _check_peers(scenario, section, trained)
        return []
    vector_counts = _kept_vectors(scenario, section)
    if not any(vector_counts):
        return []
    numbers = _trained_numbers(section) if trained is None else trained
    if numbers is None:
        return []
    limit, memory, clients = section.client_state_bytes, memory_bytes(), _delivering_clients(scenario)
    # The limit holds for each kind of vectors, but the machine must hold all kinds.
    client_bytes = _NUMBER_BYTES * numbers * max(vector_counts)
    all_kinds_bytes = _NUMBER_BYTES * numbers * sum(vector_counts)
    if client_bytes > limit:
        with learner_refusals(section):
            raise ParameterError(
                "client_state_bytes", limit, f"less than the {client_bytes:,} bytes that one client keeps; raise it"
            )
    text = f"learner.client_state_bytes = {limit}: each of {clients:,} clients that may deliver keeps "
    if client_bytes * clients > limit:
        text += f"{client_bytes:,} bytes; once more than {limit // client_bytes:,} have delivered, the run ends; raise it"
    elif all_kinds_bytes * clients > memory:
        most = memory // all_kinds_bytes
        text += f"{all_kinds_bytes:,} bytes, and this machine has {memory / 2**30:.3g} GiB; it holds {most:,} of them at most"
    else:
        return []
    return [Caution("client-state", f"{text}, or use a smaller network or fewer clients")]


def _check_peers(scenario: Scenario, section: Learner, trained: int | None) -> None:
    """Raise UserError if the models of all peers exceed `client_state_bytes` or the machine's memory."""
    numbers = _trained_numbers(section) if trained is None else trained
    if numbers is None:
        return
    count, limit, memory = scenario.clients.count, section.client_state_bytes, memory_bytes()
    models_bytes = _NUMBER_BYTES * numbers * count
    # At the close of a round each peer has three models: the last one, the trained one, and their combination.
    needed = 3 * models_bytes
    with learner_refusals(section):
        if models_bytes > limit:
            raise ParameterError(
                "client_state_bytes", limit, f"the {count:,} models of peers take {models_bytes:,} bytes; raise it"
            )
        if needed > memory:
            reason = (
                f"has {numbers:,} parameters; {count:,} models of peers take {needed / 2**30:.1f} GiB or more as a round closes, "
                f"and this machine has {memory / 2**30:.1f} GiB; make it smaller, or use fewer clients"
            )
            raise ParameterError("network.kind", section.network.kind, reason)


def _kept_vectors(scenario: Scenario, section: Learner) -> list[int]:
    """Return the numbers of vectors that a client keeps: for the aggregation, the compression, and the optimizer.

    Each vector is as long as an update.
    """
    aggregation = section.aggregation
    # An exact method, such as SCAFFOLD, keeps a correction at each client.
    corrections = int(not is_own("aggregation", aggregation.kind) and aggregation.demands.exact)
    errors = int(build_compressions(scenario).up.error_feedback)
    moments = _moments(section) if section.optimizer_state == "kept" else 0
    return [corrections, errors, moments]


def _moments(section: Learner) -> int:
    """Return the number of moments of the optimizer; 0 for a user's, which is unknown before it is built."""
    return {"adam": 2, "sgd": 1}.get(section.optimizer.kind, 0)


def _trained_numbers(section: Learner) -> int | None:
    """Return the number of trained numbers of the network; None if it is known only once the network is built."""
    options = section.options()
    shapes = shapes_of(options.network, options.data)
    if shapes is None:
        return None
    return sum(shapes.message_sizes(options.trained, local=section.batch_statistics == "local").tensors)


def _delivering_clients(scenario: Scenario) -> int:
    """Return the largest number of clients of which an update can be delivered."""
    count, server = scenario.clients.count, scenario.server
    if scenario.rounds is None or not server.waits_for_all:
        return count
    selected: int = server.parameters()["per_round"]
    return min(count, scenario.rounds * selected)
