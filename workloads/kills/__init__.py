"""kill -9 under load, again and again: `python -m workloads.kills`."""
