"""The API description covers every route, and its page needs no other server."""

from __future__ import annotations

import re


def test_document(server, web):
    """Every route and method is described with parameters and answers; operation ids are unique."""
    found = web.get("/openapi.json").json()
    for route in server.routes:
        for method in route.methods - {"HEAD"}:
            described = found["paths"][route.path][method.lower()]
            named = {p["name"] for p in described.get("parameters", ()) if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", route.path)), route.path
            assert described["summary"]
            assert set(described["responses"]) - {"default"}, route.path
    ids = [d["operationId"] for methods in found["paths"].values() for d in methods.values()]
    assert len(set(ids)) == len(ids)


def test_page(web):
    """The page is complete: nothing is fetched from elsewhere, and its policy forbids it."""
    answer = web.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.findall(r"https?://|src=|@import|url\(", answer.text)
