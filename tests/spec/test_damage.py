"""Known kinds of damage are refused with an error that says what and where, or have no effect; results are never wrong.

`verify` reports each of them, and the independent reader refuses what it needs.
"""

from __future__ import annotations

import resource
import time
from functools import cache

import make_damaged
import make_golden
import pytest
import read_esdb
from effort import ALL, share_of
from spec_document import ROOT
from spec_questions import Sound

import esformat

pytestmark = pytest.mark.xdist_group("damage")  # each file is read once while it is whole

NAMES = ["no-events", "one-event", "times", "integers", "nested", "zstd", "zstd-dictionary", "lz4", "indexes"]
BOMB_BYTES = 64 << 20


@cache
def _golden(name: str) -> Sound:
    return Sound((make_golden.FOLDER / f"{name}.esdb").read_bytes())


@cache
def _one() -> Sound:
    """The file of one event that forged files are made from."""
    return Sound(make_damaged.one_event())


def _assert_found(sound: Sound, damaged: bytes) -> list[esformat.EsdbError]:
    """Check that a damaged file is detected or harmless in every query, and that `verify` reports it."""
    errors = sound.errors_of(damaged)
    for error in errors:
        assert isinstance(error, esformat.CorruptSegmentError | esformat.UnsupportedVersionError)
    report = esformat.verify(esformat.BytesSource(damaged))
    assert not report.ok
    for problem in report.problems:
        assert 0 <= problem.offset <= len(damaged)
        assert "\n" not in str(problem)
    return errors


def _possible() -> list[tuple[str, str]]:
    """Each kind of damage with each file that has the blocks for it and is changed by it."""
    cases = []
    for name in NAMES:
        data = (make_golden.FOLDER / f"{name}.esdb").read_bytes()
        blocks = len(make_damaged.blocks_of(data, make_damaged.DATA))
        for how, damage in make_damaged.FOUND.items():
            if make_damaged.DATA_BLOCKS_NEEDED.get(how, 0) <= blocks and damage(data) != data:
                cases.append((how, name))
    return cases


@pytest.mark.parametrize(("how", "name"), share_of(_possible(), 2))
def test_found_damage(how, name):
    """Damage that occurs in practice is detected, with its position."""
    sound = _golden(name)
    damaged = make_damaged.FOUND[how](sound.data)
    errors = _assert_found(sound, damaged)
    for error in errors:
        assert error.offset is not None or not damaged
        assert error.path == "<bytes>"
        assert str(error).startswith("<bytes>: ")


@pytest.mark.parametrize("name", NAMES)
def test_tail_of_another_file(name):
    """Parts of two files joined in either order are not a valid file."""
    for other in NAMES:
        if other != name:
            for damaged in (
                make_damaged.tail_of(_golden(name).data, _golden(other).data),
                make_damaged.tail_of(_golden(other).data, _golden(name).data),
            ):
                report = esformat.verify(esformat.BytesSource(damaged))
                assert not report.ok


@pytest.mark.parametrize("name", ["zstd-dictionary", "indexes", "lz4"])
def test_every_pair_of_blocks_swapped(name):
    """Two blocks of one kind and length that swap places are detected by their handles."""
    sound = _golden(name)
    places = make_damaged.blocks(sound.data)
    for first in places:
        for second in places:
            if first.kind == second.kind and first.length == second.length and first.offset < second.offset:
                a, b = sound.data[first.offset : first.end], sound.data[second.offset : second.end]
                if a != b:
                    damaged = bytearray(sound.data)
                    damaged[first.offset : first.end], damaged[second.offset : second.end] = b, a
                    _assert_found(sound, bytes(damaged))


@pytest.mark.parametrize("name", NAMES)
def test_every_page_zeroed(name):
    """Each page of zeroes is detected."""
    sound = _golden(name)
    step = max(make_damaged.PAGE_BYTES, len(sound.data) // (16 if ALL else 3))
    for at in range(0, len(sound.data) - make_damaged.PAGE_BYTES, step):
        zeroed = bytearray(sound.data)
        zeroed[at : at + make_damaged.PAGE_BYTES] = bytes(make_damaged.PAGE_BYTES)
        _assert_found(sound, bytes(zeroed))


@pytest.mark.parametrize("how", sorted(make_damaged.FORGED))
def test_forged(how):
    """Bytes that no writer of this version makes are refused despite valid checksums, with limited time and memory."""
    sound = _one()
    damaged = make_damaged.FORGED[how](sound.data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    errors = _assert_found(sound, damaged)
    assert errors, "nothing was refused"
    with pytest.raises((read_esdb.Corrupt, read_esdb.TooNew)):
        _read_independently(damaged)
    assert time.process_time() - start < 30
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < BOMB_BYTES


def _read_independently(data: bytes) -> list[str]:
    file = read_esdb.File(data)
    file.facts()
    return [read_esdb.line(event) for event in file.events()]


@pytest.mark.parametrize("how", ["newer_major", "unknown_codec"])
def test_newer_files_ask_for_a_newer_reader(how):
    """A feature that only a newer reader supports is not reported as damage."""
    unsupported = [
        error
        for error in _one().errors_of(make_damaged.FORGED[how](_one().data))
        if isinstance(error, esformat.UnsupportedVersionError)
    ]
    assert unsupported
    assert all(error.hint for error in unsupported)


@pytest.mark.parametrize("how", sorted(make_damaged.ALLOWED))
def test_what_other_writers_may_write(how):
    """A later minor version with an unknown block kind, and other metadata, is read as before."""
    sound = _one()
    other = make_damaged.ALLOWED[how](sound.data)
    assert other != sound.data
    with esformat.open(esformat.BytesSource(other)) as segment:
        events = list(segment.scan())
    with esformat.open(esformat.BytesSource(sound.data)) as segment:
        assert events == list(segment.scan())
    assert _read_independently(other) == _read_independently(sound.data)
    assert esformat.verify(esformat.BytesSource(other)).problems == ()


def test_committed_files():
    """The damaged files in the repository equal their generator's output; `verify` judges them as their names say."""
    folder = ROOT / "fixtures" / "damaged"
    made = make_damaged.files()
    assert {path.name for path in folder.iterdir()} == set(made)
    for name, data in made.items():
        assert (folder / name).read_bytes() == data, name
        sound = name.removesuffix(".esdb") in {"sound", *make_damaged.ALLOWED}
        assert esformat.verify(folder / name).ok == sound
