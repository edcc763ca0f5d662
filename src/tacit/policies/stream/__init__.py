"""`stream-glm`: one stream, no optimizer calls."""

from tacit.policies.stream.policy import StreamConfig, StreamGLM

__all__ = ["StreamConfig", "StreamGLM"]
