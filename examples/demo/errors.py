"""The errors of the demo.

DemoError                    there is nothing to show, or a written file fails verification
└── DisagreementError        two formats gave different answers: one is wrong, and no time may be reported
"""

from __future__ import annotations


class DemoError(RuntimeError):
    """The demo cannot continue."""


class DisagreementError(DemoError):
    """The contestants of a comparison gave different answers."""
