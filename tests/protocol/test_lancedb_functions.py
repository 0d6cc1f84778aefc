"""Functions of lancedb's remote client: registered as source, bound to columns, run by jobs."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest
from lancedb import EnvVarSecret, col, udf
from lancedb.exceptions import JobFailedError
from lancedb.functions import FunctionVersion, RefreshColumnResult
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError
from lancedb.remote.table import RemoteTable

from tests.protocol.remote import database, docs, fill, new_name, values
from tests.protocol.wire import check_refusal

__all__ = ["database", "docs"]

ONE_NUMBER = pa.schema([pa.field("x", pa.float64())])


def triple(x: float) -> float:
    return x * 3


def tenfold(x: pa.Array) -> pa.Array:
    import pyarrow.compute as pc  # only what is inside a function travels with it

    return pc.multiply(x, 10.0)


def halves(x: float) -> Any:
    return {"half": x / 2, "parts": [int(x), 2]}


def inverse_of_distance_to_two(x: float) -> float:
    return 1 / (x - 2)


class scale:
    def __init__(self, factor: float, offset: float = 0.5) -> None:
        self.factor, self.offset = factor, offset

    def __call__(self, x: float) -> float:
        return x * self.factor + self.offset


def registered(database: RemoteDBConnection, function: Any, **options: Any) -> FunctionVersion:
    """Under a name of its own, so that tests do not see each other's versions."""
    made = database.create_function(udf(name=new_name("f"), **options)(function))
    assert isinstance(made, FunctionVersion)
    return made


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="remote")
def test_a_column_computed_by_an_expression_is_filled(docs: RemoteTable) -> None:
    docs.add_columns(computed={"double": "x * 2"})
    assert values(docs, "double") == [None, None, None]
    result = fill(docs, "double")
    assert isinstance(result, RefreshColumnResult)
    assert (result.rows_assigned, result.rows_failed, result.rows_remaining) == (3, 0, 0)
    assert values(docs, "double") == [2.0, 4.0, 6.0]


@pytest.mark.operation("AlterTableAddColumns", client="remote")
def test_an_expression_of_nothing_is_refused(docs: RemoteTable) -> None:
    with pytest.raises(HttpError, match=r"400 Bad Request: .*nowhere"):
        docs.add_columns(computed={"double": "nowhere * 2"})
    assert "double" not in docs.schema.names


def test_a_registered_function_is_found_again(database: RemoteDBConnection) -> None:
    made = registered(database, triple)
    assert (made.version, made.namespace_path, made.disabled) == ("1", (), False)
    assert [field.arrow_type for field in made.signature.inputs] == ["float64"]
    assert database.get_function(made.name, version="1") == made
    assert made in database.list_functions()


def test_the_same_code_is_the_same_version_and_other_code_the_next(database: RemoteDBConnection) -> None:
    name = new_name("f")
    first = database.create_function(udf(name=name)(triple))
    assert database.create_function(udf(name=name)(triple)) == first
    assert database.create_function(udf(name=name)(inverse_of_distance_to_two)).version == "2"


def test_the_job_of_a_registration_is_over(database: RemoteDBConnection) -> None:
    job = database.create_function_async(udf(name=new_name("f"))(triple))
    assert job.status() == "finished"
    assert job.result is not None
    assert (job.job_type, job.result["version"]) == ("register_function", "1")
    job.cancel()
    assert job.events().num_rows == 0


def test_a_dropped_function_is_gone_but_serves_its_columns(
    database: RemoteDBConnection, docs: RemoteTable
) -> None:
    made = registered(database, triple)
    docs.add_columns({"y": made(x=col("x"))})
    assert database.drop_function(made.name, version="1") is True
    assert database.drop_function(made.name, version="1") is False
    assert made.name not in [function.name for function in database.list_functions()]
    with pytest.raises(HttpError):
        docs.add_columns({"z": made(x=col("x"))})
    fill(docs, "y")
    assert values(docs, "y") == [3.0, 6.0, 9.0]


def test_functions_live_in_namespaces(database: RemoteDBConnection) -> None:
    space = new_name("ns")
    definition = udf(name="inside")(triple)
    with pytest.raises((HttpError, ValueError)):
        database.create_function(definition, namespace_path=[space])
    database.create_namespace([space])
    made = database.create_function(definition, namespace_path=[space])
    assert made.namespace_path == (space,)
    assert database.list_functions(namespace_path=[space]) == [made]
    assert made not in database.list_functions()


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="remote")
def test_a_function_fills_its_column_and_later_the_new_rows(
    database: RemoteDBConnection, docs: RemoteTable
) -> None:
    docs.add_columns({"y": registered(database, triple)(x=col("x"))})
    fill(docs, "y")
    docs.add(pa.table({"id": [4], "x": [4.0], "name": ["n4"]}))
    result = fill(docs, "y")
    assert isinstance(result, RefreshColumnResult)
    assert result.rows_assigned == 1
    assert values(docs, "y") == [3.0, 6.0, 9.0, 12.0]


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="remote")
def test_a_function_of_arrays_gets_arrays(database: RemoteDBConnection, docs: RemoteTable) -> None:
    made = registered(database, tenfold, input_schema=ONE_NUMBER, output_schema=pa.float64())
    docs.add_columns({"y": made(x=col("x"))})
    fill(docs, "y")
    assert values(docs, "y") == [10.0, 20.0, 30.0]


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="remote")
def test_a_class_is_created_with_the_values_of_each_binding(
    database: RemoteDBConnection, docs: RemoteTable
) -> None:
    made = registered(database, scale)
    docs.add_columns({"a": made(x=col("x"), factor=2.0)})
    docs.add_columns({"b": made(x=col("x"), factor=2.0, offset=0.0)})
    fill(docs, "a")
    fill(docs, "b")
    assert (values(docs, "a"), values(docs, "b")) == ([2.5, 4.5, 6.5], [2.0, 4.0, 6.0])
    assert [function.version for function in database.list_functions() if function.name == made.name] == ["1"]


