"""Algorithm 2: `joint-glm`."""

from tacit.policies.joint.policy import JointGLM, JointOptions

__all__ = ["JointGLM", "JointOptions"]
