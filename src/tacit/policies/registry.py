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
from tacit.policies.config import PrivateConfig, described_fields
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import Snapshot

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
        "adaprivate-ts": "tacit.policies.baselines.adaprivate_ts:AdaPrivateTS",
        "ldp-linucb": "tacit.policies.baselines.ldp_linucb:LdpLinUcb",
    }
)
"""The policies of the package, by module and class."""
_REGISTERED: dict[str, type[Policy]] = {}
Kind = TypeVar("Kind", bound=type[Policy])


def register_policy(kind: Kind) -> Kind:
    """Offer a policy of one's own under its name, to everything that takes names; a class decorator.

    `make_policy`, `load`, ``tacit simulate --module`` and the audit then find it.  A module that is run again, as in a
    notebook, replaces what it registered before.

    Parameters
    ----------
    kind : type
        Subclass of `Policy` with a ``name``.

    Returns
    -------
    type
        The class itself.

    Raises
    ------
    InvalidInput
        When ``kind`` is no such class, or another module has a policy of that name.

    Examples
    --------
    >>> import tacit
    >>> @tacit.register_policy
    ... class Everything(tacit.UniformRandom):
    ...     \"\"\"Chooses at random, under another name.\"\"\"
    ...
    ...     name = "everything"
    >>> tacit.make_policy("everything", dim=2).name
    'everything'
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
    """Return the class behind a policy's name.

    Parameters
    ----------
    name : str
        Name of a policy of the package, or of one that was registered.

    Returns
    -------
    type
        Subclass of `Policy`; ``config_type`` is the class of its configuration.

    Raises
    ------
    InvalidInput
        When no policy has the name.

    Examples
    --------
    >>> import tacit
    >>> tacit.policy_class("stream-glm") is tacit.StreamGLM
    True
    """
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


class _Own:
    """Stands for an argument that was not given, so that the policy's own default holds."""

    def __repr__(self) -> str:
        return "<the policy's own>"


_OWN: Any = _Own()


def make_policy(
    name: str,
    *,
    dim: int = _OWN,
    features: Schema | None = _OWN,
    horizon: int | None = _OWN,
    link: str = _OWN,
    base_rate: float | None = _OWN,
    theta_bound: float = _OWN,
    reward_bound: float | None = _OWN,
    kappa: float | None = _OWN,
    kappa_star: float | None = _OWN,
    reward_window: int = _OWN,
    reward_age: int | None = _OWN,
    explore: float = _OWN,
    seed: int | None = _OWN,
    epsilon: float = _OWN,
    delta: float | None = _OWN,
    rounds_per_user: int = _OWN,
    noise: str | None = _OWN,
    **options: Any,
) -> Policy:
    """Make a policy, ready for its first decision.

    Joint privacy, for one server that people trust: ``stream-glm`` (the one to begin with), ``joint-glm`` (the paper's
    Algorithm 2), ``joint-linucb``, ``adaprivate-ts``.  Shuffle privacy, with noise added on each device:
    ``shuffle-glm`` (the paper's Algorithm 1), ``shuffle-linucb``.  Local privacy: ``local-glm``, ``ldp-linucb``.
    Without privacy: ``greedy-mle``, ``rs-glinucb``, ``b-glincb``, ``glm-ucb``, ``gloc``, ``ecolog``, ``ofulog+``,
    ``random``.

    What is not given has the policy's own default, and the usual ones are listed below.  Private policies need
    ``epsilon`` and ``delta``; those without privacy refuse them.

    Parameters
    ----------
    name : str
        Name of the policy.
    COMMON FIELDS
    **options : Any
        Options of this policy alone: ``help(tacit.policy_class("stream-glm"))`` or ``tacit policies stream-glm`` lists
        them.

    Returns
    -------
    Policy
        An object of the class that `policy_class` gives for the name.

    Raises
    ------
    InvalidInput
        When an argument is missing, unknown or outside of its domain; the message says which, and what it is for.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6, theta_bound=3.0)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.update(decision, 1.0)
    """
    given = {key: value for key, value in locals().items() if key not in ("name", "options") and value is not _OWN}
    return policy_class(name)(**given, **options)


make_policy.__doc__ = (inspect.getdoc(make_policy) or "").replace("COMMON FIELDS", described_fields(PrivateConfig))


def restore(snapshot: Snapshot) -> Policy:
    """Go on from a snapshot of a policy.

    Of a private policy one only may go on from a snapshot, since noise drawn twice for one release is a privacy loss:
    the caller must see to it.  `load` does so for files.

    Parameters
    ----------
    snapshot : Snapshot
        What ``Policy.snapshot`` gave.

    Returns
    -------
    Policy
        The policy in the state of the snapshot.

    Raises
    ------
    CorruptState
        When the snapshot is not complete.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.make_policy("greedy-mle", dim=2, seed=1)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> tacit.restore(policy.snapshot()).decisions
    1
    """
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

    Parameters
    ----------
    path : str or Path
        File that ``Policy.save`` wrote.
    recover : bool, default False
        Whether to go on from what was public, after a crash.

    Returns
    -------
    Policy
        The policy, as it was when it was saved.

    Raises
    ------
    StateInUse
        When the state has been resumed already.
    CorruptState
        When the file does not hold a complete state.

    Examples
    --------
    >>> import tempfile, tacit
    >>> path = f"{tempfile.mkdtemp()}/policy.state"
    >>> policy = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.save(path)
    >>> resumed = tacit.load(path)
    >>> resumed.update(decision, 1.0)
    >>> resumed.decisions
    1
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
