"""`verify`: a whole file held against every rule of the format."""

from esformat.verify.check import verify
from esformat.verify.report import Problem, Report

__all__ = ["Problem", "Report", "verify"]
