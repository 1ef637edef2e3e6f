"""Benchmarks of the embedded broker: `make bench`, or `python -m benchmarks [name ...]`.

Each figure has a floor from the same run: the least work that Python must do for the same jobs. The ratio is the
result, the absolute figure is for orientation. Every benchmark checks that the work was really done. These are not
tests: nothing here passes or fails by time.
"""
