"""Access to stores: fsspec's options, files and paths, and the spellings of Azure's addresses."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import esformat
from esformat import tools
from esformat.io import location
from esformat.io.location import locate
from esformat.io.store import ArrowStore, FsspecStore, StoredAt


class _Guarded(MemoryFileSystem):
    """A store that requires a key, with its own protocol and files."""

    protocol = "guarded"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self, key: str | None = None, **options: Any) -> None:
        if key != "sesame":
            raise ValueError("no such key")
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("guarded://"))
        return stripped


OPTIONS = {"key": "sesame"}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    fsspec.register_implementation("guarded", _Guarded, clobber=True)


def _write(path, *, spaces=("a", "b")):
    with esformat.create(path, storage_options=OPTIONS, indexes=["type"], overwrite=True) as writer:
        for space in spaces:
            writer.add(space, b"", timestamp=1, indexes={"type": "page"})


def test_every_verb_takes_them(tmp_path):
    """Everything that takes a location takes storage options; without them the store refuses."""
    _write("guarded://one/a.esdb")
    _write("guarded://one/b.esdb", spaces=("c",))
    with pytest.raises(esformat.UsageError, match="no such key"):
        esformat.open("guarded://one/a.esdb")
    with esformat.open("guarded://one/a.esdb", storage_options=OPTIONS) as segment:
        assert segment.num_events == 2
    with esformat.open_many("guarded://one/", storage_options=OPTIONS) as both:
        assert both.num_events == 3
    assert esformat.verify("guarded://one/a.esdb", storage_options=OPTIONS).ok
    tools.merge(["guarded://one/a.esdb", "guarded://one/b.esdb"], "guarded://two/all.esdb", storage_options=OPTIONS)
    tools.erase("guarded://two/all.esdb", "guarded://two/less.esdb", ["a"], storage_options=OPTIONS)
    tools.reindex("guarded://two/all.esdb", "guarded://two/plain.esdb", [], storage_options=OPTIONS)
    tools.recompress("guarded://two/all.esdb", tmp_path / "local.esdb", level=3, storage_options=OPTIONS)
    tools.repair("guarded://two/all.esdb", "guarded://two/saved.esdb", storage_options=OPTIONS)
    assert tools.diff("guarded://two/all.esdb", tmp_path / "local.esdb", storage_options=OPTIONS).only_left == 0
    parts = tools.split("guarded://two/all.esdb", "guarded://parts", spaces=["b"], storage_options=OPTIONS)
    assert parts == ["guarded://parts/all-0000.esdb", "guarded://parts/all-0001.esdb"]
    with esformat.open_many("guarded://", storage_options=OPTIONS) as everything:
        assert everything.num_events == 3 + 3 + 2 + 3 + 3 + 3


@pytest.mark.parametrize("target", ["a.esdb", b"a.esdb", "file:///a.esdb", (MemoryFileSystem(), "a.esdb")])
def test_what_takes_none(target):
    """Options that would be ignored are an error."""
    for verb in (esformat.open, esformat.create, esformat.verify):
        with pytest.raises(esformat.UsageError, match="need a URI"):
            verb(target, storage_options=OPTIONS)
    with pytest.raises(esformat.UsageError, match="must be a mapping"):
        esformat.open("guarded://x", storage_options="key=sesame")
    with pytest.raises(esformat.UsageError, match="guarded://x"):
        esformat.open("guarded://x", storage_options={"key": "guess"})


@pytest.mark.filterwarnings("ignore:UPath 'guarded':UserWarning")
def test_files_and_paths_of_fsspec(tmp_path):
    """`fsspec.open(…)` and `UPath(…)` name files, like a filesystem with a path."""
    _write("guarded://named/a.esdb")
    named = fsspec.open("guarded://named/a.esdb", **OPTIONS)
    with esformat.open(named) as segment:
        assert segment.num_events == 2
    assert esformat.verify(named).ok
    with esformat.open_many([named, named]) as once:
        assert once.num_events == 2
    upath = pytest.importorskip("upath")
    for path in (upath.UPath("guarded://named/b.esdb", **OPTIONS), upath.UPath(tmp_path / "b.esdb")):
        with esformat.create(path) as writer:
            writer.add("a", b"", timestamp=1)
        with esformat.open(path) as segment:
            assert segment.num_events == 1
        with esformat.open_many(path.parent) as both:
            assert both.num_events >= 1
        (path.parent / "parts").mkdir(parents=True, exist_ok=True)
        assert tools.split(path, path.parent / "parts", size_bytes=1 << 20)


# ------------------------------------------------------------ Azure

# Sources: https://arrow.apache.org/docs/cpp/api/filesystem.html (AzureOptions::FromUri), and adlfs's own rules.
WITH_ACCOUNT = [
    "abfs://files@shop.dfs.core.windows.net/2026/a.esdb",
    "abfss://files@shop.dfs.core.windows.net/2026/a.esdb",
    "abfs://files@shop.blob.core.windows.net/2026/a.esdb",
    "abfss://shop.blob.core.windows.net/files/2026/a.esdb",
    "abfs://shop.dfs.core.windows.net/files/2026/a.esdb",
    "abfs://shop@files/2026/a.esdb",
]
CREDENTIALS = {"account_name": "shop", "account_key": "c2VjcmV0"}
OF_ADLFS = [
    *WITH_ACCOUNT[:2],
    "abfs://files/2026/a.esdb",
    "abfss://files/2026/a.esdb",
    "az://files/2026/a.esdb",
    "az://files@shop.blob.core.windows.net/2026/a.esdb",
]


@pytest.mark.skipif(not hasattr(pyarrow.fs, "AzureFileSystem"), reason="this pyarrow was built without Azure")
@pytest.mark.parametrize("uri", WITH_ACCOUNT)
def test_azure_with_the_account_in_the_address(uri):
    """With the account in the address Arrow's filesystem is used, with container and path right in every spelling."""
    place = locate(uri)
    assert isinstance(place, StoredAt)
    assert isinstance(place.store, ArrowStore)
    assert place.path == "files/2026/a.esdb"
    assert locate(f"{uri.removesuffix('a.esdb')}%20 b.esdb").path == "files/2026/%20 b.esdb"


