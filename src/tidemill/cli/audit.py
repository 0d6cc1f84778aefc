"""`tidemill audit`: who did, or was refused, what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.catalog.model.audit import Decision, printable
from tidemill.cli.options import JsonOption, Target, with_groups
from tidemill.cli.output import console, local_time, print_json, print_line
from tidemill.sdk.audit import AuditEvent

STYLES: Final = {Decision.ALLOWED: "green", Decision.DENIED: "red", Decision.FAILED: "yellow"}
TIMES: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]

PrincipalOption = Annotated[
    str | None, typer.Option("--principal", help="Only what this client did or was refused.")
]
ObjectOption = Annotated[
    str | None,
    typer.Option("--object", help="Only events about this namespace, table or view and all below it."),
]
OperationOption = Annotated[
    str | None, typer.Option("--operation", help="Only operations that contain this text.")
]
DecisionOption = Annotated[
    Decision | None, typer.Option("--decision", case_sensitive=False, help="Only events with this outcome.")
]
RequestOption = Annotated[str | None, typer.Option("--request-id", help="Only the request with this id.")]
JobOption = Annotated[str | None, typer.Option("--job", help="Only what was done to this job or by it.")]
SinceOption = Annotated[
    datetime | None, typer.Option("--since", formats=TIMES, help="Only events at or after this time.")
]
UntilOption = Annotated[
    datetime | None, typer.Option("--until", formats=TIMES, help="Only events before this time.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of events.")]


@with_groups
def audit(
    *,
    principal: PrincipalOption = None,
    object_name: ObjectOption = None,
    operation: OperationOption = None,
    decision: DecisionOption = None,
    request_id: RequestOption = None,
    job_id: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 50,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Show who did, or was refused, what; newest first."""
    with target.open() as lake:
        events = lake.audit(
            limit=limit,
            principal=principal,
            object=object_name,
            operation=operation,
            decision=decision,
            request_id=request_id,
            job_id=job_id,
            since=since,
            until=until,
        )
    if as_json:
        print_json([event.to_dict() for event in events])
    elif events:
        _print_events(events)
    else:
        print_line("No events match")


def _print_events(events: list[AuditEvent]) -> None:
    table = Table("When", "Who", "From", "Operation", "Objects", "Decision", box=None, header_style="bold")
    for event in events:
        who = f"{event.principal or '-'}{' (claimed)' if event.is_claimed else ''}"
        more = f" and {event.objects_omitted} more" if event.objects_omitted else ""
        values = (who, event.address or "-", event.operation, ", ".join(map(str, event.objects)) + more)
        table.add_row(local_time(event.at), *(escape(printable(value)) for value in values), _outcome(event))
    console().print(table)


def _outcome(event: AuditEvent) -> str:
    decision = Decision(event.decision)
    reason = f" {event.error_code}" if event.error_code else ""
    times = f" ({event.count:,} times)" if event.count > 1 else ""
    return f"[{STYLES[decision]}]{decision.value}[/]{escape(reason)}{times}"