@pytest.mark.operation("AlterTableAddColumns", "AlterTableBackfillColumns", client="remote")
def test_a_struct_result_fills_several_columns(database: RemoteDBConnection, docs: RemoteTable) -> None:
    output = pa.schema([pa.field("half", pa.float64()), pa.field("parts", pa.list_(pa.int32()))])
    made = registered(database, halves, input_schema=ONE_NUMBER, output_schema=output)
    docs.add_columns(made(x=col("x")).rename(columns={"half": "h"}))
    fill(docs, "h")
    assert (values(docs, "h"), values(docs, "parts")) == ([0.5, 1.0, 1.5], [[1, 2], [2, 2], [3, 2]])


def test_the_row_that_a_function_failed_on_is_told(database: RemoteDBConnection, docs: RemoteTable) -> None:
    made = registered(database, inverse_of_distance_to_two)
    docs.add_columns({"y": made(x=col("x"))})
    assert docs.function_errors(column="y").records == []
    with pytest.raises(JobFailedError, match="division by zero"):
        fill(docs, "y")
    (record,) = docs.function_errors(column="y").records
    assert (record.column, record.function, record.function_version) == ("y", made.name, "1")
    assert (record.error_type, record.fragment_id, record.row_offset) == ("ZeroDivisionError", 0, 1)
    assert [found.job_id for found in docs.function_errors(job_id=record.job_id).records] == [record.job_id]
    assert docs.function_errors(column="x").records == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gpu": True}, "GPU"),
        ({"env": {"A": "b"}}, "runtime.env"),
        ({"conda": ["numpy"]}, "runtime.environment.kind"),
    ],
)
def test_what_is_not_served_is_refused_at_registration(
    database: RemoteDBConnection, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(HttpError, match=f"406 .*{problem}"):
        registered(database, triple, **options)


def test_secrets_are_not_bound_yet(database: RemoteDBConnection) -> None:
    with pytest.raises(HttpError, match=r"406 .*secret_bindings"):
        database.create_function(udf(name=new_name("f"))(triple), secrets=[EnvVarSecret("s", "KEY")])


def test_missing_packages_fail_the_job_by_name(database: RemoteDBConnection, docs: RemoteTable) -> None:
    made = registered(database, triple, pip=["no-such-package==1"])
    docs.add_columns({"y": made(x=col("x"))})
    with pytest.raises(JobFailedError, match="no-such-package==1"):
        fill(docs, "y")


BODY = udf(name="f")(triple).registration_request._known_dict()


def changed(path: str, value: Any) -> dict[str, Any]:
    *above, last = path.split(".")
    body = {key: entry for key, entry in BODY.items() if key != "name"}
    inner = body
    for key in above:
        inner[key] = dict(inner[key])
        inner = inner[key]
    inner[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "status", "code"),
    [
        ("artifact", None, 400, 13),
        ("artifact.kind", "python_bundle", 406, 0),
        ("artifact.digest", "sha256:00", 400, 13),
        ("artifact.entrypoint", "other", 400, 13),
        ("artifact.content.data", "%%%", 400, 13),
        ("artifact.content.encoding", "hex", 400, 13),
        ("signature.output.arrow_type", "complex64", 400, 13),
        ("signature.output.arrow_type", "fixed_size_list<float32>", 400, 13),
        ("signature.output.kind", "table", 406, 0),
        ("runtime.python_version", None, 400, 13),
    ],
)
def test_a_registration_that_cannot_be_is_refused(
    http: httpx.Client, path: str, value: Any, status: int, code: int
) -> None:
    answer = http.post(f"/v1/function/{new_name('f')}/create", json=changed(path, value))
    check_refusal(answer, status, code, path)


def test_a_function_that_nobody_registered_is_not_described(http: httpx.Client) -> None:
    check_refusal(http.post("/v1/function/nobody/describe", json={"version": "1"}), 400, 13)
    check_refusal(http.post("/v1/function/nobody/describe", json={"version": "one"}), 400, 13, "version")
    check_refusal(http.post("/v1/jobs/describe", json={"job_id": "function-00"}), 404, 10)
