"""The lake: the history of a queue as Parquet, in three layers.

    bronze   every event as it was, exactly once
    silver   one row for each attempt, one for each job that ended
    gold     counts and sketches by tenant, queue, kind of job and minute

`running.py` fills it, `reading.py` reads it, `compaction.py` merges many files into few.
"""
