"""Payloads that lie in the journal: what is read ahead, and what counts as handed out."""

from pathlib import Path

import stoker
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared_directory import SharedBroker
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.read_ahead import BYTES_MAX, OBJECT_BYTES, ReadAhead
from stoker.model.ids import shard_for

JOBS = 100
SHARD = shard_for("default", "q", 16)


def test_a_record_is_handed_out_when_none_of_its_jobs_waits_any_more(tmp_path: Path):
    """One job that overtakes its batch does not keep the batch from being read ahead."""
    queue = stoker.connect(f"sqlite:///{tmp_path}/data", settings=LocalSettings(memory_bytes_max=100_000))
    assert isinstance(queue.broker, SharedBroker)
    broker = queue.broker.owned
    assert broker is not None
    assert isinstance(broker.store, DirectoryStore)
    ghosts = broker.store.journal.ahead.ghosts
    assert ghosts is not None
    payloads = [b"%0500d" % number for number in range(JOBS)]
    ids = queue.push_batch("q", payloads).ids
    assert broker.runtime.memory.is_spilling
    record = f"{SHARD}:{broker.runtime.journal.last(SHARD)}"
    queue.change_priority(ids[4], 1)
    early = queue.pull("q")
    assert (list(early.ids), list(early.payloads)) == ([ids[4]], [payloads[4]])
    assert not ghosts.might_have(record, 0)
    rest = queue.pull("q", JOBS)
    assert list(rest.payloads) == payloads[:4] + payloads[5:]
    assert ghosts.might_have(record, 0)
    queue.close()


class Row:
    """A record with one payload."""

    size = BYTES_MAX // 3 - OBJECT_BYTES

    def payloads(self, sequence: int) -> list[bytes]:
        return [b"%d" % sequence]


def test_what_was_asked_for_lately_stays_in_memory():
    ahead = ReadAhead(lambda shard, sequence: Row(), lambda shard, sequence: True)  # type: ignore[arg-type,return-value]
    for sequence in (1, 2, 3, 1, 4):
        assert ahead.payloads(0, sequence) == [b"%d" % sequence]
    assert (ahead.hits, ahead.misses) == (1, 4)
    ahead.payloads(0, 1)
    assert (ahead.hits, ahead.misses) == (2, 4)
    ahead.payloads(0, 2)
    assert (ahead.hits, ahead.misses) == (2, 5), "the second was used least lately, and made room for the fourth"
