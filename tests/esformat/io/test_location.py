"""Locations that callers may pass: paths, URIs, filesystems; files, directories, patterns and prefixes."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event, Thread

import fsspec
import pyarrow.fs
import pytest
from effort import share_of
from object_store import arrow_filesystem

import esformat
from esformat import UsageError
from esformat.io import location
from esformat.io.commit_folder import LocalFolder
from esformat.io.location import folder_at, join_path, local_path, locate, segments_at


def write(target, spaces="ab", **options):
    with esformat.create(target, **options) as writer:
        for number, space in enumerate(spaces):
            writer.add(space, b"x", timestamp=number)


@pytest.mark.parametrize(
    "name",
    [lambda p: str(p), lambda p: p, lambda p: p.as_uri(), lambda p: (pyarrow.fs.LocalFileSystem(), str(p)),
     lambda p: (pyarrow.fs.SubTreeFileSystem(str(p.parent), pyarrow.fs.LocalFileSystem()), p.name),
     lambda p: (fsspec.filesystem("file"), str(p)), lambda p: (fsspec.filesystem("file"), p)],
)  # fmt: skip
def test_local_files_are_plain_files(tmp_path, name):
    """Every name of a local file is treated like a path, without an object store."""
    path = tmp_path / "a b%20.esdb"
    assert locate(name(path)) == str(path)
    write(name(path))
    with esformat.open(name(path)) as segment:
        assert segment.num_events == 2
    with pytest.raises(esformat.UsageError, match="exists"):
        write(name(path))


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://b/key.esdb", "b/key.esdb"),
        ("S3://b/a key+%.esdb", "b/a key+%.esdb"),
        ("s3://b/deep/er?region=eu-north-1", "b/deep/er"),
        ("s3://b/what?.esdb", "b/what?.esdb"),
        ("gs://anonymous@b/key.esdb", "b/key.esdb"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_uris(uri, path):
    """Keys in URIs are literal."""
    assert locate(uri).path == path


@pytest.mark.usefixtures("s3")
def test_connections_are_kept():
    """A bucket with its settings has one filesystem, which is reused."""
    one, other = locate("s3://b/1"), locate("s3://b/2")
    assert one.store._filesystem is other.store._filesystem
    assert locate("s3://b/1?region=eu-north-1").store._filesystem is not one.store._filesystem


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(7, "cannot open 7"), (b"a\0", "NUL"), (("a", 7), "cannot open"), ((7, "a"), "invalid filesystem"),
     ("nowhere://a", "nowhere"), ("s3://b/k?colour=red", "colour")],
)  # fmt: skip
def test_what_names_nothing(wrong, said):
    """An invalid location is refused with valid alternatives."""
    for verb in (esformat.open, esformat.create, esformat.open_many):
        with pytest.raises(esformat.UsageError, match=said):
            verb([wrong] if verb is esformat.open_many else wrong)


def test_without_fsspec(monkeypatch):
    """Without fsspec the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(esformat.UsageError, match=r"needs the package fsspec.*esformat\[cloud\]"):
        esformat.open("memory://a")


# ------------------------------------------------------------ many files


