"""Where our answers are meant to differ from those of Iceberg's own server, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.interop.iceberg.histories import Request
from tests.interop.iceberg.sides import NO_ANSWER, Answer


@dataclass(frozen=True)
class Difference:
    request: Request
    reference: Answer
    ours: Answer
    what: str


Reason: TypeAlias = Callable[[Difference], bool]

OTHER_JSON: Final = re.compile(
    r": must be|it must be|is missing|has an empty part|Cannot parse (string|to a string|to a UUID)"
)
FORM: Final = re.compile(
    r"Tags do not support|must be greater than 0|^Cannot parse|^Invalid snapshot ref type"
    r"|multiple queries for|^Cannot apply update"
    r"|^Invalid create requirements|^Cannot validate|^Cannot set default .* to unknown"
)
PARTITION_IDS: Final = re.compile(
    r"\.metadata\.(last-partition-id|partition-specs\[\d+\]\.fields\[\d+\]\.field-id)"
)
GIVEN_IDS: Final = re.compile(r"Cannot parse missing int: (spec|order)-id")
BAD_REQUESTS: Final = frozenset(
    {"BadRequestException", "IllegalArgumentException", "ValidationException", "ValidationError"}
)


def _is_fault(found: Difference) -> bool:
    return found.reference.status >= 500 and 400 <= found.ours.status < 500


def _does_not_answer(found: Difference) -> bool:
    return found.reference.status == NO_ANSWER and found.ours.status < 500


def _lacks_namespace(found: Difference) -> bool:
    return found.ours.error[0] == "NoSuchNamespaceException" and found.reference.status != 500


def _has_location(found: Difference) -> bool:
    return found.what.startswith(".properties.location: 'absent' != ")


def _repeats_add(found: Difference) -> bool:
    return found.ours.status < 500 and found.reference.error[1].startswith("Cannot set last ")


def _is_other_json(found: Difference) -> bool:
    """Only what the specification requires or has another type for."""
    is_refused = found.request.is_mangled and found.ours.error[0] in BAD_REQUESTS
    return is_refused and bool(OTHER_JSON.search(found.ours.error[1]))


def _removes_nothing(found: Difference) -> bool:
    """The reference fails in a table without snapshots, and else writes the same metadata again."""
    is_rewritten = re.match(r"(state: \[1\])?\.metadata(-location|\.metadata-log)", found.what) is not None
    removes = '"action": "remove-' in json.dumps(found.request.body)
    return removes and (is_rewritten or found.reference.error[1].startswith("arraySize cannot be negative"))


def _renames_to_itself(found: Difference) -> bool:
    body = found.request.body
    return found.request.operation.startswith("rename") and body.get("source") == body.get("destination")


def _completes_schema(found: Difference) -> bool:
    return found.ours.status < 300 and "Cannot parse type from json" in str(found.reference.body)


def _skips_rows(found: Difference) -> bool:
    """Seen in the count itself, and when another snapshot of the same commit has the ids again."""
    is_behind = "first-row-id is behind table next-row-id" in found.ours.error[1]
    has_several = json.dumps(found.request.body).count('"add-snapshot"') > 1
    return ".next-row-id: " in found.what or (is_behind and has_several)


def _looks_at_forms_first(found: Difference) -> bool:
    is_commit = found.request.operation in {"updateTable", "commitTransaction", "replaceView"}
    return (
        is_commit
        and found.ours.status == 400 <= found.reference.status
        and bool(FORM.search(found.ours.error[1]))
    )


def _is_taken(found: Difference) -> bool:
    is_creation = found.request.operation in {"createTable", "stageTable", "createView", "createByCommit"}
    return is_creation and found.ours.status == 409 and found.reference.status in {200, 400, 406}


def _cannot_transform(found: Difference) -> bool:
    return found.reference.status == 406 and found.ours.status == 400


def _tags_main(found: Difference) -> bool:
    return found.ours.error[1] == "Cannot set main to a tag, it must be a branch"


def _numbers_fields(found: Difference) -> bool:
    return "add-spec" in json.dumps(found.request.body) and bool(PARTITION_IDS.match(found.what))


def _reassigns_uuid(found: Difference) -> bool:
    return found.ours.error[1].startswith("Cannot reassign uuid")


def _lacks_both(found: Difference) -> bool:
    kinds = {found.reference.error[0], found.ours.error[0]}
    return found.request.operation.startswith("rename") and (
        "NoSuchNamespaceException" in kinds and bool(kinds & {"NoSuchTableException", "NoSuchViewException"})
    )


def _names_operation(found: Difference) -> bool:
    return ".summary.operation: 'overwrite' != 'absent'" in found.what


def _upgrades_too_far(found: Difference) -> bool:
    return "unsupported format version" in found.ours.error[1].lower()


def _has_unusable_properties(found: Difference) -> bool:
    return found.ours.error[1].startswith("Table property")


def _has_first_summary(found: Difference) -> bool:
    return found.request.operation == "createView" and ".summary" in found.what


def _has_odd_transform(found: Difference) -> bool:
    return found.ours.error[1].startswith("Cannot parse transform")


def _has_nulls(found: Difference) -> bool:
    """What was left out is seen when the library reads our file."""
    return (
        found.ours.status < 300
        and re.search(r"literal from null|: null", str(found.reference.body)) is not None
    )


def _sets_default_first(found: Difference) -> bool:
    """The reference looks at the default that a commit ends with."""
    unknown = re.match(r"Cannot set default (spec|sort order) to unknown", found.ours.error[1])
    if unknown is None:
        return False
    kind = unknown[1].replace(" ", "-")
    later = json.dumps(found.request.body).partition(f'"set-default-{kind}"')[2]
    return f'"set-default-{kind}"' in later or f'"add-{kind}"' in later


def _gives_ids(found: Difference) -> bool:
    return found.ours.status < 300 and bool(GIVEN_IDS.search(str(found.reference.body)))


def _adds_schema_again(found: Difference) -> bool:
    has_several = json.dumps(found.request.body).count('"add-schema"') > 1
    return has_several and re.match(r"\.metadata\.versions\[\d+\]\.schema-id", found.what) is not None


def _has_nameless_namespace(found: Difference) -> bool:
    names = found.reference.body.get("namespaces", []) if isinstance(found.reference.body, dict) else []
    return found.request.operation == "listNamespaces" and any("" in levels for levels in names)


# What is meant to differ, and why; a difference that none of these explains is a mistake of ours.
EXPLAINED: Final[Mapping[str, Reason]] = {
    "the reference fails where the request is wrong; 5xx is never right": _is_fault,
    "the reference tries again for ever": _does_not_answer,
    "the reference makes tables and views without their namespace": _lacks_namespace,
    "every namespace has a location, which Trino needs": _has_location,
    "what is added again counts as last added, so that a retry is no error": _repeats_add,
    "the reference takes any JSON for text, and none for an empty list": _is_other_json,
    "removing what is not there changes nothing, and writes no file": _removes_nothing,
    "the reference does not look whether there is what is renamed to its own name": _renames_to_itself,
    "a schema without its type is still a struct": _completes_schema,
    "rows are counted from a snapshot's own first row, so that no id is given twice": _skips_rows,
    "a name is looked at before what shall have it, and staged tables cannot have one of a view": _is_taken,
    "that a column does not fit a transform is a mistake, and not something unsupported": _cannot_transform,
    "the main branch is no tag, even if it is there": _tags_main,
    "new partition fields get ids of their own, where the reference begins at 1000 again": _numbers_fields,
    "a table keeps its uuid": _reassigns_uuid,
    "where both are missing, what is renamed is told before the namespace it shall go to": _lacks_both,
    "the reference makes up the operation that a summary lacks": _names_operation,
    "version 4 of the format is not finished": _upgrades_too_far,
    "properties that would make later commits fail are refused at once": _has_unusable_properties,
    "a new view has the summary that its client sent": _has_first_summary,
    "a transform that nobody knows has at least the form of one": _has_odd_transform,
    "what is null is absent": _has_nulls,
    "a default is looked for when it is set, whatever follows": _sets_default_first,
    "an id that the server gives need not be sent": _gives_ids,
    "a schema that is added again counts as last added, as one that was alone does": _adds_schema_again,
    "the reference has namespaces without a name": _has_nameless_namespace,
    "the form of all updates is looked at before any is applied": _looks_at_forms_first,
}
