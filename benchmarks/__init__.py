"""Measurements of quality and speed, ours beside our peers'; see docs/benchmarks.

Not part of the installed package. Run ``python -m benchmarks --help`` in the root of the repository.
"""
