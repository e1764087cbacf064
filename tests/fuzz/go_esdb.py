"""Files of the Go ESDB: any bytes are read in full, or refused with an EsdbError.

Each input is read twice, the second time with every checksum accepted, so that changes reach the decoders.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from esformat import BytesSource, CorruptSegmentError, UnsupportedVersionError, UsageError, customerio
from esformat.customerio import sst

REFUSALS = (CorruptSegmentError, UnsupportedVersionError)
FIXTURES = Path(__file__).parents[2] / "fixtures" / "go_esdb"

_check_crc = sst.check_crc


def seeds() -> list[bytes]:
    """A small archive, one with spaces in input order, and streams, open and closed."""
    found = [(FIXTURES / "small.esdb").read_bytes(), (FIXTURES / "stream_open.esdbstream").read_bytes()[:1000]]
    with tempfile.TemporaryDirectory() as folder:
        for number, options in enumerate(({"kind": "stream"}, {"kind": "stream", "closed": False}, {})):
            path = Path(folder) / str(number)
            with customerio.create(path, **options) as writer:
                for at in range(6):
                    keys = {} if options else {"space": b"\xff%d" % (at % 2), "timestamp": at * 1_000_000}
                    keys |= {} if options else {"grouping": "ab"[at % 2]}
                    writer.add(data=b"x" * 40 * at + b"y", indexes={"t": "uv"[at % 2], "n": f"{at}"}, **keys)
            found.append(path.read_bytes())
    return found


def one_input(data: bytes) -> None:
    """Open `data` as a file of the Go ESDB and run all queries. Only errors about the bytes are allowed."""
    _read(data)
    sst.check_crc = lambda data, stored, offset: None
    try:
        _read(data)
    finally:
        sst.check_crc = _check_crc


def _read(data: bytes) -> None:
    try:
        read_all(data)
    except REFUSALS:
        return
    except UsageError:
        if not data.startswith(b"\x89ESDB"):  # a segment is the wrong kind of file, not a broken one
            raise


def read_all(data: bytes) -> None:
    """Call every method. Their results must agree with each other."""
    with customerio.open(BytesSource(data)) as file:
        events = list(file.scan())
        assert file.num_events == len(events)
        newest = events[::-1]
        if file.kind == "archive":  # ties keep their order of addition
            newest = sorted(events, key=lambda event: (event.space, event.grouping, event.timestamp), reverse=True)
        assert list(file.scan(reverse=True)) == newest
        for name in file.indexes:
            for value, count in file.index_values(name).items():
                assert file.scan_index(name, value).count() == count
        for key, count in file.spaces().items():
            space = file[key]
            assert space.scan().count() == count == sum(space.groupings()[name] for name in space.groupings())
        file.info()
