"""Benchmarks of the embedded broker: `make bench`, or `python -m benchmarks [name ...]`.

Each figure stands beside a floor from the same run: the least work that Python must do for the same
jobs. The ratio is the result, the absolute figure is orientation. Every benchmark checks that the work was really
done. They are no tests: nothing here passes or fails by time.
"""
