"""SQL statements typed at a prompt; the keys come through a pipe."""

from __future__ import annotations

from contextlib import closing

import pytest

from esformat.cli.sql_shell import interact
from esformat.duckdb import session


@pytest.fixture
def typed(activity, tmp_path, monkeypatch, capfd):
    """Type lines; return the output and the errors."""
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(activity.parent)

    def typed(*lines):
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            keys.send_text("".join(f"{line}\r" for line in lines))
            asking, files = session()
            with files, closing(asking):
                interact(asking.ask, "esdb", "jsonl", ["topics"])
        return capfd.readouterr()

    return typed


def test_statements(typed, tmp_path):
    r"""A statement may span lines; `\format` lasts; an error does not end the shell; the history is kept."""
    out, err = typed("SELECT 1", "AS one;", "", "SELEC 1;", "\\help", "\\format csv", "SELECT 2 AS two;", "quit")
    assert '{"one":1}' in out
    assert '"two"\n2\n' in out
    assert "A statement ends with a semicolon." in out + err
    assert "syntax error" in err
    assert "+SELECT 1\n+AS one;\n" in (tmp_path / "state" / "esdb" / "sql-history").read_text()


def test_an_unknown_command(typed):
    """An unknown command is an error, not a question for help."""
    out, err = typed("\\nope", "\\format nope", "quit")
    assert "Statements end" in out
    assert err.count("no such command, or not in this form") == 2


def test_tables(typed, activity):
    """Several familiar commands list the files that FROM accepts."""
    for line in ("SHOW TABLES;", "\\tables", "\\d", ".tables"):
        out, err = typed(line, "quit")
        assert f"'{activity.name}'" in out
        assert err == ""
    out, err = typed("FROM nothing;", "quit")
    assert f"here: '{activity.name}'" in err


def test_files_and_end(typed, activity):
    """Files of the directory can be queried; Ctrl-C drops the typed text, Ctrl-D ends the shell."""
    out, err = typed(f"SELECT count(*) AS n FROM '{activity.name}';", "SELECT nonsense \x03SELECT 3 AS three;", "\x04")
    assert '{"n":29}' in out
    assert '{"three":3}' in out
    assert err == ""
