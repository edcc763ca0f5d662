"""Optimise the coefficients of the table in `tacit.privacy.toeplitz` and print its lines.

For each horizon on a grid, minimises (column norm of C) x (last row norm of B), both in closed form, over
the decays and weights of the buffers.  Neighbouring horizons start from each other's optimum.  The minimum is flat:
another version of SciPy may stop at other coefficients of the same loss.

    python workloads/toeplitz_table.py
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import minimize

from tacit.privacy.factorization import column_norm_squared
from tacit.typing import FloatArray

BUFFERS = 5
LOG2_HORIZONS = (4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)


def last_row_norm_squared(decay: FloatArray, weight: FloatArray, horizon: int) -> float:
    """Sum of b_t^2: b has the rational generating function prod(1 - decay x) / ((1 - x) prod(1 - root x))."""
    roots = np.linalg.eigvals(np.diag(decay) - np.outer(np.ones(decay.size), weight))
    nodes = np.concatenate([[1.0], roots]).astype(complex)
    residues = np.empty(nodes.size, dtype=complex)
    for j, node in enumerate(nodes):
        others = np.delete(nodes, j)
        residues[j] = np.prod(1 - decay / node) / np.prod(1 - others / node)
    ratio = np.outer(nodes, nodes)
    flat = np.abs(1 - ratio) < 1e-15
    geometric = np.where(flat, horizon, (1 - ratio**horizon) / np.where(flat, 1, 1 - ratio))
    return float(np.sum(np.outer(residues, residues) * geometric).real)


def loss(parameters: FloatArray, horizon: int) -> float:
    """Log of the worst prefix's standard deviation; large where the recursion would be unstable."""
    rate, log_weight = np.split(parameters, 2)
    decay, weight = np.exp(-np.exp(rate)), np.exp(log_weight)
    if weight.sum() >= 1.0:
        return 1e3 + float(weight.sum())
    error = last_row_norm_squared(decay, weight, horizon)
    if not np.isfinite(error) or error <= 0:
        return 1e6
    return 0.5 * float(np.log(column_norm_squared(decay, weight, horizon) * error))


def optimum(horizon: int, start: FloatArray) -> tuple[FloatArray, float]:
    """The best point found from ``start`` and from a ladder of decays, buffers in order, and its loss."""
    best, best_loss = start, np.inf
    ladder = np.log(np.geomspace(1.0 / horizon, 1.0, BUFFERS))
    for guess in (start, np.concatenate([ladder, np.linspace(-0.5 * np.log(horizon), -1.2, BUFFERS)])):
        point = guess
        for _ in range(4):
            found = minimize(
                loss,
                point,
                args=(horizon,),
                method="Nelder-Mead",
                options={"maxfev": 20_000, "maxiter": 20_000, "xatol": 1e-6, "fatol": 1e-10, "adaptive": True},
            )
            point = found.x
        if found.fun < best_loss:
            best, best_loss = found.x, float(found.fun)
    order = np.argsort(best[:BUFFERS])
    return np.concatenate([best[:BUFFERS][order], best[BUFFERS:][order]]), best_loss


def table_line(log2_horizon: int, parameters: FloatArray) -> str:
    """A line of the table: log2(horizon), the rates and the logarithms of the weights."""
    rate, log_weight = (" ".join(f"{value:10.6f}" for value in part) for part in np.split(parameters, 2))
    return f"{log2_horizon:2d}  {rate}   {log_weight}"


def main() -> None:
    point = np.concatenate([np.log(np.geomspace(0.1, 2.0, BUFFERS)), np.full(BUFFERS, np.log(0.1))])
    for log2_horizon in LOG2_HORIZONS:
        point, least = optimum(2**log2_horizon, point)
        print(table_line(log2_horizon, point), flush=True)
        print(f"worst prefix at 2^{log2_horizon}: {np.exp(least):.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
