"""A process that runs out of descriptors: the log goes on, and what needs new files waits until there are some."""

from tests.crash.zygote import the_zygote
from tests.faults.roles import Starved, starve
from tests.faults.support import fresh_directory, opened


def test_the_broker_survives_a_lack_of_descriptors():
    """Others take every descriptor that becomes free: nothing is refused, and upkeep goes on when they are back."""
    with fresh_directory() as path:
        with the_zygote().fork(starve, str(path), True) as child:
            found = child.receive()
            assert isinstance(found, Starved)
            assert not found.refused
            assert found.stopped == ""
            assert found.files > found.files_meanwhile
            child.kill()
        assert len(opened(path).jobs) == found.pushed


def test_the_journal_has_descriptors_of_its_own():
    """All others are taken and stay taken: files are finished and read all the same."""
    with fresh_directory() as path:
        with the_zygote().fork(starve, str(path), False) as child:
            found = child.receive()
            assert isinstance(found, Starved)
            assert not found.refused
            assert found.stopped == ""
            assert found.files_meanwhile > found.files_before
            assert found.read, "also files that were never read before"
            child.kill()
        assert len(opened(path).jobs) == found.pushed
