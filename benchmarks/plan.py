"""Are plans true? What `tacit plan` says of six sites, beside what is measured there; a table, as Markdown.

    python -m benchmarks.plan --lives 12 --worlds 20 --seed 1
    python -m benchmarks.plan --sites 0 1 --without

Sites are in `workloads/sites.py`: users, arms and rewards by rules that the plan does not know.  The plan gets the
schema and three rates of the site to a tenth of a percent: of random arms, of one arm for everybody, and of the best
choice by what the schema says of users.  With ``--without`` it does without the second one.  Gains are shares of what
that best choice earns over random arms.  The policy gets the rate of random
arms and the bound that the plan recommends.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from workloads.sites import SITES, Site, calibrated

from tacit.experiments.plan import Assumptions, Outlook, plan
from tacit.typing import FloatArray


class Checked(NamedTuple):
    """One site at one epsilon."""

    row: str
    inside: bool
    narrow: bool


def main() -> None:
    """Plan, measure, print, and count what held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=12)
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sites", type=int, nargs="+", default=list(range(len(SITES))), help="their numbers, from 0")
    parser.add_argument("--without", action="store_true", help="do not state what one arm for everybody earns")
    given = parser.parse_args()
    print("| site | random, one arm, best | theta_bound | epsilon | measured | plan | width | lives inside |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for number in given.sites:
        for checked in judged(SITES[number], given.lives, given.worlds, given.seed, not given.without):
            print(checked.row, flush=True)
            found.append(checked)
    print(f"\ninside: {sum(checked.inside for checked in found)} of {len(found)}")
    print(f"at most 0.25 wide: {sum(checked.narrow for checked in found)} of {len(found)}")


def judged(site: Site, lives: int, worlds: int, seed: int, stated: bool) -> list[Checked]:
    """Plan for a site, then play there."""
    real = calibrated(site)
    one_arm = round(real.one_arm_rate, 3) if stated else None
    best = round(real.best_rate, 3)
    asked = Assumptions(site.random_rate, best, one_arm, decisions=site.decisions, arms=site.arms)
    name = f"{site.name} | {site.random_rate:.1%}, {'-' if one_arm is None else f'{one_arm:.1%}'}, {best:.1%}"
    rows = []
    for outlook in plan({site.name: site.schema}, asked, worlds=worlds, seed=seed).outlooks:
        gains = [real.gain(outlook.epsilon, outlook.theta_bound, 100 * seed + life) for life in range(lives)]
        rows.append(_checked(name, outlook, np.array(gains)))
    return rows


def _checked(name: str, outlook: Outlook, gains: FloatArray) -> Checked:
    mean, error = float(np.mean(gains)), float(np.std(gains, ddof=1)) / gains.size**0.5
    alike, width = np.mean((gains >= outlook.life_low) & (gains <= outlook.life_high)), outlook.high - outlook.low
    cells = (
        name,
        f"{outlook.theta_bound:g}",
        f"{outlook.epsilon:g}",
        f"{mean:.2f} ± {error:.2f}",
        f"{outlook.gain:.2f} ({outlook.low:.2f} to {outlook.high:.2f})",
        f"{width:.2f}",
        f"{alike:.0%}",
    )
    return Checked(f"| {' | '.join(cells)} |", outlook.low <= mean <= outlook.high, width <= 0.25)


if __name__ == "__main__":
    main()
