"""The lake: what happened in a queue, kept as Parquet in three layers.

    bronze   every event as it was, exactly once
    silver   one row for each attempt, one for each job that ended
    gold     counts and sketches by tenant, queue, kind of job and minute

`running.py` fills it, `reading.py` reads it, `compaction.py` makes few files of many.
"""
