"""Everything that a policy of one's own needs, in one place (CONTRIBUTING.md shows it in use).

A module outside of the package that registers a policy, a link or an environment gets everything that the package's
own have: `tacit.make_policy`, save and load, ``tacit simulate --module`` with parallel runs, journal and plots,
``tacit bench regret``, and for private policies ``tacit audit``.
"""

from tacit._compile import kernel
from tacit._validate import finite, nonnegative, positive, probability, share
from tacit.environments import NEVER, Block, register_arrivals, register_environment
from tacit.glm.links import ClickLink, CompiledLink, Link, LinkKernels, register_link
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_arm
from tacit.policies.batch_policy import BatchPolicy
from tacit.policies.config import Config, PrivateConfig, at_least, configuration, one_of, option, truth
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import register_policy
from tacit.policies.row_policy import RowPolicy
from tacit.policies.steps import close_stream, register_steps
from tacit.privacy.continual import (
    ContinualRelease,
    Stream,
    contribute_outer,
    contribute_vector,
    plan_release,
    released_variance,
)
from tacit.privacy.noise import NoiseSource
from tacit.typing import Count, FloatArray, IntArray, Number, Secret, count, number

__all__ = [
    "NEVER",
    "BatchPolicy",
    "Block",
    "ClickLink",
    "CompiledLink",
    "Config",
    "ContinualConfig",
    "ContinualPolicy",
    "ContinualRelease",
    "Count",
    "FloatArray",
    "IntArray",
    "Link",
    "LinkKernels",
    "NoiseSource",
    "Number",
    "Policy",
    "PrivateConfig",
    "PrivatePolicy",
    "RowPolicy",
    "Secret",
    "Stream",
    "at_least",
    "close_stream",
    "configuration",
    "contribute_outer",
    "contribute_vector",
    "count",
    "dot",
    "finite",
    "kernel",
    "nonnegative",
    "number",
    "one_of",
    "option",
    "plan_release",
    "positive",
    "probability",
    "register_arrivals",
    "register_environment",
    "register_link",
    "register_policy",
    "register_steps",
    "released_variance",
    "remember_arm",
    "share",
    "truth",
]
