"""`tidemill auth …`: clients, API keys, roles and grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.catalog.model.callers import Permission
from tidemill.cli.options import JsonOption, Target, with_groups
from tidemill.cli.output import console, local_time, print_json, print_line, print_result
from tidemill.sdk.auth import GrantInfo, NewApiKey, Whoami
from tidemill.sdk.names import dotted

auth_app = typer.Typer(no_args_is_help=True, help="Manage clients, API keys, roles and grants.")
client_app = typer.Typer(no_args_is_help=True, help="Manage clients.")
key_app = typer.Typer(no_args_is_help=True, help="Manage the API keys of a client.")
role_app = typer.Typer(no_args_is_help=True, help="Manage roles and their members.")
auth_app.add_typer(client_app, name="client")
auth_app.add_typer(key_app, name="key")
auth_app.add_typer(role_app, name="role")

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the client.")]
KeyArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help="Name of the role.")]
MemberArgument = Annotated[
    str, typer.Argument(metavar="MEMBER", help="Id of a client, or a user as <issuer>:<subject>.")
]
PermissionsArgument = Annotated[
    str, typer.Argument(metavar="PERMISSIONS", help=f"One or more of {', '.join(Permission)}, with commas.")
]
DescriptionOption = Annotated[str, typer.Option("--description", help="What it is for.")]


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a new key is restricted to."""

    permissions: Annotated[
        str | None, typer.Option("--permissions", help="Restrict the key to these, with commas.")
    ] = None
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Restrict the key to this namespace.")
    ] = None
    days: Annotated[
        float | None, typer.Option("--expires-in-days", min=0.0001, help="Days until the key expires.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        return {
            "permissions": None if self.permissions is None else _names(self.permissions),
            "namespace": self.namespace,
            "expires_in": None if self.days is None else timedelta(days=self.days),
        }


@dataclass(frozen=True, slots=True)
class To:
    """To whom something is granted."""

    client: Annotated[str | None, typer.Option("--client", help="Id of a client.")] = None
    user: Annotated[str | None, typer.Option("--user", help="User, as <issuer>:<subject>.")] = None
    role: Annotated[str | None, typer.Option("--role", help="Name of a role.")] = None

    def arguments(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class On:
    """What something is granted on."""

    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Namespace, with all below it; '' is the root.")
    ] = None
    table: Annotated[str | None, typer.Option("--table", help="Table or view.")] = None
    function: Annotated[str | None, typer.Option("--function", help="Function.")] = None

    def arguments(self) -> dict[str, Any]:
        # An empty list, and not an empty name, is the root.
        return {**asdict(self), "namespace": [] if self.namespace == "" else self.namespace}


@auth_app.command("whoami")
@with_groups
def whoami(*, target: Target, as_json: JsonOption = False) -> None:
    """Show who you are, and what you are granted."""
    with target.open() as lake:
        identity = lake.auth.whoami()
    if as_json:
        print_json(identity.to_dict())
    else:
        _print_identity(identity)


@auth_app.command("token")
@with_groups
def token(*, target: Target, as_json: JsonOption = False) -> None:
    """Print a bearer token for your credential."""
    with target.open() as lake:
        value, lifetime = lake.auth.token()
    seconds = int(lifetime.total_seconds())
    print_result({"access_token": value, "expires_in": seconds}, value, as_json=as_json)


@auth_app.command("grant")
@with_groups
def grant(
    permissions: PermissionsArgument, *, to: To, on: On, target: Target, as_json: JsonOption = False
) -> None:
    """Grant permissions on a namespace, a table or view, or a function."""
    with target.open() as lake:
        _call(lake.auth.grant, permissions, to, on)
    text = f"Granted {permissions} on {_object(on)} to {_grantee(to)}"
    print_result({"granted": _names(permissions)}, text, as_json=as_json)


@auth_app.command("revoke")
@with_groups
def revoke(
    permissions: PermissionsArgument, *, to: To, on: On, target: Target, as_json: JsonOption = False
) -> None:
    """Take permissions back."""
    with target.open() as lake:
        count = _call(lake.auth.revoke, permissions, to, on)
    text = f"Revoked {permissions} on {_object(on)} from {_grantee(to)}"
    nothing = f"{_grantee(to)} has no such grant on {_object(on)}; 'tidemill auth grants' lists them"
    print_result({"revoked": count}, text if count else nothing, as_json=as_json)


@auth_app.command("grants")
@with_groups
def list_grants(*, to: To, target: Target, as_json: JsonOption = False) -> None:
    """List the grants on what you administer, and your own."""
    with target.open() as lake:
        found = lake.auth.list_grants(**to.arguments())
    if as_json:
        print_json([asdict(item) for item in found])
    else:
        _print_grants(found)


@client_app.command("create")
@with_groups
def create_client(
    client: ClientArgument,
    *,
    description: DescriptionOption = "",
    key: Annotated[str, typer.Option("--key", help="Name of its first key.")] = "default",
    limits: KeyLimits,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Create a client without grants, and print its first key."""
    with target.open() as lake:
        made = lake.auth.create_client(client, description=description, key=key, **limits.arguments())
    _print_key(made, as_json=as_json)


@client_app.command("list")
@with_groups
def list_clients(*, target: Target, as_json: JsonOption = False) -> None:
    """List the clients."""
    with target.open() as lake:
        found = lake.auth.list_clients()
    if as_json:
        print_json([asdict(item) for item in found])
        return
    table = Table("Client", "Description", "Created by", "Created", box=None, header_style="bold")
    for item in found:
        texts = (item.client, item.description, item.created_by, local_time(item.created_at))
        table.add_row(*map(escape, texts))
    console().print(table)


@client_app.command("remove")
@with_groups
def remove_client(client: ClientArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Remove a client with its keys and grants."""
    with target.open() as lake:
        lake.auth.remove_client(client)
    print_result({"client": client}, f"Removed client {client}", as_json=as_json)


@key_app.command("create")
@with_groups
def create_key(
    client: ClientArgument,
    name: KeyArgument,
    *,
    limits: KeyLimits,
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Create another key of a client, and print it."""
    with target.open() as lake:
        made = lake.auth.create_key(client, name, **limits.arguments())
    _print_key(made, as_json=as_json)


@key_app.command("list")
@with_groups
def list_keys(client: ClientArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """List the keys of a client."""
    with target.open() as lake:
        found = lake.auth.list_keys(client)
    if as_json:
        print_json([asdict(item) for item in found])
        return
    table = Table("Key", "Restricted to", "Created", "Expires", "Last used", box=None, header_style="bold")
    for item in found:
        times = map(local_time, (item.created_at, item.expires_at, item.last_used_at))
        table.add_row(escape(item.name), escape(str(item.scope or "-")), *times)
    console().print(table)


@key_app.command("remove")
@with_groups
def remove_key(
    client: ClientArgument, name: KeyArgument, *, target: Target, as_json: JsonOption = False
) -> None:
    """Remove a key; tokens that were issued for it end with it."""
    with target.open() as lake:
        lake.auth.remove_key(client, name)
    print_result({"client": client, "name": name}, f"Removed key {name} of {client}", as_json=as_json)


@role_app.command("create")
@with_groups
def create_role(
    role: RoleArgument,
    *,
    description: DescriptionOption = "",
    target: Target,
    as_json: JsonOption = False,
) -> None:
    """Create a role."""
    with target.open() as lake:
        made = lake.auth.create_role(role, description=description)
    print_result(asdict(made), f"Created role {role}", as_json=as_json)


@role_app.command("list")
@with_groups
def list_roles(*, target: Target, as_json: JsonOption = False) -> None:
    """List the roles and their members."""
    with target.open() as lake:
        found = lake.auth.list_roles()
    if as_json:
        print_json([asdict(item) for item in found])
        return
    table = Table("Role", "Description", "Members", box=None, header_style="bold")
    for item in found:
        table.add_row(escape(item.role), escape(item.description), escape(", ".join(item.members)))
    console().print(table if found else "No roles yet")


@role_app.command("remove")
@with_groups
def remove_role(role: RoleArgument, *, target: Target, as_json: JsonOption = False) -> None:
    """Remove a role and what it is granted."""
    with target.open() as lake:
        lake.auth.remove_role(role)
    print_result({"role": role}, f"Removed role {role}", as_json=as_json)


@role_app.command("add-member")
@with_groups
def add_member(
    role: RoleArgument, member: MemberArgument, *, target: Target, as_json: JsonOption = False
) -> None:
    """Give a role to a client or user."""
    with target.open() as lake:
        made = lake.auth.add_member(role, member)
    print_result(asdict(made), f"{member} has the role {role}", as_json=as_json)


@role_app.command("remove-member")
@with_groups
def remove_member(
    role: RoleArgument, member: MemberArgument, *, target: Target, as_json: JsonOption = False
) -> None:
    """Take a role from a client or user."""
    with target.open() as lake:
        made = lake.auth.remove_member(role, member)
    print_result(asdict(made), f"{member} no longer has the role {role}", as_json=as_json)


def _call(action: Any, permissions: str, to: To, on: On) -> Any:
    _only("--client, --user and --role", to.arguments())
    _only("--namespace, --table and --function", on.arguments())
    return action(_names(permissions), **to.arguments(), **on.arguments())


def _only(options: str, given: dict[str, Any]) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise typer.BadParameter(f"give exactly one of {options}")


def _names(permissions: str) -> list[str]:
    return [name.strip() for name in permissions.split(",")]


def _object(on: On) -> str:
    [(kind, name)] = [(kind, name) for kind, name in asdict(on).items() if name is not None]
    return f"{kind} {name or '(root)'}"


def _grantee(to: To) -> str:
    [(kind, name)] = [(kind, name) for kind, name in asdict(to).items() if name is not None]
    return f"{kind} {name}"


def _print_key(made: NewApiKey, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(made))
        return
    until = f", valid until {local_time(made.expires_at)}" if made.expires_at else ""
    print_line(f"Key {made.name} of {made.client}{until}. It is shown only now:")
    print_line(made.api_key)


def _print_identity(identity: Whoami) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("Principal", escape(identity.principal))
    if not identity.authentication:
        table.add_row("Access", "everything: this server has no authentication")
    table.add_row("Roles", escape(", ".join(identity.roles) or "-"))
    if identity.key:
        table.add_row("Key", escape(identity.key))
        table.add_row("Restricted to", escape(str(identity.scope or "-")))
    if identity.expires_at:
        table.add_row("Expires", local_time(identity.expires_at))
    console().print(table)
    if identity.grants:
        _print_grants(identity.grants)


def _print_grants(grants: Sequence[GrantInfo]) -> None:
    table = Table("Grantee", "Permission", "On", "Granted by", "Granted", box=None, header_style="bold")
    for item in grants:
        table.add_row(
            escape(f"{item.grantee_kind} {item.grantee}"),
            item.permission,
            escape(f"{item.object_kind} {dotted(item.object) or '(root)'}"),
            escape(item.granted_by),
            local_time(item.granted_at),
        )
    console().print(table if grants else "No grants")
