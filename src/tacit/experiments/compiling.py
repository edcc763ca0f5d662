"""Kernels of experiments, compiled before the first run: what is missing is found out, and compiled on all cores.

A policy's kernels are found by letting it play a few rounds interpreted and writing down which entries it calls with
what kinds of arguments (`tacit._compile.entries.collect`): those are the forms that its runs will ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from tacit._compile.entries import Form, as_entry, collect, is_ours
from tacit._compile.fingerprints import digest, package_fingerprint
from tacit._compile.kernels import known
from tacit._compile.kinds import Kinds, found
from tacit._compile.places import cache_root
from tacit.experiments.engines import make_engine
from tacit.experiments.schemas import world_of
from tacit.experiments.spec import Experiment, for_each_epsilon
from tacit.features import Category, Number, Schema
from tacit.policies.registry import policy_class

_ROUNDS, _SINGLE = 40, 3
_MOST_ARMS = 5


def forms_of(experiment: Experiment) -> list[Form]:
    """The compiled forms that a run of this policy asks for, and those that `select` and `update` do."""
    return collect(lambda: _rehearse(experiment))


def _rehearse(experiment: Experiment) -> None:
    """A run that is short, and whose releases and batches come soon."""
    options = {key: value for key, value in experiment.options.items() if key != "reward_age"}  # it waits too long
    short = replace(experiment, horizon=_ROUNDS, arms=min(experiment.arms, _MOST_ARMS), options=options)
    if experiment.contexts == "assouad":
        short = replace(short, arms=experiment.arms)
    schema = experiment.features()
    if schema is not None:
        short = replace(short, **world_of(_small(schema)))
    policy = short.make_policy(0)
    for block in short.environment().blocks(np.random.default_rng(0)):
        policy.play(block.contexts, block.rewards)
        for arms in block.contexts[:_SINGLE]:
            decision = policy.select(arms) if schema is None else policy.select(arms=[{"arm": 0}, {"arm": 1}])
            policy.update(decision, 0.0)


def _small(schema: Schema) -> Schema:
    """A schema of a few coordinates that needs the same kernels: interpreted rounds of a large one take long."""
    arm = Category("arm", [0, 1])
    return Schema(arm=[Number("arm", 0, 1)]) if schema.support.dense else Schema(arm=[arm], per_arm="arm")


def example(policy: str) -> Experiment:
    """Any setting of a policy: its compiled kernels serve all dimensions, arms, links and budgets."""
    link = next(iter(policy_class(policy).links))
    base = Experiment(policy=policy, link=link, dim=3, arms=5, horizon=100, theta_norm=2.0, delta=1e-5)
    return for_each_epsilon(base, [4.0])[0]


def with_features(experiment: Experiment) -> Experiment:
    """The same with a schema: records are encoded by kernels too, and blocks of features have steps of their own."""
    return replace(experiment, **world_of(Schema(arm=[Category("arm", [0, 1])], per_arm="arm")))


def missing(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Those whose kernels have not been compiled yet."""
    marks = ((experiment, _mark(experiment)) for experiment in experiments)
    return [experiment for experiment, mark in marks if mark is None or not mark.exists()]


def compile_all(experiments: Sequence[Experiment], jobs: int, on_form: Callable[[str, int, int], None]) -> None:
    """Compile what these need; ``on_form`` hears which form is being compiled, how many are done, how many there are.

    Kernels on states of modules outside of the package are left to the processes that run them.
    """
    wanted = dict.fromkeys(form for experiment in experiments for form in forms_of(experiment) if is_ours(form))
    left = sorted(wanted, key=_amount_of_code, reverse=True)  # the longest first, so that all cores end together
    on_form(_title(left[0]) if left else "", 0, len(wanted))
    for form in make_engine("joblib", jobs).finished(_compile, list(left)):
        left.remove(form)
        on_form(_title(left[0]) if left else "", len(wanted) - len(left), len(wanted))
    for experiment in experiments:
        mark = _mark(experiment)
        if mark is not None:
            with suppress(OSError):
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()


def _compile(name: str, kinds: Kinds) -> Form:
    from tacit._compile import machine

    machine.code(as_entry(found(name)).kernel, kinds)
    return name, kinds


def _title(form: Form) -> str:
    """The kernel, and the state that it is compiled for."""
    name, kinds = form
    state = kinds[0][1].rpartition(":")[2] if kinds and kinds[0][0] == "tuple" else ""
    return f"{name.rpartition(':')[2]} {state}".strip()


def _amount_of_code(form: Form) -> int:
    """Of all kernels that go into a form: a stand-in for the time that its compilation takes."""
    kernel, first = as_entry(found(form[0])).kernel, form[1][0]
    steps = kernel.steps(found(first[1])) if kernel.steps is not None else {}
    met, left = set[Any](), [kernel.function, *steps.values()]
    while left:
        function: Any = left.pop()
        if function not in met:
            met.add(function)
            named = (function.__globals__.get(name) for name in function.__code__.co_names)
            left += [inner for inner in named if isinstance(inner, FunctionType) and inner in known.kernels]
    return sum(len(function.__code__.co_code) for function in met)


def _mark(experiment: Experiment) -> Path | None:
    """A file that says that this policy's kernels are in the cache; None where there is no cache."""
    root = cache_root()
    if root is None or experiment.modules:
        return None
    schema = experiment.features()
    structure = () if schema is None else ("dense",) if schema.support.dense else ("blocks",)
    kind = digest(experiment.policy, json.dumps(experiment.options, sort_keys=True, default=str), *structure)
    return root / package_fingerprint() / f"compiled-{experiment.policy}-{kind}"
