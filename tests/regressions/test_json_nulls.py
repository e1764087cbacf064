"""Apache Arrow, issue 51305, and a related crash: its JSON parser mishandles nulls in unusual places."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import esformat
from esformat.convert import Clock, Load, Roles

STARTS = ["[null, 1]", '[ null,null, "x"]', "[[], [null, 1.5]]", '[null, {"b": 1}]', "[null, []]"]
OBJECT = '{"s": "a", "t": "2026-01-01"}'
BARE = ["null", f"\n \tnull\n{OBJECT}", f"null{OBJECT}", f"{OBJECT}\nnull", f"{OBJECT} null"]


@pytest.mark.parametrize("start", STARTS)
def test_a_null_first_in_a_list_is_lost(tmp_path, start):
    """Lists keep all elements if the first is null, also in later lines."""
    values = [json.loads(start), None, json.loads(start) * 2]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({"s": "a", "t": time, "v": value}) for time, value in enumerate(values)))
    with Load([str(path)], Roles(space="s", timestamp="t", clock=Clock("us"))) as loading:
        loading.write(lambda _: esformat.create(tmp_path / "out.esdb"))
    with esformat.open(tmp_path / "out.esdb") as segment:
        assert [event.columns["v"] for event in segment.scan()] == values


def test_a_null_instead_of_an_object_ends_the_process(tmp_path):
    """A line that is not an object is a bad row, and does not crash the process."""
    paths = [tmp_path / f"{number}.jsonl" for number in range(len(BARE))]
    for path, text in zip(paths, BARE, strict=True):
        path.write_text(text)
    code = (
        "import sys\n"
        "from esformat.convert import BadRowError, Load, Roles\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        with Load([path], Roles(space='s', timestamp='t')) as loading: list(loading.batches())\n"
        "    except BadRowError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [str(path) in line for path, line in zip(paths, told, strict=True)] == [True] * len(BARE)
