"""Opens the warehouse of the settings: a local directory or an object store."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.catalog.signing_ports import RequestSigner
from tidemill.server.settings import ServerSettings
from tidemill.storage.client_options import ObjectStoreEnvironment, missing_variables, read_environment
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import open_client
from tidemill.storage.signing import S3RequestSigner, own_keys
from tidemill.storage.vending import AssumedRole, CredentialVendor, NoCredentials, StaticCredentials
from tidemill.storage.warehouse import Warehouse


def open_warehouse(settings: ServerSettings) -> Warehouse:
    if not settings.has_object_store:
        return LocalTableFiles(Path(settings.warehouse_uri), settings.allowed_locations)
    # Lance, Arrow and the Python workers of Spark read their configuration from the environment, like boto3.
    os.environ.update(missing_variables(os.environ))
    environment = read_environment(os.environ)
    return S3TableFiles(
        parse_prefix(settings.warehouse_uri),
        open_client("s3", environment),
        environment,
        _vendor(settings, environment),
    )


def open_signer(settings: ServerSettings) -> RequestSigner | None:
    """None if remote signing is off."""
    if not settings.s3_remote_signing:
        return None
    environment = read_environment(os.environ)
    return S3RequestSigner(parse_prefix(settings.warehouse_uri), environment.endpoint, own_keys())


def _vendor(settings: ServerSettings, environment: ObjectStoreEnvironment) -> CredentialVendor:
    match settings.s3_vend:
        case "none":
            return NoCredentials()
        case "static":
            return StaticCredentials(
                settings.s3_client_access_key_id or "", settings.s3_client_secret_access_key or ""
            )
        case "sts":
            return AssumedRole(settings.s3_role_arn or "", open_client("sts", environment))
