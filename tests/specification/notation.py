"""A short way to write the schemas of an OpenAPI document, used by the tables in `tests/data`.

| written | meaning |
|---|---|
| `"string"`, `"integer"`, `"number"`, `"boolean"`, `"object"`, `"null"`, `"any"` | a value of that type |
| `"int64"`, `"double"`, `"uuid"`, ... | a type with a format |
| `"int64(0..)"`, `"string(1..36)"` | bounds of a number, or of the length of a text |
| `"'asc'"`, `"/^a+$/"` | exactly this text, a text that matches this pattern |
| `"TableMetadata"` | another schema: its name begins with a capital letter |
| `"string\\|null"` | one of several |
| `["string"]`, `["string", "2..2"]`, `["string", "unique"]` | an array, of that length, without duplicates |
| `{"name": "string", "size?": "int64"}` | an object with a required and an optional field |
| `{"*": "string"}`, `{"*": "none"}` | the type of fields without a name of their own; there are none |
| `{"&": [...]}`, `{"\\|": [...]}` | all of these, any of these; may stand beside fields |

`expanded` turns the notation into JSON Schema and `compacted` is its inverse. JSON Schema here means the few
keywords that `compacted` knows; it refuses all others, so no assertion gets lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]
# A text, a list or a mapping, as in the table above.
Notation = Any

REFERENCE: Final = "#/$defs/"
TYPES: Final = ("string", "integer", "number", "boolean", "object", "null")
FORMATS: Final[Mapping[str, str]] = {
    "int32": "integer",
    "int64": "integer",
    "float": "number",
    "double": "number",
    "uuid": "string",
    "date": "string",
    "date-time": "string",
    "duration": "string",
    "byte": "string",
    "binary": "string",
}
BOUNDS: Final = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}
ATOM: Final = re.compile(r"(?P<name>[a-z0-9-]+)(?:\((?P<low>-?\d*)\.\.(?P<high>-?\d*)\))?")


def expanded(written: Notation) -> Schema:
    match written:
        case str():
            return _union(written.split("|"))
        case [items, *limits]:
            return {"type": "array", "items": expanded(items)} | _limits(limits)
        case dict():
            return _object(written)
        case _:
            raise ValueError(f"not a schema: {written!r}")


def _union(atoms: list[str]) -> Schema:
    if all(atom.startswith("'") for atom in atoms):
        return {"enum": [atom.strip("'") for atom in atoms]}
    alternatives = [_atom(atom) for atom in atoms]
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def _atom(text: str) -> Schema:
    if text == "any":
        return {}
    if text[0] == "/":
        return {"pattern": text.strip("/")}
    if text[0].isupper():
        return {"$ref": REFERENCE + text}
    found = ATOM.fullmatch(text)
    if found is None or found["name"] not in (*TYPES, *FORMATS):
        raise ValueError(f"not a type: {text!r}")
    name = found["name"]
    kind = FORMATS.get(name, name)
    schema = {"type": kind} if kind == name else {"type": kind, "format": name}
    return schema | _range(kind, found["low"] or "", found["high"] or "")


def _range(kind: str, low: str, high: str) -> Schema:
    if not low and not high:
        return {}
    return {key: int(text) for key, text in zip(BOUNDS[kind], (low, high), strict=True) if text}


def _limits(limits: list[str]) -> Schema:
    schema: Schema = {}
    for limit in limits:
        schema |= {"uniqueItems": True} if limit == "unique" else _range("array", *limit.split(".."))
    return schema


def _object(written: Mapping[str, Notation]) -> Schema:
    schema: Schema = {}
    for key, keyword in (("&", "allOf"), ("|", "anyOf")):
        if key in written:
            schema[keyword] = [expanded(one) for one in written[key]]
    fields = {name: one for name, one in written.items() if name not in ("&", "|", "*")}
    if fields or "*" in written:
        schema["type"] = "object"
    if fields:
        schema["properties"] = {name.removesuffix("?"): expanded(one) for name, one in fields.items()}
    if required := sorted(name for name in fields if not name.endswith("?")):
        schema["required"] = required
    if "*" in written:
        schema["additionalProperties"] = False if written["*"] == "none" else expanded(written["*"])
    return schema


def compacted(schema: Schema) -> Notation:
    """The notation of a schema; raises ValueError for what cannot be written."""
    written = _compacted(schema)
    if expanded(written) != schema:
        raise ValueError(f"this cannot be written: {schema}")
    return written


def _compacted(schema: Schema) -> Notation:
    match schema:
        case {"anyOf": alternatives} if len(schema) == 1:
            written = [_compacted(one) for one in alternatives]
            return "|".join(written) if _is_union(written) else {"|": written}
        case {"type": "array"}:
            return [_compacted(schema["items"]), *_written_limits(schema)]
        case _ if schema.keys() & {"properties", "additionalProperties", "allOf", "anyOf"}:
            return _written_object(schema)
        case {"enum": values}:
            return "|".join(f"'{value}'" for value in values)
        case {"pattern": pattern}:
            return f"/{pattern}/"
        case {"$ref": target}:
            return target.removeprefix(REFERENCE)
        case {"type": kind}:
            return f"{schema.get('format', kind)}{_written_range(kind, schema, '({}..{})')}"
        case _:
            return "any"


def _is_union(written: list[Notation]) -> bool:
    return len(written) > 1 and all(isinstance(one, str) and not {"'", "|"} & {*one} for one in written)


def _written_object(schema: Schema) -> Notation:
    required = set(schema.get("required", ()))
    written: dict[str, Notation] = {
        name if name in required else f"{name}?": _compacted(one)
        for name, one in sorted(schema.get("properties", {}).items())
    }
    if "additionalProperties" in schema:
        extra = schema["additionalProperties"]
        written["*"] = "none" if extra is False else _compacted(extra)
    for keyword, key in (("allOf", "&"), ("anyOf", "|")):
        if keyword in schema:
            written[key] = [_compacted(one) for one in schema[keyword]]
    return written


def _written_limits(schema: Schema) -> list[str]:
    bounds = _written_range("array", schema, "{}..{}")
    return [*([bounds] if bounds else []), *(["unique"] if schema.get("uniqueItems") else [])]


def _written_range(kind: str, schema: Schema, form: str) -> str:
    low, high = BOUNDS.get(kind, ("", ""))
    if low not in schema and high not in schema:
        return ""
    return form.format(schema.get(low, ""), schema.get(high, ""))
