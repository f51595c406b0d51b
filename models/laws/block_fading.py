"""Block fading of uplinks, a part of theta_n, the probability that an upload counts (Tong et al. 2024, Section II-A).

Rayleigh fading, constant within a round: the SNR is exponential, its mean given by path loss 128.1 + 37.6 log10(d_km) dB and
the noise, and the upload is lost below a threshold (outage). The other parts of theta_n are events of a run: local training
that exceeds the deadline, and clients that leave.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.channels import BoolArray, Memoryless
from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client, spread

_DECIBELS = 1e4  # bound on powers and thresholds, beyond any real one


def path_loss_db(distance_km: FloatArray) -> FloatArray:
    """Return the path loss 128.1 + 37.6 log10(d) in dB at distances d (n,) in km, each finite and > 0."""
    distance = np.asarray(distance_km, np.float64)
    wrong = ~(np.isfinite(distance) & (distance > 0))
    if wrong.any():
        raise ParameterError("distance_km", float(distance[wrong][0]), "must be finite and > 0 km")
    return np.asarray(128.1 + 37.6 * np.log10(distance))


class BlockFading(Memoryless):
    """Rayleigh fading with path loss, independent from round to round; a transmission is lost in outage.

    `clients` is the number K of sub-channels. Each may have its own distance, power and threshold; `mean_snr_db` is the mean
    over all of them.

    Example:
        >>> import numpy as np
        >>> law = BlockFading(clients=2, distance_km=np.array([0.1, 1.0]))
        >>> law.success_probability(np.array([0, 1])).round(3)
        array([1.   , 0.468])
    """

    def __init__(
        self,
        *,
        clients: int,
        distance_km: Annotated[PerClient, Doc("Distance of the server in km.")],
        transmit_power_dbm: Annotated[PerClient, Doc("Power of transmission in dBm.")] = 20.0,
        mean_snr_db: Annotated[
            float,
            Doc(
                "Mean of the SNR in decibels, which sets the noise if noise_dbm is absent (the paper names one SNR for clients "
                "at different distances)."
            ),
        ] = 20.0,
        noise_dbm: Annotated[float | None, Doc("Power of the noise in dBm (absent: set by mean_snr_db).")] = None,
        threshold_db: Annotated[PerClient, Doc("An SNR below it, in decibels, is an outage; the paper leaves it open.")] = 0.0,
    ) -> None:
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        distance = per_client("distance_km", distance_km, above=True, unit=" km")
        power = per_client("transmit_power_dbm", transmit_power_dbm, low=-_DECIBELS, high=_DECIBELS, unit=" dBm")
        threshold = per_client("threshold_db", threshold_db, low=-_DECIBELS, high=_DECIBELS, unit=" dB")
        check_same_clients(clients=np.empty(clients), distance_km=distance, transmit_power_dbm=power, threshold_db=threshold)
        for name, value in (("mean_snr_db", mean_snr_db), ("noise_dbm", noise_dbm)):
            if value is not None and not math.isfinite(value):
                raise ParameterError(name, value, "must be finite")
        received_dbm = power - path_loss_db(spread(distance, np.arange(clients)))
        self.noise_dbm = float(received_dbm.mean()) - mean_snr_db if noise_dbm is None else noise_dbm
        self.mean_snr_db = received_dbm - self.noise_dbm
        """(K,) SNR of each client without fading."""
        # P(SNR >= threshold) of an exponential SNR. Far out of range the exponent overflows to inf, which gives 0.
        with np.errstate(over="ignore", under="ignore"):
            self._success: FloatArray = np.exp(-(10.0 ** ((threshold - self.mean_snr_db) / 10)))
            """(K,) probability that a transmission survives."""

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        return np.asarray(u < self._success[entities])

    def success_probability(self, entities: IntArray) -> FloatArray:
        return np.asarray(self._success[entities])
