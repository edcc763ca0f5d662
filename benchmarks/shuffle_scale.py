"""One matrix release at scale: real bits through the three roles, and the same by sums.

    python benchmarks/shuffle_scale.py [--users N] [--dim D] [--epsilon E] [--delta P] [--max-bits B]

Prints seconds, peak memory, bytes per user, and the error of both releases in units of their noise.  Exits
with 1 when a limit is missed: 60 s and 2 GB by bits, 1 s by sums.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from tacit.shuffle import (
    OuterProducts,
    Shuffler,
    SumProtocol,
    analyze,
    calibrate,
    randomize_in_chunks,
    sample_sum,
)
from tacit.shuffle.messages import report_bytes
from tacit.typing import FloatArray

LIMIT_BITS_SECONDS, LIMIT_SUMS_SECONDS, LIMIT_GIGABYTES = 60.0, 1.0, 2.0


def users_on_the_sphere(users: int, dim: int, rng: np.random.Generator) -> FloatArray:
    """Unit rows, drawn in place."""
    rows = rng.standard_normal((users, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def by_bits(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> tuple[float, FloatArray]:
    """Seconds and result of randomizer, shuffler and analyzer."""
    start = time.perf_counter()
    shuffler = Shuffler(protocol)
    for reports in randomize_in_chunks(protocol, rows, rng):
        shuffler.collect(reports)
    values = analyze(protocol, shuffler.release(rng)).values
    return time.perf_counter() - start, values


def by_sums(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> tuple[float, FloatArray]:
    """Seconds and result of the sampled sum."""
    start = time.perf_counter()
    values = sample_sum(protocol, rows, rng).values
    return time.perf_counter() - start, values


def exact_sum(protocol: SumProtocol, rows: FloatArray) -> FloatArray:
    """The sum without noise, a chunk at a time."""
    total = np.zeros(protocol.domain.size)
    for start in range(0, rows.shape[0], 10_000):
        total += protocol.domain.embed(rows[start : start + 10_000]).sum(axis=0)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--max-bits", type=int, default=64)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    domain = OuterProducts(options.dim)
    protocol = calibrate(domain, options.users, options.epsilon, options.delta, max_bits=options.max_bits)
    compiled = calibrate(domain, 100, 8.0, 0.02, max_bits=1000)
    warm = users_on_the_sphere(100, options.dim, rng)
    by_bits(compiled, warm, rng)
    by_sums(compiled, warm, rng)
    rows = users_on_the_sphere(options.users, options.dim, rng)
    truth, sd = exact_sum(protocol, rows), protocol.noise_sd(options.users)
    sums_seconds, sums = min((by_sums(protocol, rows, rng) for _ in range(3)), key=lambda run: run[0])
    bits_seconds, bits = by_bits(protocol, rows, rng)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"users {options.users:,}, matrix {options.dim} x {options.dim}, epsilon {options.epsilon:g}")
    print(f"message      {protocol.bits_per_coordinate} bits per coordinate, {report_bytes(protocol)} bytes")
    print(f"by bits      {bits_seconds:7.2f} s   limit {LIMIT_BITS_SECONDS:g} s")
    print(f"by sums      {sums_seconds:7.2f} s   limit {LIMIT_SUMS_SECONDS:g} s, best of three")
    print(f"peak memory  {gigabytes:7.2f} GB  limit {LIMIT_GIGABYTES:g} GB, rows included")
    print(f"rms error over noise_sd: bits {rms(bits - truth, sd):.3f}, sums {rms(sums - truth, sd):.3f}")
    met = bits_seconds < LIMIT_BITS_SECONDS and sums_seconds < LIMIT_SUMS_SECONDS and gigabytes < LIMIT_GIGABYTES
    return 0 if met else 1


def rms(error: FloatArray, scale: float) -> float:
    """Root mean square in units of ``scale``; at most about 1, since ``noise_sd`` is a worst case."""
    return float(np.sqrt(np.mean((error / scale) ** 2)))


if __name__ == "__main__":
    raise SystemExit(main())
