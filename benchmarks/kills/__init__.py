"""kill -9 under load, again and again: `python -m benchmarks.kills`."""
