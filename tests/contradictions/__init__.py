"""What the four systems that Stoker learnt from contradict themselves in, each ruled out by a test with its name.

F: flashQ, C: codeQ, B: bunqueue, Q: FastQ. A contradiction that concerns a part of Stoker which is not
built yet is named in `LATER` with that part; the test comes with it.
"""

LATER = {
    "C10": "fairness: a weighted draw beside strict priorities",
}
