"""The contracts of policies and links, for the tests of a new one.

`check_policy` and `check_link` raise one `AssertionError` that tells of all faults; `policy_checks` and `link_checks`
list the requirements, for a test of each.  Nothing here needs pytest.
"""

from tacit.testing.links import check_link, link_checks
from tacit.testing.policies import check_policy, policy_checks

if not __debug__:
    raise ImportError("tacit.testing checks by assertions, which python -O leaves out: run it without -O")

__all__ = ["check_link", "check_policy", "link_checks", "policy_checks"]
