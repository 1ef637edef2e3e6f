"""Filters hint: they find what was added lately, forget the rest in time, and are rarely wrong."""

import subprocess
import sys

import msgspec
import pytest

from stoker.journal.bloom_filters import Filters, FilterSettings, RotatingFilter, stable_hash

LONG = 1_000_000


def filled(count: int, capacity: int = 1_000, error_rate: float = 0.01) -> RotatingFilter:
    found = RotatingFilter(capacity, error_rate, LONG)
    for number in range(count):
        found.add(f"key {number}", 0)
    return found


def test_what_was_added_is_found():
    found = filled(1_000)
    assert all(found.might_have(f"key {number}", 0) for number in range(1_000))


def test_an_empty_filter_has_nothing():
    assert not RotatingFilter(10, 0.01, LONG).might_have("key", 0)


@pytest.mark.parametrize(("error_rate", "least", "most"), [(0.1, 500, 1_500), (0.01, 20, 250), (1e-12, 0, 0)])
def test_it_is_wrong_as_often_as_was_asked_for(error_rate: float, least: int, most: int):
    found = filled(1_000, error_rate=error_rate)
    wrong = sum(found.might_have(f"other {number}", 0) for number in range(10_000))
    assert least <= wrong <= most


def test_a_key_is_found_for_one_rotation_and_forgotten_after_two():
    found = RotatingFilter(100, 1e-9, 50)
    found.add("key", 1_000)
    assert found.might_have("key", 1_049)
    assert found.might_have("key", 1_050)
    assert found.might_have("key", 1_099)
    assert not found.might_have("key", 1_100)


def test_a_key_that_is_added_again_is_found_for_longer():
    found = RotatingFilter(100, 1e-9, 50)
    found.add("key", 0)
    found.add("key", 50)
    assert found.might_have("key", 100)
    assert not found.might_have("key", 150)


def test_a_long_silence_forgets_everything():
    found = RotatingFilter(100, 1e-9, 50)
    found.add("key", 0)
    assert not found.might_have("key", 10_000)
    assert found.rotations == 2


def test_time_that_goes_back_rotates_nothing():
    found = RotatingFilter(100, 1e-9, 50)
    found.add("key", 1_000)
    assert found.might_have("key", 0)
    assert found.rotations == 0


def test_a_full_buffer_rotates_early_and_its_keys_are_still_found():
    found = filled(10, capacity=10, error_rate=1e-9)
    assert found.rotations == 0
    found.add("one more", 0)
    assert found.rotations == 1
    assert all(found.might_have(f"key {number}", 0) for number in range(10))


def test_the_same_key_fills_a_buffer_only_once():
    found = RotatingFilter(2, 1e-9, LONG)
    for _ in range(100):
        found.add("key", 0)
    assert found.rotations == 0


def test_it_knows_since_when_it_has_forgotten_nothing():
    found = RotatingFilter(100, 1e-9, 50)
    mark = found.mark(0)
    found.add("key", 0)
    assert found.remembers(mark)
    assert found.mark(50) == mark + 1
    assert found.remembers(mark)
    found.mark(100)
    assert not found.remembers(mark)
    assert not found.might_have("key", 100)


def test_room_that_was_asked_for_keeps_it_from_rotating():
    found = RotatingFilter(10, 1e-9, LONG)
    found.make_room(500)
    for number in range(500):
        found.add(f"key {number}", 0)
    assert found.rotations == 0
    found.add("one more", 0)
    assert found.rotations == 1


def test_the_hash_is_the_same_in_every_process():
    """Golden: a filter that was saved or a test that counts errors must find the same numbers tomorrow."""
    assert stable_hash("acme\0mail\0custom_ids\0order-1") == GOLDEN
    assert stable_hash("clé") != stable_hash("cle")
    script = (
        "from stoker.journal.bloom_filters import stable_hash; print(stable_hash('acme\\0mail\\0custom_ids\\0order-1'))"
    )
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == GOLDEN


GOLDEN = 49571426039825833690799220374484750435


def test_the_hash_is_a_signed_number_of_128_bits():
    numbers = [stable_hash(str(number)) for number in range(200)]
    assert min(numbers) < 0 < max(numbers)
    assert all(-(1 << 127) <= number < 1 << 127 for number in numbers)


def test_the_three_filters_are_as_their_settings_say():
    filters = Filters(FilterSettings(ghost_ids=5, ghost_error_rate=0.5, ghost_rotate_ms=7))
    found = [(one.capacity, one.error_rate, one.rotate_ms) for one in (filters.idempotency, filters.cleanup)]
    assert found == [(1_000_000, 0.01, 1_800_000), (2_000_000, 0.01, 21_600_000)]
    assert (filters.ghost.capacity, filters.ghost.error_rate, filters.ghost.rotate_ms) == (5, 0.5, 7)


def test_settings_are_read_from_plain_data():
    found = msgspec.convert({"ghost_ids": 9}, FilterSettings)
    assert found == FilterSettings(ghost_ids=9)
    assert FilterSettings().ghost_error_rate == 1e-12
