"""The benchmark of explanations: what it calls true, and that it finds it where there is no noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from workloads.explain import THETA_NORM, drawn_theta, found, shortest, strongest

from tacit.environments.records import sampled_contexts
from tacit.experiments.schemas import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_shortest_parameter_gives_the_same_scores(name: str) -> None:
    schema, rng = EXAMPLES[name](), np.random.default_rng(0)
    theta = rng.standard_normal(schema.dim)
    same = shortest(schema, theta)
    rows = sampled_contexts(np.random.default_rng(9), schema, 200, 4)
    assert np.allclose(rows @ same, rows @ theta)
    assert np.linalg.norm(same) < np.linalg.norm(theta)  # categories and constants are tied


@pytest.mark.parametrize("name", EXAMPLES)
def test_arms_are_equally_good_on_average_unless_asked_otherwise(name: str) -> None:
    schema = EXAMPLES[name]()
    rows = sampled_contexts(np.random.default_rng(9), schema, 4_000, 4)
    spreads = []
    for unequal in (False, True):
        theta = drawn_theta(np.random.default_rng(1_000), schema, unequal)
        assert np.linalg.norm(theta) == pytest.approx(THETA_NORM)
        category = next(number for number, label in enumerate(schema.names) if label.endswith(_LAST[name]))
        chosen = rows[rows[:, :, category] != 0.0] @ theta
        spreads.append(abs(float(np.mean(chosen) - np.mean(rows @ theta))))
    assert spreads[0] < 0.1 < spreads[1]


_LAST = {"articles": "topic=food", "patients": "1 @ treatment=D", "shops": "display=window"}


def test_without_noise_most_of_what_matters_is_found() -> None:
    schema = EXAMPLES["patients"]()
    theta = drawn_theta(np.random.default_rng(1_000), schema, unequal=False)
    among, top, missed = found(schema, theta, 1_000, 10_000, math.inf)
    assert among + len(missed) == 10
    assert top <= among
    assert among >= 8
    assert strongest(schema, theta, 10).size == 10
