"""`verify`: a whole file held against every rule of the format."""

from esformat.verification.check import verify
from esformat.verification.report import Problem, Report

__all__ = ["Problem", "Report", "verify"]
