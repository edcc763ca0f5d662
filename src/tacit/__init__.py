"""Contextual bandits that learn from people without exposing them.

Begin with `make_policy`, or with a policy's class and its configuration; `open_policy` keeps one on the disk.

Examples
--------
>>> import tacit
>>> policy = tacit.StreamGLM(tacit.StreamConfig(dim=2, epsilon=1.0, delta=1e-6, theta_bound=3.0))
>>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
>>> policy.update(decision, 1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit.environments import register_environment
    from tacit.glm.links import register_link
    from tacit.policies.baselines.adaprivate_ts import AdaPrivateConfig, AdaPrivateTS
    from tacit.policies.baselines.b_glincb import BatchedGlinCB, BatchedGlinConfig
    from tacit.policies.baselines.ecolog import Ecolog, EcologConfig
    from tacit.policies.baselines.glm_ucb import GlmUcb, GlmUcbConfig
    from tacit.policies.baselines.gloc import Gloc, GlocConfig
    from tacit.policies.baselines.greedy_mle import GreedyConfig, GreedyMLE
    from tacit.policies.baselines.joint_linucb import JointLinConfig, JointLinUcb
    from tacit.policies.baselines.ldp_linucb import LdpLinConfig, LdpLinUcb
    from tacit.policies.baselines.local_glm import LocalConfig, LocalGLM
    from tacit.policies.baselines.ofulog_plus import OfulogConfig, OfulogPlus
    from tacit.policies.baselines.rs_glinucb import RsConfig, RsGlinUcb
    from tacit.policies.baselines.shuffle_linucb import ShuffleLinConfig, ShuffleLinUcb
    from tacit.policies.baselines.uniform import UniformRandom
    from tacit.policies.config import Config, PrivateConfig
    from tacit.policies.decision import Decision
    from tacit.policies.joint import JointConfig, JointGLM
    from tacit.policies.policy import Policy
    from tacit.policies.private_policy import PrivatePolicy
    from tacit.policies.registry import load, make_policy, policy_class, register_policy, restore
    from tacit.policies.shuffle import ShuffleConfig, ShuffleGLM
    from tacit.policies.stream import StreamConfig, StreamGLM
    from tacit.service.durable import DurablePolicy, open_policy

    open = open_policy

__all__ = [
    "AdaPrivateConfig",
    "AdaPrivateTS",
    "BatchedGlinCB",
    "BatchedGlinConfig",
    "Config",
    "Decision",
    "DurablePolicy",
    "Ecolog",
    "EcologConfig",
    "GlmUcb",
    "GlmUcbConfig",
    "Gloc",
    "GlocConfig",
    "GreedyConfig",
    "GreedyMLE",
    "JointConfig",
    "JointGLM",
    "JointLinConfig",
    "JointLinUcb",
    "LdpLinConfig",
    "LdpLinUcb",
    "LocalConfig",
    "LocalGLM",
    "OfulogConfig",
    "OfulogPlus",
    "Policy",
    "PrivateConfig",
    "PrivatePolicy",
    "RsConfig",
    "RsGlinUcb",
    "ShuffleConfig",
    "ShuffleGLM",
    "ShuffleLinConfig",
    "ShuffleLinUcb",
    "StreamConfig",
    "StreamGLM",
    "UniformRandom",
    "__version__",
    "load",
    "make_policy",
    "open_policy",
    "policy_class",
    "register_environment",
    "register_link",
    "register_policy",
    "restore",
]

_HOMES = {
    "tacit.environments": ("register_environment",),
    "tacit.glm.links": ("register_link",),
    "tacit.policies.baselines.adaprivate_ts": ("AdaPrivateConfig", "AdaPrivateTS"),
    "tacit.policies.baselines.b_glincb": ("BatchedGlinCB", "BatchedGlinConfig"),
    "tacit.policies.baselines.ecolog": ("Ecolog", "EcologConfig"),
    "tacit.policies.baselines.glm_ucb": ("GlmUcb", "GlmUcbConfig"),
    "tacit.policies.baselines.gloc": ("Gloc", "GlocConfig"),
    "tacit.policies.baselines.greedy_mle": ("GreedyConfig", "GreedyMLE"),
    "tacit.policies.baselines.joint_linucb": ("JointLinConfig", "JointLinUcb"),
    "tacit.policies.baselines.ldp_linucb": ("LdpLinConfig", "LdpLinUcb"),
    "tacit.policies.baselines.local_glm": ("LocalConfig", "LocalGLM"),
    "tacit.policies.baselines.ofulog_plus": ("OfulogConfig", "OfulogPlus"),
    "tacit.policies.baselines.rs_glinucb": ("RsConfig", "RsGlinUcb"),
    "tacit.policies.baselines.shuffle_linucb": ("ShuffleLinConfig", "ShuffleLinUcb"),
    "tacit.policies.baselines.uniform": ("UniformRandom",),
    "tacit.policies.config": ("Config", "PrivateConfig"),
    "tacit.policies.decision": ("Decision",),
    "tacit.policies.joint": ("JointConfig", "JointGLM"),
    "tacit.policies.policy": ("Policy",),
    "tacit.policies.private_policy": ("PrivatePolicy",),
    "tacit.policies.registry": ("load", "make_policy", "policy_class", "register_policy", "restore"),
    "tacit.policies.shuffle": ("ShuffleConfig", "ShuffleGLM"),
    "tacit.policies.stream": ("StreamConfig", "StreamGLM"),
    "tacit.service.durable": ("DurablePolicy", "open_policy"),
}
"""Modules that are imported when one of their names is first used: ``import tacit`` and ``tacit --help`` stay fast."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on its first use; ``open`` is an alias of `open_policy`."""
    wanted = "open_policy" if name == "open" else name
    if wanted not in _HOME_OF:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME_OF[wanted]), wanted)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, "open"})
