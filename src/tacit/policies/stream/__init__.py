"""`stream-glm`: one stream, no optimizer calls."""

from tacit.policies.stream.policy import StreamGLM, StreamOptions

__all__ = ["StreamGLM", "StreamOptions"]
