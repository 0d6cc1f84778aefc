"""What jobs and writers by location leave in the audit."""

from __future__ import annotations

import lance
import pyarrow as pa

import tidemill
from tests.e2e.tables import Maker, filled, numbered


@tidemill.udf
def size(text: str) -> int:
    return len(text)


def test_a_job_leaves_a_row_for_its_submission_and_one_for_what_it_publishes(make: Maker) -> None:
    table = make.numbered(3)
    table.add_column("size", size)
    job = filled(table, "size")
    published, submitted = make.lake.audit(job_id=job.id)
    assert submitted.operation.endswith("/backfill_column")
    assert (published.operation, published.protocol) == ("publish backfill", "worker")
    assert published.principal == submitted.principal
    for event in (submitted, published):
        assert (event.decision, event.is_committed) == ("allowed", True)
        assert [str(one) for one in event.objects] == [f"table {table.name}"]


def test_versions_of_writers_by_location_are_adopted_by_the_server(make: Maker) -> None:
    table = make.numbered(2)
    rows = pa.Table.from_pylist(numbered(2, 1), schema=table.to_lance().schema)
    lance.write_dataset(rows, table.to_lance().uri, mode="append")
    assert table.count_rows() == 3
    [adopted] = make.lake.audit(object=table.name, operation="adopt versions")
    assert (adopted.principal, adopted.protocol, adopted.is_committed) == ("tidemill", "server", True)
    assert [str(one) for one in adopted.objects] == [f"table {table.name}"]
