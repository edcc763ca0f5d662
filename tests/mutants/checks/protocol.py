"""Checks of the shuffle protocol: messages, noise shares, smallest batches, and the guarantee by a second route."""

from __future__ import annotations

import math

import numpy as np

from tacit.audit.mechanisms import release_bits
from tacit.audit.statistics import loss_epsilon, protocol_pairs
from tacit.errors import BatchTooSmall
from tacit.shuffle import randomizer
from tacit.shuffle.calibration import calibrate
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.messages import decode_counts, encode_reports
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

EPSILON, DELTA = 4.0, 1e-5


def _protocol() -> SumProtocol:
    return calibrate(OuterProducts(2), 60, EPSILON, DELTA, max_bits=256)


def message_width() -> list[str]:
    """Every report that an honest device can send survives the wire, the longest included."""
    protocol = _protocol()
    most = protocol.levels + protocol.noise_bits
    counts = np.stack([most, np.zeros_like(most), most - 1, protocol.levels])
    reports = encode_reports(protocol, np.zeros((4, 16), dtype=np.uint8), counts)
    same = np.array_equal(decode_counts(protocol, reports), counts)
    return [] if same else ["the largest report does not fit its message"]


def shuffled_noise() -> list[str]:
    """Each report brings Bin(b, p) of noise to each coordinate, as was calibrated."""
    protocol, rng = _protocol(), np.random.default_rng(8)
    shares = randomizer.noise_share(protocol, 20_000, rng).astype(np.float64)
    p, b = protocol.noise_probability, protocol.noise_bits
    error = 6.0 * math.sqrt(b * p * (1.0 - p) / shares.size)
    if abs(float(shares.mean()) - b * p) > error:
        return [f"a report brings {shares.mean():.3f} ones of noise to a coordinate, {b * p:.3f} were calibrated"]
    spread, right = shares.var(axis=0), b * p * (1.0 - p)
    if np.any(np.abs(spread / right - 1.0) > 0.1):
        return [f"noise shares of different users vary by {spread.min():.3f}, {right:.3f} were calibrated"]
    return []


def small_batch() -> list[str]:
    """A batch below the smallest one that was calibrated is never opened."""
    protocol, rng, found = _protocol(), np.random.default_rng(8), []
    for name, release in (("sampled sum", sample_sum), ("shuffler", release_bits)):
        try:
            release(protocol, np.zeros((59, 2)), rng)
            found.append(f"{name}: 59 reports were opened, 60 are needed")
        except BatchTooSmall:
            continue
    return found


def privacy_loss() -> list[str]:
    """The calibrated epsilon holds by the privacy loss of the two mass functions, without a dominating Gaussian."""
    found = []
    for domain, rows in ((OuterProducts(2), np.eye(2)), (Ball(2), np.array([[1.0, 0.0], [-1.0, 0.0]]))):
        for epsilon in (1.0, EPSILON):
            # No calibration may be remembered from before: it is what is under test.
            protocol = calibrate(domain, 400, epsilon, DELTA * (1.0 + 1e-9), max_bits=512)
            least = loss_epsilon(protocol_pairs(protocol, 400, *_lines(protocol, rows)), DELTA, upper=False)
            if least > epsilon:
                found.append(f"{domain}: two rows are {least:.3f} apart, {epsilon:g} is claimed")
    return found


def _lines(protocol: SumProtocol, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    both = np.asarray(protocol.scaled(protocol.domain.embed(rows)), dtype=np.float64)
    return both[0], both[1]
