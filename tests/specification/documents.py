"""The full OpenAPI documents, where they are present, and the tables in `tests/data` derived from them.

The documents are not part of this repository. They are looked for in the folder `shared/spec` beside the
checkout, or where `TIDEMILL_SPECIFICATIONS` points. Only the comparison of tables and documents needs them:
the tables hold every name, type, bound, enumeration and status that the documents assert. `make tables`
writes the tables.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped] # it ships no types

from tests.specification.notation import REFERENCE, Notation, Schema, compacted

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(os.environ.get("TIDEMILL_SPECIFICATIONS", ROOT.parent / "shared" / "spec"))
TABLES: Final = ROOT / "tests" / "data"
# The document of each table.
DOCUMENTS: Final[Mapping[str, str]] = {
    "iceberg_operations.json": "iceberg-rest.yaml",
    "lance_operations.json": "lance-namespace-0.11.1.yaml",
}
METHODS: Final = ("get", "head", "post", "put", "delete")
JSON: Final = "application/json"
# Keywords that say nothing about a value. An object's keys are texts anyway, and a discriminator only tells
# which of the alternatives applies.
SILENT: Final = {
    "contentEncoding",
    "default",
    "deprecated",
    "description",
    "discriminator",
    "example",
    "propertyNames",
    "readOnly",
}
CHECKED: Final = {
    "additionalProperties",
    "allOf",
    "anyOf",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "uniqueItems",
}


def missing_documents() -> list[str]:
    return sorted(name for name in DOCUMENTS.values() if not (FOLDER / name).exists())


@cache
def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((FOLDER / name).read_bytes(), yaml.CSafeLoader)
    return loaded


def asserted(schema: Mapping[str, Any]) -> Schema:
    """What a schema of a document says about values, in plain JSON Schema.

    Constants become enumerations of one, `nullable` and lists of types become alternatives, and alternatives
    need not exclude each other: in Iceberg's document a primitive type is two of the kinds of types.
    """
    kept = {key: value for key, value in schema.items() if key not in SILENT}
    nullable = kept.pop("nullable", False)
    if isinstance(kept.get("type"), list):
        kinds = [kind for kind in kept["type"] if kind != "null"]
        nullable = nullable or "null" in kept["type"]
        kept["type"] = kinds[0]
        if len(kinds) != 1:
            raise ValueError(f"several types: {schema}")
    plain = _referring(kept) if "$ref" in kept else _plain(kept)
    return {"anyOf": [plain, {"type": "null"}]} if nullable else plain


def _referring(kept: dict[str, Any]) -> Schema:
    target = {"$ref": REFERENCE + kept.pop("$ref").rpartition("/")[2]}
    return {"allOf": [target, _plain(kept)]} if kept else target


def _plain(kept: dict[str, Any]) -> Schema:
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if unknown := kept.keys() - CHECKED:
        raise ValueError(f"keywords that the tables do not know: {sorted(unknown)}")
    return _nested(_typed(kept))


def _typed(kept: dict[str, Any]) -> dict[str, Any]:
    """With the type that is meant but left out, and without the type that goes without saying."""
    parts: list[Any] = list(kept.pop("allOf", ()))
    if "enum" in kept:
        kept.pop("type", None)
    if "properties" in kept:
        kept["type"] = "object"
    elif kept.get("type") == "object" and (parts or "anyOf" in kept):
        parts.append({"type": kept.pop("type")})
    if "pattern" in kept and len(kept) > 1:
        parts = [{"pattern": kept.pop("pattern")}, kept]
        kept = {}
    return kept | ({"allOf": parts} if parts else {})


def _nested(kept: dict[str, Any]) -> Schema:
    schema = dict(kept)
    for keyword in ("allOf", "anyOf"):
        if keyword in kept:
            schema[keyword] = [asserted(one) for one in kept[keyword]]
    if "properties" in kept:
        schema["properties"] = {name: asserted(one) for name, one in kept["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(kept.get(keyword), dict):
            schema[keyword] = asserted(kept[keyword])
    if schema.get("additionalProperties") is True:
        schema["additionalProperties"] = {}
    if "required" in kept:
        schema["required"] = sorted(kept["required"])
    return schema


def schemas(of: Mapping[str, Any]) -> dict[str, Schema]:
    return {name: asserted(schema) for name, schema in sorted(of["components"]["schemas"].items())}


def operations(of: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Notation]]]:
    for path, item in of["paths"].items():
        for method in METHODS:
            if method in item:
                yield (
                    item[method]["operationId"],
                    _operation(of, f"{method.upper()} {path}", item, item[method]),
                )


def _operation(
    of: Mapping[str, Any], call: str, item: Mapping[str, Any], described: Mapping[str, Any]
) -> dict[str, Notation]:
    listed = [_resolved(of, one) for one in (*item.get("parameters", ()), *described.get("parameters", ()))]
    body = _resolved(of, described.get("requestBody", {}))
    row: dict[str, Notation] = {"call": call}
    for place in ("query", "header"):
        fields = {
            one["name"] + ("" if one.get("required") else "?"): compacted(asserted(one["schema"]))
            for one in listed
            if one["in"] == place
        }
        if fields:
            row[place] = dict(sorted(fields.items()))
    if body:
        row["body" if body.get("required") else "body?"] = _content(body)
    row["answers"] = _answers(of, described["responses"])
    return row


def _resolved(of: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        kind, name = node["$ref"].removeprefix("#/components/").split("/")
        node = of["components"][kind][name]
    return node


def _content(described: Mapping[str, Any]) -> Notation:
    """The schema of JSON, the name of any other media type, null where there is no content."""
    content = described.get("content", {})
    if len(content) > 1:
        raise ValueError(f"several media types: {sorted(content)}")
    for media, value in content.items():
        return compacted(asserted(value["schema"])) if media == JSON else media
    return None


def _answers(of: Mapping[str, Any], responses: Mapping[Any, Any]) -> dict[str, Notation]:
    """Statuses with the same content share one entry."""
    statuses: dict[str, list[str]] = defaultdict(list)
    for status, response in responses.items():
        statuses[json.dumps(_content(_resolved(of, response)))].append(str(status))
    rows = {" ".join(sorted(found)): json.loads(content) for content, found in statuses.items()}
    return dict(sorted(rows.items()))


def derived(name: str) -> str:
    """The text of a table after its document: one operation or schema per line, ordered by name."""
    of = document(DOCUMENTS[name])
    parts = {
        "operations": dict(sorted(operations(of))),
        "schemas": {schema: compacted(one) for schema, one in schemas(of).items()},
    }
    head = f'{{\n"document": {json.dumps(DOCUMENTS[name])},\n'
    return head + ",\n".join(f'"{part}": {_lines(rows)}' for part, rows in parts.items()) + "\n}\n"


def _lines(rows: Mapping[str, Notation]) -> str:
    return (
        "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}"
    )


def main() -> None:
    if missing := missing_documents():
        raise SystemExit(f"{FOLDER} lacks {', '.join(missing)}")
    for name in DOCUMENTS:
        (TABLES / name).write_text(derived(name))


if __name__ == "__main__":
    main()
