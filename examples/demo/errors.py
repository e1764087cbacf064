"""Why a demo stops.

DemoError                    there is nothing to show, or what was written does not verify
└── DisagreementError        two formats gave different answers: one is wrong, and no time may be reported
"""

from __future__ import annotations


class DemoError(RuntimeError):
    """The demo cannot go on."""


class DisagreementError(DemoError):
    """The contestants of a comparison gave different answers."""
