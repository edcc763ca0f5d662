"""Are plans true? What `tacit plan` says of six sites, beside what is measured there; a table, as Markdown.

    python -m benchmarks.plan --lives 12 --worlds 20 --seed 1

Sites are in `workloads/sites.py`: users, arms and rewards by rules that the plan does not know.  The plan gets the
schema and the rates: of random arms and of the best arm for each user, as stated, and of one arm for everybody as it is
at the site, to a tenth of a percent.  A second plan does without the latter.  The policy gets the rate of random arms
and the bound that the plan recommends.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from workloads.sites import SITES, Site, calibrated

from tacit.experiments.plan import Assumptions, Outlook, Plan, plan


class Checked(NamedTuple):
    """One site at one epsilon."""

    row: str
    inside: bool
    narrow: bool
    inside_without: bool


def main() -> None:
    """Plan, measure, print, and count what held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=12)
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sites", type=int, nargs="+", default=list(range(len(SITES))), help="their numbers, from 0")
    given = parser.parse_args()
    print("| site | random, one arm, best | theta_bound | epsilon | measured | plan | of its lives inside | plan without")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for number in given.sites:
        for checked in judged(SITES[number], given.lives, given.worlds, given.seed):
            print(checked.row, flush=True)
            found.append(checked)
    for what in ("inside", "narrow", "inside_without"):
        print(f"\n{what}: {sum(getattr(checked, what) for checked in found)} of {len(found)}", end="")
    print()


def judged(site: Site, lives: int, worlds: int, seed: int) -> list[Checked]:
    """Plan for a site with and without the rate of one arm, then play there."""
    real = calibrated(site)
    one_arm = round(real.one_arm_rate, 3)
    told, untold = (_planned(site, rate, worlds, seed) for rate in (one_arm, None))
    rates = f"{site.random_rate:.1%}, {one_arm:.1%}, {site.best_rate:.1%}"
    rows = []
    for outlook, wider in zip(told.outlooks, untold.outlooks, strict=True):
        gains = [real.gain(outlook.epsilon, outlook.theta_bound, 100 * seed + life) for life in range(lives)]
        rows.append(_checked(f"{site.name} | {rates}", outlook, wider, np.array(gains)))
    return rows


def _planned(site: Site, one_arm: float | None, worlds: int, seed: int) -> Plan:
    asked = Assumptions(site.random_rate, site.best_rate, one_arm, decisions=site.decisions, arms=site.arms)
    return plan({site.name: site.schema}, asked, worlds=worlds, seed=seed)


def _checked(name: str, outlook: Outlook, wider: Outlook, gains: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Checked:
    mean, error = float(np.mean(gains)), float(np.std(gains, ddof=1)) / gains.size**0.5
    inside = np.mean((gains >= outlook.life_low) & (gains <= outlook.life_high))
    cells = (
        name,
        f"{outlook.theta_bound:g}",
        f"{outlook.epsilon:g}",
        f"{mean:.2f} ± {error:.2f}",
        f"{outlook.gain:.2f} ({outlook.low:.2f} to {outlook.high:.2f})",
        f"{inside:.0%}",
        f"{wider.gain:.2f} ({wider.low:.2f} to {wider.high:.2f})",
    )
    return Checked(
        f"| {' | '.join(cells)} |",
        outlook.low <= mean <= outlook.high,
        outlook.high - outlook.low <= 0.25,
        wider.low <= mean <= wider.high,
    )


if __name__ == "__main__":
    main()
