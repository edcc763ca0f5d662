"""The coba learner of docs/guides/coming-from.md, driven as coba drives it; coba itself is not installed."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "coming-from.md").read_text()
MODULE = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ACTIONS = [(1, 0), (0, 1)]


def learner(longest: float = 2.0**0.5, **fields: Any) -> Any:
    """A learner of the page; coba hands out copies, made before the first prediction."""
    names: dict[str, Any] = {}
    exec(compile(MODULE, "learner.py", "exec"), names)
    common = {"delta": 1e-6, "theta_bound": 4.0, "seed": 1}
    return copy.deepcopy(names["TacitLearner"]("stream-glm", longest, **common, **fields))


def test_the_module_needs_no_coba() -> None:
    assert re.findall(r"^(?:import|from) (\w+)", MODULE, re.MULTILINE) == ["numpy", "tacit"]


def test_it_learns_from_what_coba_calls() -> None:
    """The better action depends on the context; coba knows an action by its identity, and hands keywords back."""
    playing, rng, rewards, stated = learner(epsilon=8.0, explore=0.1), np.random.default_rng(1), [], []
    for _ in range(1_500):
        context = (float(rng.integers(2)),)
        action, probability, keywords = playing.predict(context, ACTIONS)
        assert any(action is each for each in ACTIONS)
        rewards.append(float(action is ACTIONS[int(context[0])]))
        stated.append(probability)
        playing.learn(context, action, rewards[-1], probability, **keywords)
    assert np.mean(rewards[750:]) > 0.8
    assert set(np.round(stated, 9)) == {0.95, 0.05}
    assert 0.02 < np.mean(np.array(stated) < 0.5) < 0.09


def test_coba_finds_its_parameters() -> None:
    assert learner(epsilon=1.0).params["family"] == "stream-glm"
    assert learner(epsilon=1.0).params["epsilon"] == 1.0


@pytest.mark.parametrize(("context", "dim"), [(None, 2), (0.5, 4), ((0.5, 0.5), 6)])
def test_contexts_of_any_kind_that_the_page_names(context: Any, dim: int) -> None:
    playing = learner(epsilon=1.0)
    playing.predict(context, ACTIONS)
    assert playing.policy.config.dim == dim


def test_rows_and_rewards_out_of_bounds_are_errors() -> None:
    playing = learner(epsilon=1.0)
    _, probability, keywords = playing.predict((1.0,), ACTIONS)
    with pytest.raises(InvalidInput, match="reward"):
        playing.learn((1.0,), ACTIONS[0], 1.5, probability, **keywords)
    with pytest.raises(InvalidInput, match="norm"):
        playing.predict((2.0,), ACTIONS)
