"""The API as an OpenAPI document, from the declarations of the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import Route

from aggregator.server.bodies.shared.schemas import SCHEMAS
from aggregator.server.control.operation import operation_of
from esformat import __version__

_CONVERTOR = re.compile(r":\w+\}")


def document(routes: Iterable[Route], *, secured: bool) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of all routes. secured: tokens are required."""
    paths: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}  # by operation id: an endpoint may have several routes
    for route in routes:
        operation = operation_of(route.endpoint)
        described = dict(operation.document)
        if operation.scope != "open":
            if secured:
                described["security"] = [{"token": []}]
            described["description"] = f"{described.get('description', '')}\n\nScope: {operation.scope}.".strip()
        at = paths.setdefault(_CONVERTOR.sub("}", route.path), {})
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            number = used[described["operationId"]] = used.get(described["operationId"], 0) + 1
            again = {} if number == 1 else {"operationId": f"{described['operationId']}_{number}"}
            at[method.lower()] = described | again
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aggregator",
            "version": __version__,
            "description": "Durable appends, fast reads. Routes under /v1 are our own; the others are plateau's.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(SCHEMAS),
            **({"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if secured else {}),
        },
    }
