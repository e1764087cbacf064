"""`aggregator completion`: print a script for shell completion."""

from __future__ import annotations

from esformat.cli.parts import completion_command

completion = completion_command(
    """\
  aggregator completion bash >> ~/.bashrc
  aggregator completion zsh >> ~/.zshrc
  aggregator completion fish >> ~/.config/fish/config.fish
"""
)
