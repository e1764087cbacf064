"""`esdb completion`: print the script that makes a shell complete the command."""

from __future__ import annotations

from esformat.cli.program import completion_command

completion = completion_command(
    """\
  esdb completion bash >> ~/.bashrc
  esdb completion zsh >> ~/.zshrc
  esdb completion fish >> ~/.config/fish/config.fish
"""
)
