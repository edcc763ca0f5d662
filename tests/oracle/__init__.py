"""What every policy did on recorded seeds, and whether it still does.

``rows.json`` holds arms, regrets, integer sums and ledger lengths of all policies, as the last tree with compiled
kernels played them.  ``python -m tests.oracle compare`` plays the cases again and reports every difference;
``tests/test_oracle.py`` does so for two seeds of the smaller cases.  A difference that is meant has its reason in
``explained.py``.
"""
