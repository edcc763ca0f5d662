"""Does `stream-glm` know what matters?  The strongest true features among the strongest estimated ones.

python workloads/explain.py
python workloads/explain.py --seeds 10 --unequal

Users of the three shipped schemas are simulated, 50,000 of them with 4 arms each, at epsilon 4 and delta 1e-6.  Ten
features matter, drawn by the seed, with parameters of either sign; all others matter little.  Features are ranked by
the largest difference that they can make to a score: the absolute value of the parameter times the largest value of the
feature.  The table says how many of the ten strongest true ones are among the 15 strongest released ones, among the 10,
and among the 15 with the noise off.  Seeds below 1000 were never tuned on.

What is true needs two words.  The values of a category and the constant are tied (one of the values always holds), so
that many parameters give the same scores to every row, and no data can tell them apart: the true one is the shortest of
them.  And it depends on the user which arm is best: on average over users all arms are equally good, unless
``--unequal`` is given.  An arm that is bad for nearly everybody is hardly ever chosen, so that little is learned of why
it is bad, with noise or without.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from tacit.environments import Environment, EnvironmentSetting, offered_arms
from tacit.environments.records import rounds_with, sampled_contexts
from tacit.environments.registry import EnvironmentKind
from tacit.experiments.schemas import EXAMPLES
from tacit.features import Schema
from tacit.glm.links import get_link
from tacit.policies.stream import StreamGLM
from tacit.typing import FloatArray, IntArray

ARMS, STRONG, SHOWN = 4, 10, 15
THETA_NORM = 6.0
_WEAK = 0.1
"""Size of parameters that matter little, next to those of 1 to 2 that matter."""


def drawn_theta(rng: np.random.Generator, schema: Schema, unequal: bool) -> FloatArray:
    """A parameter of length `THETA_NORM` of which about ten entries matter."""
    named = [number for number, name in enumerate(schema.names) if unequal or name.split()[0] != "1"]
    theta = _WEAK * rng.standard_normal(schema.dim)
    matter = rng.choice(named, size=STRONG, replace=False)
    theta[matter] = rng.uniform(1.0, 2.0, STRONG) * rng.choice([-1.0, 1.0], STRONG)
    theta = shortest(schema, theta)
    if not unequal:
        theta = theta - _within(_mean_arms(schema), theta)
    return THETA_NORM * theta / float(np.linalg.norm(theta))


def shortest(schema: Schema, theta: FloatArray) -> FloatArray:
    """The shortest parameter that gives every row of the schema the same score as ``theta``."""
    rows = sampled_contexts(np.random.default_rng(0), schema, 2_000, ARMS).reshape(-1, schema.dim)
    return _within(rows, theta)


def _within(rows: FloatArray, theta: FloatArray) -> FloatArray:
    """The part of ``theta`` that lies in the span of ``rows``."""
    _, sizes, axes = np.linalg.svd(rows, full_matrices=False)
    spanned = axes[sizes > 1e-8 * sizes[0]]
    return np.asarray(spanned.T @ (spanned @ theta))


def _mean_arms(schema: Schema) -> FloatArray:
    """Rows of some arms, averaged over users, by how they differ from the average arm."""
    rng = np.random.default_rng(0)
    means = np.mean(schema.encode(schema.sample_users(rng, 1_000), schema.sample_arms(rng, 64)), axis=0)
    return np.asarray(means - np.mean(means, axis=0))


def released_theta(schema: Schema, theta: FloatArray, seed: int, decisions: int, epsilon: float) -> FloatArray:
    """What `stream-glm` has released of theta after so many decisions."""
    setting = EnvironmentSetting(
        get_link("logistic"), schema.dim, offered_arms(schema, ARMS), decisions, THETA_NORM, schema=schema
    )
    kind = EnvironmentKind("explained", lambda rng, asked: rounds_with(rng, asked, theta), "a theta of its own")
    policy = StreamGLM(features=schema, epsilon=epsilon, delta=1e-6, theta_bound=THETA_NORM, seed=seed)
    for block in Environment(setting, kind).blocks(np.random.default_rng([seed, 1])):
        policy.play(block.contexts, block.rewards)
    return policy.estimate


def strongest(schema: Schema, theta: FloatArray, count: int) -> IntArray:
    """The features that can make the largest differences to a score, strongest first."""
    return np.argsort(-np.abs(theta) * schema.scales, kind="stable")[:count]


def found(schema: Schema, theta: FloatArray, seed: int, decisions: int, epsilon: float) -> tuple[int, int, list[str]]:
    """How many of the ten strongest are among the 15 and the 10 strongest released ones, and which are not."""
    released = released_theta(schema, theta, seed, decisions, epsilon)
    true = strongest(schema, theta, STRONG)
    shown = strongest(schema, released, SHOWN)
    missed = [schema.names[feature] for feature in true if feature not in shown]
    return STRONG - len(missed), int(np.isin(true, shown[:STRONG]).sum()), missed


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=101, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--unequal", action="store_true", help="some arms are better than others for everybody")
    arguments = parser.parse_args()
    print(f"| schema | features | seed | of {STRONG} among {SHOWN} | among {STRONG} | noise off | missed |")
    print("|:---|---:|---:|---:|---:|---:|:---|")
    for name, make in EXAMPLES.items():
        schema = make()
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            theta = drawn_theta(np.random.default_rng([seed, 0]), schema, arguments.unequal)
            among, top, missed = found(schema, theta, seed, arguments.decisions, arguments.epsilon)
            off, _, _ = found(schema, theta, seed, arguments.decisions, math.inf)
            listed = ", ".join(missed) or "-"
            print(f"| {name} | {schema.dim} | {seed} | {among} | {top} | {off} | {listed} |", flush=True)


if __name__ == "__main__":
    main()
