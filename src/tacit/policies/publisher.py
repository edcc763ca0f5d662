"""Where exact sums become public: the one seam between raw numbers and what everybody may see.

A policy hands every exact value that it is about to release, together with its noise, to its ``publisher``.  The
direct one adds the two, which is the mechanism.  Another one may write down what was released, or play it back: the
audit forces the releases of one world on another to see that nothing else differs, and a service that replays its log
needs no noise at all.  What a policy does next depends on what the publisher returns, and on nothing else of the data.
"""

from __future__ import annotations

from collections.abc import Callable

from tacit.privacy.continual import Stream, close_leaf
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray


class Publisher:
    """Releases things as they are planned; subclasses watch or replace what is released."""

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        """The tick of a stream before so many decisions: close the open leaf and release its sum, if it is due."""
        return close_leaf(stream, noise, users)

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        """Release a sum (``kind`` says of what) with noise of standard deviation ``sd``."""
        return exact + noise

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        """Release the shuffled sum of users' rows, by calling ``release``."""
        return release()


DIRECT = Publisher()
"""What every policy uses unless told otherwise."""
