"""What the four systems that Stoker learnt from contradict themselves in, each ruled out by a test with its name.

F: flashQ, C: codeQ, B: bunqueue, Q: FastQ. A contradiction that concerns a part of Stoker which is not
built yet is named in `LATER` with that part; the test comes with it.
"""

LATER = {
    "F8": "benchmarks: only what was measured is claimed",
    "F10": "wire: frames",
    "F24": "server: listeners are independent of each other",
    "F25": "cluster: fencing and ownership of shards",
    "F26": "server: stopping",
    "F28": "benchmarks: figures in the text are those of the tables",
    "F29": "wire: codecs are compared by measuring",
    "C10": "fairness: a weighted draw beside strict priorities",
    "B8": "docs: what a shard is for",
    "Q4": "redis: names of keys",
    "Q11": "schedules: cron",
}
