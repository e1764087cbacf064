"""`esdb verify`: valid files are confirmed, all damage is reported, and the status distinguishes them."""

from __future__ import annotations

import pytest


def test_sound(esdb, activity):
    """A valid file is one line with what was checked."""
    result = esdb("verify", "activity.esdb")
    assert (result.status, result.err) == (0, "")
    assert result.text.startswith("activity.esdb: ok, 29 events in ")
    assert result.text.count("\n") == 1


def test_several_files(esdb, activity, tmp_path):
    """Every file is checked, even after a damaged or missing one."""
    damaged = bytearray(activity.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    (tmp_path / "damaged.esdb").write_bytes(damaged)
    result = esdb("verify", "damaged.esdb", "nowhere.esdb", "activity.esdb")
    assert result.status == 1
    assert result.lines == esdb("verify", "activity.esdb").lines
    first, *_, last = result.err.splitlines()
    assert "damaged.esdb" in first
    assert "byte" in first
    assert last == "esdb: nowhere.esdb: no such file or directory"


@pytest.mark.parametrize("step", [61])
def test_damage(esdb, activity, tmp_path, step):
    """Any flipped bit is reported, one line per problem, each with the file's name."""
    data = activity.read_bytes()
    for at in range(0, len(data), step):
        damaged = bytearray(data)
        damaged[at] ^= 16
        (tmp_path / "damaged.esdb").write_bytes(damaged)
        result = esdb("verify", "damaged.esdb")
        assert result.status == 1, at
        assert result.out == b""
        assert all(line.startswith("damaged.esdb: at byte ") and "; " in line for line in result.err.splitlines())
        assert "Traceback" not in result.err
