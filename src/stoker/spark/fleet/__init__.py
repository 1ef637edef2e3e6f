"""Spark executors as workers: jobs out of a queue, through any DataFrame code, and back as results.

Jobs are claimed by name. A claim that is asked for again brings the same jobs, so Spark may run a task as often as it
likes. What the jobs became comes back to the driver, and only there they are settled: no task ever settles anything.
"""
