"""Everything that a policy, link or environment outside of the package needs (CONTRIBUTING.md shows it in use).

A module outside of the package that registers one gets everything that the package's own have: `tacit.make_policy`,
save and load, ``tacit simulate --module`` with parallel runs, journal and plots, ``tacit bench regret``, and for
private policies ``tacit audit``.
"""

from tacit._validate import finite, nonnegative, positive, probability, share
from tacit.environments import NEVER, Block, register_arrivals, register_environment
from tacit.glm.links import ClickLink, Link, register_link
from tacit.glm.rows import RowBuffer, append_rows, make_room, make_rows
from tacit.linalg.packing import packed_outers, packed_size, unpacked
from tacit.policies.admission import chosen_rows, remember_rows
from tacit.policies.batch_policy import BatchPolicy
from tacit.policies.config import Config, PrivateConfig, at_least, configuration, one_of, option, truth
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import register_policy
from tacit.policies.steps import Steps
from tacit.policies.sum_policy import Contribution, SumPolicy, standard_normals
from tacit.privacy.continual import (
    ContinualRelease,
    Stream,
    contribute,
    contribute_outer,
    plan_release,
    released_variance,
)
from tacit.privacy.noise import NoiseSource
from tacit.typing import Count, FloatArray, IntArray, Scalar, Secret, count, scalar

__all__ = [
    "NEVER",
    "BatchPolicy",
    "Block",
    "ClickLink",
    "Config",
    "ContinualConfig",
    "ContinualPolicy",
    "ContinualRelease",
    "Contribution",
    "Count",
    "FloatArray",
    "IntArray",
    "Link",
    "NoiseSource",
    "Policy",
    "PrivateConfig",
    "PrivatePolicy",
    "RowBuffer",
    "Scalar",
    "Secret",
    "Steps",
    "Stream",
    "SumPolicy",
    "append_rows",
    "at_least",
    "chosen_rows",
    "configuration",
    "contribute",
    "contribute_outer",
    "count",
    "finite",
    "make_room",
    "make_rows",
    "nonnegative",
    "one_of",
    "option",
    "packed_outers",
    "packed_size",
    "plan_release",
    "positive",
    "probability",
    "register_arrivals",
    "register_environment",
    "register_link",
    "register_policy",
    "released_variance",
    "remember_rows",
    "scalar",
    "share",
    "standard_normals",
    "truth",
    "unpacked",
]
