"""Algorithm 1: `shuffle-glm`."""

from tacit.policies.shuffle.policy import ShuffleGLM, ShuffleOptions

__all__ = ["ShuffleGLM", "ShuffleOptions"]
