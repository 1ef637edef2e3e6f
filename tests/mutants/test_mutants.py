"""The suite has teeth: bugs are planted into it, and the harness whose business they are must notice each of them.

bug -> harness that notices it

    reply before commit                                         -> killed
    fsync reply without flush                                   -> weak moments
    reply before a commit that comes later                      -> committed later
    read does not wait for a commit that comes later            -> committed later
    durable mark before the flush                               -> weak moments
    turn torn across shards                                     -> weak moments
    ids given again after a power cut                           -> weak moments
    closing moves the log unflushed                             -> weak moments
    manifest moved into place unflushed                         -> weak moments
    new log file not flushed                                    -> power cuts
    name of a new log file not flushed                          -> weak moments
    log file does not say what it follows                       -> weak moments
    log file sealed without a flush                             -> weak moments
    checkpoint without position                                 -> found again
    row applied twice                                           -> found again
    file dropped that something live refers to                  -> found again
    deferred rows forgotten when they are written               -> found again
    deferred rows forgotten at rotation                         -> found again
    lease by the clock on the wall                              -> found again
    wall time instead of journaled time after a restart         -> set back
    stored batch read from the wrong place                      -> power cuts
    timer not armed again after load                            -> saving
    message taken twice                                         -> redelivered
    stage published twice after a restart                       -> found again
    token not compared                                          -> reference
    retry keeps the old token                                   -> reference
    attempts not counted at delivery                            -> reference
    counter missed on cancel                                    -> reference
    group not freed when a lease ends                           -> restarted
    unique key released at the start                            -> invariants
    tenant not compared                                         -> reference
    rate limit off by one                                       -> reference
    lease ends a millisecond late                               -> reference
    quick way forgets a counter                                 -> replay
    pause forgotten by a checkpoint                             -> checkpoints
    going on after a write that failed                          -> nth fault
    slots counted from the clock                                -> slots
    slot pushed again after a restart                           -> slots
    next slot not armed again after load                        -> slots
    overlap not looked at                                       -> reference
    workers counted that were there long ago                    -> reference
    missed slots made up for one too many                       -> reference
    step let go whatever came of the one before it              -> flows
    failure stops at the next step                              -> flows
    retry leaves those waiting who failed with another          -> flows
    message of another shard taken again                        -> between shards
    what is heard too early is forgotten                        -> between shards
    pushed workflow wakes nobody                                -> wakes
    message of another shard wakes nobody                       -> wakes
    message for another process is not sent                     -> wakes elsewhere
    pushed job wakes nobody                                     -> wakes
    pushed batch wakes nobody                                   -> wakes
    job that may start wakes nobody                             -> wakes
    batch whose delay is over wakes nobody                      -> wakes
    step that is let go wakes nobody                            -> wakes
    freed slot wakes nobody                                     -> wakes
    slot freed with a result wakes nobody                       -> wakes
    slots freed by a batch wake nobody                          -> wakes
    freed group wakes nobody                                    -> wakes
    limit that was changed wakes nobody                         -> wakes
    waiters lost when a queue is obliterated                    -> wakes
    end of a job not told to those who wait for it              -> wakes
    event not told to those who wait for it                     -> wakes
    waiting pull does not look for the next token               -> wakes
    token that is back wakes nobody                             -> wakes
    timekeeper not told of the token that a held pull waits for -> wakes
    timekeeper of a server not told of a deadline               -> wakes
    timekeeper of an embedded broker not told of a deadline     -> wakes
    job lost of a pull that is given up before its turn ends    -> given up
    reply on its way to a client that has given up is forgotten -> given up
    worker does not break off its pull for a token              -> rate of a worker
    worker takes a token twice                                  -> rate of a worker
    push sent again without a name                              -> lost answers
    settled passes an open number                               -> lossy network
    answers forgotten that are not settled                      -> lossy network
    number of a gathered push not recorded                      -> gathered
    numbers of gathered pushes recorded before their jobs       -> gathered
    forked child keeps its parent's name                        -> forked
    push not sent again                                         -> shared
    lease ends before its time                                  -> histories
"""

import re
import traceback

import pytest

from tests.mutants.bugs import BUGS, Bug
from tests.mutants.harnesses import HARNESSES, Noticed
from tests.mutants.planting import Edit, function_at, planted_here, planted_in_children


def complaint(bug: Bug) -> str:
    """What its harness says of a bug; nothing if it does not notice."""
    harness = HARNESSES[bug.harness]
    planted = planted_in_children if harness.in_children else planted_here
    try:
        with planted(bug.edits):
            harness.run()
    except Noticed as error:
        return "".join(traceback.format_exception(error))
    return ""


@pytest.mark.parametrize("name", HARNESSES)
def test_without_a_bug_a_harness_is_content(name: str):
    """Otherwise it proves nothing that it complains."""
    HARNESSES[name].run()


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in BUGS])
def test_a_bug_is_noticed(bug: Bug):
    said = complaint(bug)
    assert said, f"the bug {bug.name!r} survived the harness {bug.harness!r}"
    assert re.search(bug.words, said, re.DOTALL), (
        f"{bug.harness!r} complains of something else than {bug.name!r}:\n{said}"
    )


def test_every_harness_has_a_bug_to_notice():
    assert {bug.harness for bug in BUGS} == HARNESSES.keys()


def test_the_table_is_complete():
    assert __doc__ is not None
    rows = [line.split(" -> ") for line in __doc__.splitlines() if line.startswith("    ")]
    assert [[cell.strip() for cell in row] for row in rows] == [[bug.name, bug.harness] for bug in BUGS]


def test_a_bug_whose_place_is_gone_cannot_be_planted():
    edit = Edit("engine.shard:Shard.emit", "no such text", "")
    with pytest.raises(AssertionError, match="cannot be planted any more"), planted_here([edit]):
        pass


def test_a_bug_is_taken_back():
    edit = Edit("engine.shard:Shard.emit", "self.records.append(record)", "pass")
    before = function_at(edit.where).__code__
    with planted_here([edit]):
        assert function_at(edit.where).__code__ is not before
    assert function_at(edit.where).__code__ is before
