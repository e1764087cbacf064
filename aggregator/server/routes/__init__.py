"""Groups of routes: each module has `routes(context) -> list[Route]`, and `aggregator.server.app` lists the modules."""