NAMES = ["a.esdb", "b.esdb", "deep/c.esdb", "deep/er/d.esdb", "deep/.hidden.esdb", "deep/notes.txt", "x/b2.esdb"]
FOUND = [
    ("", ["a.esdb", "b.esdb", "deep/c.esdb", "deep/er/d.esdb", "x/b2.esdb"]),
    ("deep", ["deep/c.esdb", "deep/er/d.esdb"]),
    ("deep/", ["deep/c.esdb", "deep/er/d.esdb"]),
    ("*.esdb", ["a.esdb", "b.esdb"]),
    ("?.esdb", ["a.esdb", "b.esdb"]),
    ("[b-z].esdb", ["b.esdb"]),
    ("*/*.esdb", ["deep/c.esdb", "x/b2.esdb"]),
    ("**/*.esdb", ["a.esdb", "b.esdb", "deep/c.esdb", "deep/er/d.esdb", "x/b2.esdb"]),
    ("deep/**/d.esdb", ["deep/er/d.esdb"]),
    ("b.esdb", ["b.esdb"]),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write(root / name)
    return root


@pytest.fixture
def prefix(s3, bucket, tree):
    for name in NAMES:
        s3.client.upload_file(str(tree / name), bucket, f"top/{name}")
    return f"s3://{bucket}/top"


@pytest.mark.parametrize(("pattern", "expected"), FOUND, ids=[pattern or "(all)" for pattern, _ in FOUND])
def test_files_found_on_disk(tree, pattern, expected):
    """Directories and patterns yield files in order of name, without hidden ones."""
    with esformat.open_many(str(tree / pattern)) as many:
        assert [Path(path).relative_to(tree).as_posix() for path in many.paths] == expected


def test_directories_that_go_away_while_they_are_listed(tmp_path):
    """A listing is not disturbed by staging directories that appear and disappear meanwhile."""
    write(tmp_path / "a.esdb")
    over = Event()

    def come_and_go():
        while not over.is_set():
            for number in range(20):
                (tmp_path / f"_staging-{number:08}").mkdir()
            for number in range(20):
                (tmp_path / f"_staging-{number:08}").rmdir()

    other = Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(300):
            assert list(segments_at(str(tmp_path))) == [str(tmp_path / "a.esdb")]
    finally:
        over.set()
        other.join()


@pytest.mark.parametrize("through", share_of(["uri", "arrow", "fsspec"], 3))
def test_files_found_in_a_store(s3, bucket, prefix, through):
    """Prefixes and patterns mean the same in an object store, through every filesystem."""
    for pattern, expected in FOUND:
        target = f"{prefix}/{pattern}"
        if through == "arrow":
            target = (arrow_filesystem(s3), f"{bucket}/top/{pattern}")
        elif through == "fsspec":
            s3fs = fsspec.filesystem("s3", endpoint_url=s3.url, key="testing", secret="testing")
            target = (s3fs, f"{bucket}/top/{pattern}")
        with esformat.open_many(target) as many:
            assert [path.partition("/top/")[2] for path in many.paths] == expected
            assert many.num_events == 2 * len(expected)
            assert [event.space for event in many.scan()] == ["a"] * len(expected) + ["b"] * len(expected)


def test_each_file_counts_once(tree):
    """A file that is named several times counts once, at its first position."""
    with esformat.open_many([tree / "x", tree, str(tree / "x" / ".." / "a.esdb")]) as many:
        names = [Path(path).relative_to(tree).as_posix() for path in many.paths]
        assert names == ["x/b2.esdb", "a.esdb", "b.esdb", "deep/c.esdb", "deep/er/d.esdb"]


def test_sources_and_places_mixed(tree, prefix):
    """Anything that `open` takes can be combined."""
    memory = esformat.BytesSource((tree / "a.esdb").read_bytes())
    with esformat.open_many([memory, tree / "b.esdb", f"{prefix}/deep"]) as many:
        assert len(many.paths) == 4
        assert many["a"].num_events == 4
        assert len(list(many["a"].scan())) == 4


@pytest.mark.parametrize("nothing", [[], "*.none", "empty", ["a.esdb", "*.none"]])
def test_where_nothing_is(tmp_path, monkeypatch, nothing):
    """A directory without files and a pattern without a match are errors, not empty results."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write("a.esdb")
    with pytest.raises(esformat.UsageError, match=r"no \.esdb file|no files to open"):
        esformat.open_many(nothing)


def test_a_missing_file_among_many(tree, bucket):
    """A missing file among several is an error."""
    with pytest.raises(FileNotFoundError):
        esformat.open_many([tree / "a.esdb", tree / "none.esdb"])
    with pytest.raises(FileNotFoundError):
        esformat.open_many([f"s3://{bucket}/none.esdb"])
    with pytest.raises(esformat.UsageError, match=r"no \.esdb file"):
        esformat.open_many(f"s3://{bucket}/none/")


def test_suffix():
    """The suffix is the one that the rest of the package writes."""
    assert location.SUFFIX == ".esdb"


# ------------------------------------------------------------ locations as Spark and Hadoop spell them


@pytest.mark.parametrize("spelled", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}", "{}"])
def test_local_files_as_spark_spells_them(tmp_path, spelled):
    """`file:/…` with one slash, three, or this machine as its host is the local disk, not a directory named `file:`."""
    path = str(tmp_path / "a b.esdb")
    assert locate(spelled.format(path)) == path
    assert folder_at(spelled.format(path)) == LocalFolder(path)
    assert local_path(spelled.format(path), "no") == path
    assert str(join_path(spelled.format(str(tmp_path)), "x.esdb")) == f"{tmp_path}/x.esdb"


def test_stores_as_hadoop_calls_them(monkeypatch):
    """s3a and s3n are S3, wasbs is Azure's blob store, and hdfs without a name node is the default one."""
    asked = []

    def connect(uri, settings):
        asked.append(uri)
        return pyarrow.fs.LocalFileSystem(), "bucket"

    monkeypatch.setattr(location, "_connect", connect)
    for uri in ("s3a://bucket/a/b.esdb", "s3n://bucket/a", "S3A://bucket/a", "hdfs:/a", "hdfs:///a", "gs://bucket/a"):
        locate(uri)
    locate("wasbs://box@account.blob.core.windows.net/a")
    assert asked == [
        "s3://bucket", "s3://bucket", "s3://bucket", "hdfs://", "hdfs://", "gs://bucket",
        "abfss://box@account.dfs.core.windows.net",
    ]  # fmt: skip


def test_databricks_files(tmp_path, monkeypatch):
    """`dbfs:/` is where Databricks mounts it; elsewhere the error says that the mount is missing."""
    monkeypatch.setattr(location, "_DBFS", str(tmp_path))
    assert locate("dbfs:/lake/x.esdb") == f"{tmp_path}/lake/x.esdb"
    monkeypatch.setattr(location, "_DBFS", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="dbfs:/ needs the directory"):
        locate("dbfs:/lake/x.esdb")


@pytest.mark.parametrize(
    ("spelled", "reason"),
    [
        ("s3a:/bucket/x", "has no bucket"),
        ("abfss:///x", "has no bucket"),
        ("file://host/x", "file:// cannot have a host"),
        ("maprfs://cluster/x", "maprfs"),
    ],
)
def test_locations_that_name_nothing(spelled, reason):
    """A location that cannot be read is refused in one line, and does not become a directory of that name."""
    with pytest.raises(UsageError, match=reason) as raised:
        locate(spelled)
    assert "\n" not in str(raised.value)


def test_hdfs_without_a_client():
    """Without a Hadoop client the error says that one is needed."""
    with pytest.raises(UsageError, match="libhdfs") as raised:
        locate("hdfs://node:8020/x")
    assert "\n" not in str(raised.value)
