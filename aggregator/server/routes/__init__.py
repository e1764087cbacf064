"""Groups of routes. Each module has `routes(context) -> list[Route]`; `aggregator.server.app` lists the modules."""
