"""An audit that can fail: replay of neighbours, statistics of attacks, sabotage.

    from tacit.audit import evidence
    rows = [row for task in evidence.tasks_for(["tree"], epsilons=[1.0], delta=1e-5) for row in evidence.perform(task)]

docs/guides/audit.md says how to read what it finds, and what it cannot find.
"""
