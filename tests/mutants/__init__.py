"""Sabotage of the package's own code: faults that are put in from outside, each to be caught by a named check.

    python -m tests.mutants                     # every check on the code as it is, then every fault
    python -m tests.mutants --only noise-halved
    python -m tests.mutants --quick             # faults alone, in half the time

`checks` holds the checks, `faults` and `faulty_steps` the faults, `mutants` says which check must find which fault.
"""