@pytest.mark.parametrize("uri", OF_ADLFS)
def test_azure_through_adlfs(uri):
    """With options adlfs is used, with the path that adlfs derives from the address."""
    adlfs = pytest.importorskip("adlfs")
    (place,) = location.apply_options(CREDENTIALS, uri)
    assert isinstance(place.store, FsspecStore)
    assert isinstance(place.store._filesystem, adlfs.AzureBlobFileSystem)
    assert place.path == adlfs.AzureBlobFileSystem._strip_protocol(uri) == "files/2026/a.esdb"
    assert place.store._filesystem.account_name == "shop"


@pytest.mark.parametrize("uri", [*WITH_ACCOUNT, "az://shop.blob.core.windows.net/files/2026/a.esdb"])
def test_azure_with_the_account_in_the_address_and_options(uri):
    """An address with account and options, which adlfs misreads, is passed to adlfs as account, container and path."""
    pytest.importorskip("adlfs")
    (place,) = location.apply_options({"account_key": "c2VjcmV0"}, uri)
    assert isinstance(place.store, FsspecStore)
    assert (place.path, place.store._filesystem.account_name) == ("files/2026/a.esdb", "shop")
    (place,) = location.apply_options(
        {"account_name": "other", "account_key": "c2VjcmV0"}, uri.replace("2026/a", "%20 b")
    )
    assert place.path == "files/%20 b.esdb"


class _Blobs(MemoryFileSystem):
    """Replaces adlfs and records the account that it should connect to."""

    protocol = ("abfs", "az", "abfss")
    cachable = False

    def __init__(self, account_name: str | None = None, **options: Any) -> None:
        self.account_name = account_name
        super().__init__()


def test_azure_without_an_account_in_the_address(monkeypatch):
    """A container alone is passed to adlfs, which finds the account in the environment or the options."""
    for scheme in ("abfs", "az"):
        monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, scheme, _Blobs)
    for scheme in ("abfs", "abfss", "az"):
        place = locate(f"{scheme}://files/2026/a.esdb")
        assert isinstance(place.store, FsspecStore)
        (place,) = location.apply_options({"account_name": "shop"}, f"{scheme}://files/2026/a.esdb")
        assert place.store._filesystem.account_name == "shop"
