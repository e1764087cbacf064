"""`verify`: check a whole file against every rule of the format."""

from esformat.tools.verification.check import verify
from esformat.tools.verification.report import Problem, Report

__all__ = ["Problem", "Report", "verify"]
