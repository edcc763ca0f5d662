"""Algorithm 1: `shuffle-glm`."""

from tacit.policies.shuffle.policy import ShuffleConfig, ShuffleGLM

__all__ = ["ShuffleConfig", "ShuffleGLM"]
