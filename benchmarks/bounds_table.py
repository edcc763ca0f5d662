"""Search for the sensitivities of common settings and print the lines of `tacit.estimation._bounds_table`.

python benchmarks/bounds_table.py            # about two minutes
python benchmarks/bounds_table.py --check    # fails when a line of the table differs, and says which
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from tacit.estimation._bounds_table import ROWS
from tacit.estimation.linearised import row_with_scale, searched_row
from tacit.estimation.sensitivity import searched_diameter
from tacit.glm.links import LINKS

SHARES = 0.75, 0.5
"""Of the secant, that `stream-glm` takes by default, with a small budget and with others."""
SETTINGS = [
    *((name, 0.5 * half, 1.0) for name in ("logistic", "probit") for half in range(1, 13)),
    *(("log", 0.5 * half, 10.0) for half in range(1, 5)),
    ("identity", 1.0, 1.0),
]


def lines() -> Iterator[str]:
    for name, theta_bound, reward_bound in SETTINGS:
        diameter = searched_diameter(LINKS[name], theta_bound, reward_bound)
        for blend in SHARES:
            row = searched_row(LINKS[name], theta_bound, reward_bound, blend)
            numbers = theta_bound, reward_bound, blend, row.scale, row.row_norm, row.row_bound, diameter
            yield f"{name} {' '.join(map(repr, numbers))}"


def is_right(line: str) -> bool:
    """Whether the sensitivities of a line are found anew at its scale; which scale is best concerns regret alone."""
    name, *numbers = line.split()
    theta_bound, reward_bound, blend, scale, *known = map(float, numbers)
    row = row_with_scale(LINKS[name], theta_bound, reward_bound, blend, scale)
    found = row.row_norm, row.row_bound, searched_diameter(LINKS[name], theta_bound, reward_bound)
    return bool(np.allclose(found, known, rtol=1e-13, atol=1e-12))


def main() -> None:
    """Print the lines, or search for the sensitivities of the table anew."""
    if "--check" not in sys.argv:
        for line in lines():
            print(line, flush=True)
        return
    wrong = [line for line in ROWS.strip().splitlines() if not is_right(line)]
    for line in wrong:
        print(f"differs: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
