"""The arrival of a message: its parts are added in the order in which they pass."""

import numpy as np

from netsim.network.bandwidth.arrival import arrival_s


def test_delay_bytes_and_flight_are_added_in_this_order() -> None:
    # In exact numbers 0.6 and 0.7; in any other order the last bit is another one.
    assert arrival_s(0.1, 0.2, 0.3) == (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)
    assert arrival_s(0.0, 0.1, 0.2, 0.3) == (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1


def test_arrays_have_the_bits_of_numbers() -> None:
    rng = np.random.default_rng(2026)
    parts = rng.random((4, 1000))
    singly = [arrival_s(*one) for one in parts.T.tolist()]
    assert arrival_s(*parts).tolist() == singly
