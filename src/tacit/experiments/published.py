"""Regret figures that others reported, each with its source.

Table 1 is quoted from the paper, *Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits*
(probit, d = 3, K = 20, T = 5,000, delta = 0.02, 10 runs).  Its two figures come without numbers: for them we give what
the public reference code produced when it was run in the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PAPER_TABLE = "the paper, Table 1"
LOGISTIC_CODE = "public reference code, measured, 3 runs"
PROBIT_CODE = "public reference code, measured, 5 runs"
RANDOM_CODE = "public reference code, measured, 10 runs"


@dataclass(frozen=True)
class Figure:
    """A cumulative regret and where it is from."""

    regret: float
    source: str


def _private(regrets: Mapping[float, float], source: str) -> dict[str, Figure]:
    return {line("private-glm", epsilon): Figure(regret, source) for epsilon, regret in regrets.items()}


def line(algorithm: str, epsilon: float | None = None) -> str:
    """Key of a published line: the algorithm, and for private ones its epsilon."""
    return algorithm if epsilon is None else f"{algorithm} {epsilon:g}"


def _table1_column(
    glm_ucb: float, gloc: float, rs_glinucb: float, private: Mapping[float, float], uniform: float
) -> Mapping[str, Figure]:
    regrets = {"glm-ucb": glm_ucb, "gloc": gloc, "rs-glinucb": rs_glinucb}
    figures = {name: Figure(regret, PAPER_TABLE) for name, regret in regrets.items()}
    figures |= _private(private, PAPER_TABLE)
    return MappingProxyType(figures | {"random": Figure(uniform, RANDOM_CODE)})


TABLE1: Mapping[float, Mapping[str, Figure]] = MappingProxyType(
    {
        2.0: _table1_column(1400.27, 384.68, 289.69, {4: 674.17, 6: 516.58, 8: 425.53}, 2144),
        2.5: _table1_column(1943.23, 631.60, 170.10, {4: 721.26, 6: 546.97, 8: 445.27}, 2318),
        3.0: _table1_column(2323.06, 1346.59, 200.62, {4: 744.35, 6: 559.04, 8: 452.60}, 2408),
    }
)
"""By theta_norm S, then by line."""

KAPPA: Mapping[float, float] = MappingProxyType({2.0: 18.39, 2.5: 56.44, 3.0: 222.15})
"""The kappa that Table 1 states for each S; it is not quite 1 / mu'(S), which is 18.5, 57.1, 225.6."""

LOGISTIC: Mapping[str, Figure] = MappingProxyType(
    {
        "gloc": Figure(1462, LOGISTIC_CODE),
        "ecolog": Figure(549, LOGISTIC_CODE),
        "rs-glinucb": Figure(419, LOGISTIC_CODE),
        **_private({2: 1427, 4: 1054, 8: 796}, LOGISTIC_CODE),
    }
)

PROBIT: Mapping[str, Figure] = MappingProxyType(
    {
        "glm-ucb": Figure(2221, PROBIT_CODE),
        "gloc": Figure(1362, PROBIT_CODE),
        "rs-glinucb": Figure(372, PROBIT_CODE),
        **_private({2: 1160, 4: 756, 8: 554}, PROBIT_CODE),
    }
)
