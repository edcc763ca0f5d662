"""Solve for the mu of common budgets and print the lines of `tacit.privacy._budgets_table`.

python benchmarks/budgets_table.py
"""

from __future__ import annotations

from tacit.privacy.gaussian import searched_mu

EPSILONS = (0.1, 0.2, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


def main() -> None:
    for delta in DELTAS:
        for epsilon in EPSILONS:
            print(f"{epsilon!r} {delta!r} {searched_mu(epsilon, delta)!r}")


if __name__ == "__main__":
    main()
