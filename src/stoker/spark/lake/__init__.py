"""The lake: the history of a queue as Delta tables, in three layers.

    bronze   every event as it was, exactly once
    silver   one row for each attempt, one for each job that ended
    gold     counts and sketches by tenant, queue, kind of job and minute

Each layer is one or more Delta tables. `running.py` fills them, `reading.py` reads them, `compaction.py`, `upkeep.py`
and `forgetting.py` keep them small, and `convert.py` converts lakes of earlier releases.
"""
