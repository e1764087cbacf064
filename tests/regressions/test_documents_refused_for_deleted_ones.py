"""A document whose `_id` had been stored was refused with 409 after its deletion, so that it was stored nowhere."""

from __future__ import annotations

import json

import httpx
import pytest
from served import served

DOCUMENTS = "".join(
    json.dumps({"create": {"_index": "web", "_id": each}}) + "\n" + json.dumps({"message": each}) + "\n"
    for each in ("a", "b")
)


def create(web, topic: str) -> list[int]:
    answer = web.post(f"/_bulk?topic={topic}", content=DOCUMENTS, headers={"content-type": "application/x-ndjson"})
    return [item["create"]["status"] for item in answer.json()["items"]]


def delete(web) -> None:
    assert web.delete("/v1/topics/shop").status_code == 204


def rename(web) -> None:
    assert web.post("/v1/topics/shop/rename", json={"name": "old"}).status_code == 200


def erase(web) -> None:
    assert web.post("/v1/topics/shop/erase", json={"spaces": ["{index=web}"]}).status_code == 200


def truncate(web) -> None:
    answer = web.post("/v1/query", json={"query": 'TRUNCATE {index=web} BEFORE "2099-01-01"'})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("remove", [delete, rename, erase, truncate])
@pytest.mark.parametrize("others", [False, True])
def test_documents_are_stored_again(tmp_path, remove, others):
    """Deleted documents can be stored again, once, even if other records now have their old record indexes."""
    with served(tmp_path / "data") as server, httpx.Client(base_url=server.url) as web:
        assert create(web, "shop") == [201, 201]
        assert create(web, "shop") == [409, 409]
        remove(web)
        if others:
            assert web.post("/v1/streams?topic=shop&tags=index%3Dweb", json=[{"msg": "c"}] * 3).status_code == 200
        assert create(web, "shop") == [201, 201]
        assert create(web, "shop") == [409, 409]
        found = server.catalog.topic("shop").scan(space="{index=web}").to_table().column("data").to_pylist()
        assert sorted(found) == [b"a", b"b"] + [b"c"] * 3 * others
