"""A prompt in a terminal, with history and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click


def prompt_session(
    mark: str, history: Path, is_whole: Callable[[str], bool], completions: Callable[[str], Iterable[tuple[str, int]]]
) -> Any:
    """A session whose `prompt` returns a statement.

    mark: the language, shown before the first line. is_whole: whether Enter runs a text; otherwise it adds a line.
    completions: of the text before the cursor, each with the number of characters that it replaces.

    Raises click.UsageError if prompt_toolkit is missing.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings
    except ImportError:
        raise click.UsageError('typing statements needs prompt_toolkit: pip install "esformat[shell]"') from None

    class Completing(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            for text, length in completions(document.text_before_cursor):
                yield Completion(text, -length)

    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: Any) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return PromptSession(
        f"{mark}> ",
        multiline=True,
        prompt_continuation="...> ",
        history=FileHistory(str(history)),
        completer=Completing(),
        complete_while_typing=False,
        key_bindings=keys,
    )
