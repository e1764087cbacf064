"""The HTTP server over a catalog: its settings, the ASGI application, and a process that runs it.

Needs the extra `server`. It adapts the catalog to HTTP and adds nothing that the embedded catalog cannot do: one
process, one writer.
"""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.server.app import make_app
    from aggregator.server.config.settings import Settings
    from aggregator.server.running import RunningServer, serve
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.server.app": "make_app",
            "aggregator.server.running": "RunningServer serve",
            "aggregator.server.config.settings": "Settings",
        },
    )

__all__ = ["RunningServer", "Settings", "make_app", "serve"]
