"""The exports and signatures of `esformat`, so that they change only on purpose."""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version

import pytest

import esformat

NAMES = [
    "BytesSource", "ChecksumMismatchError", "ClosedError", "Collection", "CollectionScan", "CollectionSpace",
    "CorruptSegmentError", "CountingSource", "Counts", "EsdbError", "Event", "FileSource", "InvalidEventError",
    "KnownTemplates", "PayloadField", "PayloadFields", "Problem", "Report", "Scan", "Segment", "SegmentChangedError",
    "Source", "Space", "SpaceNotFoundError", "UnknownIndexError", "UnsupportedVersionError", "UsageError", "Writer",
    "__version__", "create", "open", "open_many", "set_cache_bytes", "verify",
]  # fmt: skip

SCAN = "*, grouping=None, start=None, end=None, reverse=False, limit=None, columns=None"
SIGNATURES = {
    "create": (
        "path, *, indexes=(), schema=None, keys='text', codec='zstd', level=None, frame_bytes=None, "
        "templates=None, properties=None, "
        "overwrite=False, threads=None, memory=None, temp_dir=None, storage_options=None"
    ),
    "open": "path, *, cache_bytes=..., storage_options=None",
    "set_cache_bytes": "cache_bytes",
    "open_many": "targets, *, max_open=None, cache_bytes=..., storage_options=None",
    "Collection.find": "self, space",
    "Collection.spaces": "self, prefix=None",
    "Collection.index_values": "self, name",
    "Collection.scan": f"self, {SCAN}",
    "Collection.scan_index": f"self, name, value=None, {SCAN}",
    "CollectionSpace.scan": f"self, {SCAN}",
    "CollectionSpace.scan_index": f"self, name, value=None, {SCAN}",
    "Writer.add": "self, space, data=None, *, timestamp, grouping=None, indexes=None, columns=None",
    "Writer.add_table": "self, table",
    "Writer.finish": "self",
    "Writer.abort": "self",
    "Segment.find": "self, space",
    "Segment.__getitem__": "self, space",
    "Segment.__contains__": "self, space",
    "Segment.may_contain": "self, space",
    "Segment.spaces": "self, prefix=None",
    "Segment.index_values": "self, name",
    "Segment.info": "self",
    "Segment.close": "self",
    "Segment.dataset": "self, *, dictionaries=False",
    "Segment.sql": "self, statement, parameters=None",
    "Collection.sql": "self, statement, parameters=None",
    "Segment.scan": f"self, {SCAN}",
    "Segment.scan_index": f"self, name, value=None, {SCAN}",
    "Space.scan": f"self, {SCAN}",
    "Space.scan_index": f"self, name, value=None, {SCAN}",
    "Space.groupings": "self",
    "Scan.batches": "self",
    "Scan.to_table": "self, *, fields=()",
    "Scan.to_pandas": "self, *, fields=(), **options",
    "Scan.to_reader": "self",
    "Scan.count": "self",
    "Scan.payload_fields": "self",
    "Scan.__arrow_c_stream__": "self, requested_schema=None",
}
FACTS = {
    "Segment": [
        "path",
        "size_bytes",
        "num_events",
        "num_spaces",
        "schema",
        "indexes",
        "properties",
        "min_timestamp",
        "max_timestamp",
    ],
    "Space": ["key", "key_bytes", "num_events"],
    "Scan": ["schema", "column_names"],
    "Event": ["space", "grouping", "timestamp", "time", "data", "indexes", "columns"],
    "Writer": ["num_events"],
}


def test_exported_names():
    """Each name is exported, and no others are."""
    assert sorted(esformat.__all__) == sorted(NAMES)
    assert all(hasattr(esformat, name) for name in NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """Signatures have the right names, order, defaults and keyword-only arguments."""
    verb = esformat
    for part in name.split("."):
        verb = getattr(verb, part)
    shown = []
    parameters = inspect.signature(verb).parameters.values()
    for at, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            p.kind is p.KEYWORD_ONLY for p in list(parameters)[:at]
        ):
            shown.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        default = "=..." if default and parameter.name == "cache_bytes" else default  # its size may change
        shown.append(("**" if parameter.kind is parameter.VAR_KEYWORD else "") + parameter.name + default)
    assert ", ".join(shown) == SIGNATURES[name]


@pytest.mark.parametrize("name", FACTS)
def test_facts(name, write):
    """Public attributes exist."""
    segment = write([("a", b"", 1)])
    thing = {
        "Segment": segment,
        "Space": segment["a"],
        "Scan": segment.scan(),
        "Event": next(iter(segment.scan())),
        "Writer": esformat.Writer,
    }[name]
    assert [fact for fact in FACTS[name] if not hasattr(thing, fact)] == []


def test_everything_public_has_a_docstring():
    """Every export, public method and property has a docstring."""
    for name in set(NAMES) - {"__version__"}:
        thing = getattr(esformat, name)
        assert inspect.getdoc(thing), name
        for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not attribute.startswith("_") and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{attribute}"


def test_version():
    """The version is that of the installed package, if it is installed."""
    try:
        assert version("esformat") == esformat.__version__
    except PackageNotFoundError:
        assert esformat.__version__.count(".") == 2
