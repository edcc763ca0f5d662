"""All randomness of a policy as one object: seeds, fresh starts, saving, and tapes that are written and played."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.contracts.policies import make as make_contract_policy
from tests.contracts.policies import rounds
from tests.contracts.policies import walk as decisions
from tests.tapes import Tape, TapeMismatch, played, taped

from tacit.errors import InvalidInput
from tacit.policies.state import public_part
from tacit.privacy import ExactNoise, FastNoise, Randomness
from tacit.typing import FloatArray

NAMES = ("fast", "secure", "exact", "none")


def walk(randomness: Randomness, rounds: int = 6) -> list[FloatArray]:
    """Draws as a policy makes them: ahead for many ticks, coins, and events in between that also take a generator."""
    seen = []
    for turn in range(rounds):
        seen.append(randomness.ticks.gaussian(1.5 + turn, (4, 3)))
        seen.append(randomness.coins.random((2, turn)))
        if turn % 2:
            seen.append(randomness.events.gaussian(0.25, 5))
            if randomness.events.name != "exact":
                rng = randomness.events.generator()
                seen += [rng.random(3), rng.binomial(100, 0.3, size=4).astype(np.float64)]
    return seen


def same(first: list[FloatArray], second: list[FloatArray]) -> bool:
    return [a.tobytes() for a in first] == [b.tobytes() for b in second]


make_policy = partial(make_contract_policy, seed=None)


def make(name: str | None = None, seed: int | None = 7, private: bool = True) -> Randomness:
    return Randomness.make(seed, name, private=private)


def test_seeds_are_spawned_as_they_always_were() -> None:
    """Ticks, coins and events in this order: rows of earlier versions rest on it."""
    ticks, coins, events = (np.random.default_rng(child) for child in np.random.SeedSequence(7).spawn(3))
    made = make()
    assert isinstance(made.ticks, FastNoise)
    assert isinstance(made.events, FastNoise)
    assert np.array_equal(made.ticks.gaussian(2.0, 9), 2.0 * ticks.standard_normal(9))
    assert np.array_equal(made.events.gaussian(1.0, 9), events.standard_normal(9))
    assert np.array_equal(made.coins.random((3, 2)), coins.random((3, 2)))


def test_the_kind_of_noise_follows_from_seed_and_budget() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "fast"),
        ({"seed": None}, "exact"),
        ({"seed": 1, "name": "secure"}, "secure"),
        ({"seed": None, "name": "fast"}, "fast"),
        ({"seed": 1, "name": "exact"}, "exact"),
        ({"seed": 1, "name": "fast", "private": False}, "none"),
        ({"seed": None, "private": False}, "none"),
    ]
    for arguments, name in cases:
        made = make(**arguments)
        assert made.ticks.name == made.events.name == name
        assert made.ticks is not made.events
        assert made.seeded == (arguments["seed"] is not None)
    with pytest.raises(InvalidInput, match="noise must be one of"):
        make("pink")


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    assert same(walk(make()), walk(make()))
    assert not same(walk(make()), walk(make(seed=8)))
    assert not same(walk(make("fast", seed=None)), walk(make("fast", seed=None)))


@pytest.mark.parametrize("name", NAMES)
def test_fresh_sources_are_of_the_same_kind_and_share_nothing(name: str) -> None:
    made = make(name, private=name != "none")
    first, second = made.fresh(), made.fresh()
    assert (first.ticks.name, first.events.name, first.seeded) == (name, name, True)
    before = made.coins.random(8)
    for fresh in (first, second):
        assert fresh.ticks is not made.ticks
        assert fresh.events is not made.events
        assert not np.array_equal(fresh.coins.random(8), before)
    if name != "none":
        draws = [each.ticks.gaussian(50.0, 8).tobytes() for each in (make(name), first, second)]
        draws += [each.events.gaussian(50.0, 8).tobytes() for each in (make(name), first, second)]
        assert len(set(draws)) == 6


def test_fresh_exact_noise_keeps_its_grid() -> None:
    made = Randomness(ExactNoise(2.0**-8), ExactNoise(2.0**-8), np.random.default_rng(1), seeded=False)
    assert made.fresh().ticks.grid == 2.0**-8


def test_saved_sources_go_on_where_they_were() -> None:
    made = make()
    walk(made)
    saved = json.loads(json.dumps(made.to_json()))
    assert set(saved) == {"ticks", "events", "coins"}
    restored = Randomness.from_json(saved)
    assert restored.seeded
    assert same(walk(restored), walk(made))


def test_what_is_not_seeded_is_not_saved() -> None:
    saved = make("secure", seed=None).to_json()
    assert saved == {"ticks": {"name": "secure"}, "events": {"name": "secure"}, "coins": None}
    restored = Randomness.from_json(saved)
    assert not restored.seeded
    assert restored.to_json() == saved
    assert not np.array_equal(restored.coins.random(8), Randomness.from_json(saved).coins.random(8))


def test_damaged_randomness_is_refused() -> None:
    saved = make().to_json()
    with pytest.raises(InvalidInput, match="must have ticks, events, coins, got events"):
        Randomness.from_json({"events": saved["events"]})
    with pytest.raises(InvalidInput, match="saved coins"):
        Randomness.from_json({**saved, "coins": {"name": "secure"}})
    with pytest.raises(InvalidInput, match="damaged"):
        Randomness.from_json({**saved, "ticks": {"name": "fast", "generator": {"bit_generator": "PCG64", "state": 1}}})


@pytest.mark.parametrize("name", NAMES)
def test_a_tape_changes_nothing_and_plays_the_same(name: str) -> None:
    tape = Tape()
    made = make(name, private=name != "none")
    seen = walk(taped(made, tape))
    if name == "fast":
        assert same(seen, walk(make()))
    other = make(name, seed=99, private=name != "none")
    assert same(seen, walk(played(other, tape)))
    assert same(seen, walk(played(other, tape)))  # from its beginning again
    if name == "fast":
        assert same(walk(other), walk(make(seed=99)))  # what plays draws nothing from the sources behind it


def test_a_tape_says_what_was_drawn() -> None:
    tape = Tape()
    watched = taped(make(), tape)
    noise = watched.events.gaussian(0.5, 3)
    coins = watched.coins.random((2, 1))
    rng = watched.ticks.generator()
    first, second, third = tape.draws
    assert (first.source, first.kind, first.scale, first.values.shape) == ("events", "gaussian", 0.5, (3,))
    assert (second.source, second.kind, second.values.shape) == ("coins", "uniform", (2, 1))
    assert (third.source, third.kind) == ("ticks", "generator")
    noise[:], coins[:] = 0.0, 0.0  # whoever uses a draw may overwrite it
    rng.random()
    playing = played(make(seed=3), tape)
    expected = make()
    assert np.array_equal(playing.events.gaussian(0.5, 3), expected.events.gaussian(0.5, 3))
    assert np.array_equal(playing.coins.random((2, 1)), expected.coins.random((2, 1)))
    assert playing.ticks.generator().random() == expected.ticks.generator().random()


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "local-glm", "shuffle-glm", "random"])
def test_a_policy_with_the_tape_of_another_makes_its_decisions(name: str) -> None:
    """Without seeds: all that the two have in common is the tape."""
    contexts, rewards = rounds(300)
    policy, other, third, tape = make_policy(name), make_policy(name), make_policy(name), Tape()
    policy.randomness = taped(policy.randomness, tape)
    arms = decisions(policy, contexts, rewards)
    other.randomness = played(other.randomness, tape)
    assert decisions(other, contexts, rewards) == arms
    assert decisions(third, contexts, rewards) != arms
    if name != "random":
        assert all(same([array], [public_part(policy.state)[path]]) for path, array in public_part(other.state).items())
    with pytest.raises(TapeMismatch, match="at its end"):
        decisions(other, contexts, rewards)


def test_a_taped_policy_saves_its_sources_and_not_the_tape() -> None:
    watched = taped(make(), Tape())
    walk(watched)
    plain = make()
    walk(plain)
    assert watched.to_json() == plain.to_json()
    assert played(plain, Tape()).to_json() == plain.to_json()
    assert isinstance(watched.fresh().ticks, FastNoise)


@pytest.mark.parametrize(
    ("source", "scale", "shape"), [("events", 2.0, 3), ("ticks", 2.5, 3), ("ticks", 2.0, 4), ("ticks", 2.0, (3, 1))]
)
def test_another_draw_than_the_next_on_the_tape_is_refused(source: str, scale: float, shape: Any) -> None:
    tape = Tape()
    taped(make(), tape).ticks.gaussian(2.0, 3)
    playing = played(make(), tape)
    with pytest.raises(TapeMismatch, match=r"next on the tape is gaussian of scale 2\.0 and shape \(3,\) from ticks"):
        getattr(playing, source).gaussian(scale, shape)
    with pytest.raises(TapeMismatch, match="asked for is uniform"):
        playing.coins.random(3)
    with pytest.raises(TapeMismatch, match="asked for is generator from ticks"):
        playing.ticks.generator()
    playing.ticks.gaussian(2.0, 3)  # what was refused is still there
    with pytest.raises(TapeMismatch, match=r"at its end.*shape \(3,\) from ticks"):
        playing.ticks.gaussian(2.0, 3)
