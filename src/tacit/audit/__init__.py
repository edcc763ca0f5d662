"""An audit that can fail: replay of neighbours, attacks on mechanisms and policies, statistics of what they find.

    from tacit.audit.evidence import perform
    from tacit.audit.tasks import tasks_for

    rows = [row for task in tasks_for(["tree"], epsilons=[1.0], delta=1e-5) for row in perform(task)]

docs/guides/audit.md says how to read what it finds, and what it cannot find.
"""
