"""Spark executors as workers: jobs from a queue, through any DataFrame code, and back as results.

Jobs are claimed by name. Repeating a claim brings the same jobs, so Spark may run a task as often as it likes. The
outcomes go to the driver, which settles the jobs: tasks never settle anything.
"""
