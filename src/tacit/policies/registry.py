"""Policies by name.  Those of the package are imported when asked for, so that ``import tacit`` stays light."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import CorruptState, InvalidInput, RecoveryWarning, TacitError
from tacit.policies import persistence
from tacit.policies.config import DEFAULT_REWARD_WINDOW, PrivateConfig, described_fields
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.snapshots import Snapshot

if TYPE_CHECKING:
    from tacit.features import Schema

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "stream-glm": "tacit.policies.stream:StreamGLM",
        "joint-glm": "tacit.policies.joint:JointGLM",
        "shuffle-glm": "tacit.policies.shuffle:ShuffleGLM",
        "rs-glinucb": "tacit.policies.baselines.rs_glinucb:RsGlinUcb",
        "b-glincb": "tacit.policies.baselines.b_glincb:BatchedGlinCB",
        "glm-ucb": "tacit.policies.baselines.glm_ucb:GlmUcb",
        "gloc": "tacit.policies.baselines.gloc:Gloc",
        "ecolog": "tacit.policies.baselines.ecolog:Ecolog",
        "ofulog+": "tacit.policies.baselines.ofulog_plus:OfulogPlus",
        "greedy-mle": "tacit.policies.baselines.greedy_mle:GreedyMLE",
        "random": "tacit.policies.baselines.uniform:UniformRandom",
        "joint-linucb": "tacit.policies.baselines.joint_linucb:JointLinUcb",
        "shuffle-linucb": "tacit.policies.baselines.shuffle_linucb:ShuffleLinUcb",
        "local-glm": "tacit.policies.baselines.local_glm:LocalGLM",
    }
)
"""The policies of the package, by module and class."""
_REGISTERED: dict[str, type[Policy]] = {}
Kind = TypeVar("Kind", bound=type[Policy])


def register_policy(kind: Kind) -> Kind:
    """Class decorator: offer a policy of one's own under its name, to everything that takes names.

    `make_policy`, `load`, ``tacit simulate --module`` and the audit then find it.  A module that is run again, as in a
    notebook, replaces what it registered before.
    """
    name = getattr(kind, "name", None)
    if not isinstance(kind, type) or not issubclass(kind, Policy) or not isinstance(name, str):
        raise InvalidInput(f"register_policy takes a subclass of tacit.Policy with a name, not {kind!r}")
    earlier = _REGISTERED.get(name)
    if name in POLICIES or (earlier is not None and earlier.__module__ != kind.__module__):
        owner = "the package" if earlier is None else earlier.__module__
        raise InvalidInput(f"the name {name!r} is taken: {owner} has a policy of that name")
    _REGISTERED[name] = kind
    return kind


def policy_names() -> tuple[str, ...]:
    """All names that `make_policy` knows, those of the package first."""
    return (*POLICIES, *_REGISTERED)


def policy_class(name: str) -> type[Policy]:
    """The class behind a policy's name."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in POLICIES:
        raise InvalidInput(
            f"policy must be one of {', '.join(policy_names())}, not {name!r}; one of your own must be registered "
            "first, by importing the module that calls tacit.register_policy"
        )
    module, _, attribute = POLICIES[name].partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def make_policy(
    name: str,
    *,
    dim: int | None = None,
    features: Schema | None = None,
    horizon: int | None = None,
    link: str = "logistic",
    base_rate: float | None = None,
    theta_bound: float = 1.0,
    reward_bound: float | None = None,
    kappa: float | None = None,
    kappa_star: float | None = None,
    reward_window: int = DEFAULT_REWARD_WINDOW,
    reward_age: int | None = None,
    seed: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rounds_per_user: int = 1,
    noise: str | None = None,
    **options: Any,
) -> Policy:
    """Make a policy, ready for its first decision.

    >>> import tacit
    >>> policy = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6, theta_bound=3.0)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.update(decision, 1.0)

    Policies
    --------
    Joint privacy, for one server that people trust: ``stream-glm`` (the one to begin with), ``joint-glm`` (the paper's
    Algorithm 2), ``joint-linucb``.  Shuffle privacy, with noise added on each device: ``shuffle-glm`` (the paper's
    Algorithm 1), ``shuffle-linucb``.  Local privacy: ``local-glm``.  Without privacy: ``greedy-mle``, ``rs-glinucb``,
    ``b-glincb``, ``glm-ucb``, ``gloc``, ``ecolog``, ``ofulog+``, ``random``.

    Further keywords are options of the policy: ``help(tacit.policy_class("stream-glm"))`` or
    ``tacit policies stream-glm`` lists them.  Private policies need ``epsilon`` and ``delta``; those without privacy
    refuse them.
    """
    arguments = {key: value for key, value in locals().items() if key not in ("name", "options")}
    given = {key: value for key, value in arguments.items() if value != _DEFAULTS[key]}
    return policy_class(name)(**given, **options)


_DEFAULTS = {key: parameter.default for key, parameter in inspect.signature(make_policy).parameters.items()}
make_policy.__doc__ = f"{inspect.getdoc(make_policy)}\n\nArguments\n---------\n{described_fields(PrivateConfig)}"


def restore(snapshot: Snapshot) -> Policy:
    """Go on from `Policy.snapshot`.  Of a private policy one only may go on: whoever calls this must see to it."""
    try:
        return policy_class(snapshot.header["policy"]).from_snapshot(snapshot)
    except (KeyError, TypeError, IndexError, ValueError, TacitError) as error:
        raise CorruptState(f"not a complete state: {error}") from error


def load(path: str | Path, *, recover: bool = False) -> Policy:
    """Go on from a saved state.  A private policy's state can be resumed once only.

    After a crash the file is stale: its policy went on, and is gone.  ``recover=True`` goes on from what was public in
    it (releases, ledger, clock, estimates) and drops everything else: raw sums, the open leaf or batch, rewards that
    were waited for.  No earlier row is then ever released again, so that it may be done any number of times, also from
    a file that cannot be written.  A warning and the privacy report say what was lost.
    """
    header, arrays = persistence.read(path, resumed_too=recover)
    try:
        policy = restore(Snapshot(header, arrays))
    except CorruptState as error:
        raise CorruptState(f"{path}: {error}") from error
    if isinstance(policy, PrivatePolicy) and recover:
        warnings.warn(policy.recover(), RecoveryWarning, stacklevel=2)
    elif isinstance(policy, PrivatePolicy):
        persistence.resume(path, header["token"])
    return policy
