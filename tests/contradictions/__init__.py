"""What the four systems that Stoker learnt from contradict themselves in, each ruled out by a test with its name.

F: flashQ, C: codeQ, B: bunqueue, Q: FastQ. A contradiction that concerns a part of Stoker which is not
built yet is named in `LATER` with that part; the test comes with it.
"""

LATER = {
    "F8": "benchmarks: only what was measured is claimed",
    "F10": "wire: frames",
    "F14": "journal: recovery restores everything that decides behaviour",
    "F15": "journal: durability levels",
    "F24": "server: listeners are independent of each other",
    "F25": "cluster: fencing and ownership of shards",
    "F26": "server: stopping",
    "F28": "benchmarks: figures in the text are those of the tables",
    "F29": "wire: codecs are compared by measuring",
    "C1": "redis: the idempotency filter only hints",
    "C2": "redis: the ghost filter only hints",
    "C3": "redis: memory of the filters",
    "C4": "redis: the cleanup filter only hints",
    "C10": "fairness: a weighted draw beside strict priorities",
    "C15": "journal: unreadable entries are kept aside, not dropped",
    "B8": "docs: what a shard is for",
    "Q4": "redis: names of keys",
    "Q11": "schedules: cron",
    "Q13": "server: entitlements",
}
