"""Algorithm 2: `joint-glm`."""

from tacit.policies.joint.policy import JointConfig, JointGLM

__all__ = ["JointConfig", "JointGLM"]
