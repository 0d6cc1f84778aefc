"""Labels that come with tables and views."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.iceberg_requests import new_key
from tests.protocol.iceberg.wire import Space, keyed, new_version, set_properties

NESTED = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {
            "id": 2,
            "name": "address",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [{"id": 3, "name": "city", "required": False, "type": "string"}],
            },
        },
    ],
}


def loaded(space: Space, path: str) -> dict[str, Any]:
    answer = space.http.get(path)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_table_about_which_nothing_is_known_has_no_labels(space: Space) -> None:
    assert "labels" not in space.made_table()
    assert "labels" not in loaded(space, space.table())


def test_the_owner_of_a_table_or_view_is_a_label(space: Space) -> None:
    owned = {"owner": "ann"}
    for made in (
        space.made_table(properties=owned),
        loaded(space, space.table()),
        space.made_view(properties=owned),
        loaded(space, space.view()),
    ):
        assert made["labels"]["object-labels"]["owner"] == "ann"


def test_a_table_with_rows_tells_how_fresh_they_are(space: Space) -> None:
    space.made_table()
    uri = str(space.http.base_url).removesuffix("/v1/")
    catalog = RestCatalog("labels", uri=uri)
    table = catalog.load_table((space.name, "t"))
    table.append(pa.table({"id": pa.array([1], pa.int64()), "text": ["a"]}, schema=table.schema().as_arrow()))
    told = loaded(space, space.table())
    (snapshot,) = told["metadata"]["snapshots"]
    fresh = datetime.fromisoformat(told["labels"]["object-labels"]["freshness"])
    assert round(fresh.timestamp() * 1000) == snapshot["timestamp-ms"]


def test_the_digest_of_a_view_changes_with_its_definition(space: Space) -> None:
    def digest() -> str:
        return str(loaded(space, space.view())["labels"]["object-labels"]["digest"])

    space.made_view()
    first = digest()
    assert space.commit(space.view(), set_properties(a="1")).status_code == 200
    assert digest() == first
    assert space.commit(space.view(), *new_version("SELECT 2 AS id")).status_code == 200
    assert digest() != first
    going_back = {"action": "set-current-view-version", "view-version-id": 1}
    assert space.commit(space.view(), going_back).status_code == 200
    assert digest() == first


def test_properties_label_tables_views_and_their_fields(space: Space) -> None:
    properties = {
        "label.domain": "sales",
        "field-label.id.classification": "key",
        "field-label.address.city.classification": "personal",
        "field-label.address.city.source": "crm",
        "field-label.missing.classification": "none",
        "field-label.id.": "no key",
        "label.": "no key",
    }
    for path, make in ((space.table(), space.made_table), (space.view(), space.made_view)):
        make(schema=NESTED, properties=properties)
        labels = loaded(space, path)["labels"]
        assert labels["object-labels"]["domain"] == "sales"
        assert labels["fields"] == [
            {"field-id": 1, "labels": {"classification": "key"}},
            {"field-id": 3, "labels": {"classification": "personal", "source": "crm"}},
        ]


def test_labels_are_not_in_metadata_or_in_answers_to_commits(space: Space) -> None:
    space.made_table(properties={"label.domain": "sales"})
    committed = space.commit(space.table(), set_properties(a="1")).json()
    assert set(committed) == {"metadata-location", "metadata"}
    assert "labels" not in committed["metadata"]


def test_a_repeated_answer_has_the_labels_of_the_first(space: Space) -> None:
    headers = keyed(new_key())
    first = space.made_table(properties={"label.domain": "sales"}, headers=headers)
    space.commit(space.table(), set_properties(**{"label.domain": "finance"}))
    assert space.made_table(properties={"label.domain": "sales"}, headers=headers) == first
    assert loaded(space, space.table())["labels"]["object-labels"] == {"domain": "finance"}
