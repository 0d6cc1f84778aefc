"""Vends credentials to clients so that they can open a table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final, Protocol

from tidemill.catalog.model.callers import StorageAccess
from tidemill.storage.s3_client import translated

LIFETIME: Final = timedelta(hours=1)
MIN_REMAINING: Final = timedelta(minutes=20)
"""Minimum remaining lifetime of vended credentials; clients refresh them shortly before they expire."""
MAX_SESSIONS: Final = 10_000
SESSION_NAME: Final = "tidemill"
PARTITIONS: Final = frozenset({"aws", "aws-cn", "aws-us-gov"})
READ_ACTIONS: Final = ("s3:GetObject",)
OBJECT_ACTIONS: Final = (
    *READ_ACTIONS,
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)


class CredentialVendor(Protocol):
    def credentials(self, bucket: str, key: str, access: StorageAccess) -> Mapping[str, str]:
        """Storage options that grant access to the objects below the key."""


class NoCredentials:
    """Vends nothing: clients bring their own credentials."""

    def credentials(self, bucket: str, key: str, access: StorageAccess) -> Mapping[str, str]:
        return {}


class StaticCredentials:
    """The same keys for every client; their permissions are configured in the object store."""

    def __init__(self, access_key_id: str, secret_access_key: str) -> None:
        self._options = {
            "aws_access_key_id": access_key_id,
            "aws_secret_access_key": secret_access_key,
        }

    def credentials(self, bucket: str, key: str, access: StorageAccess) -> Mapping[str, str]:
        return self._options


@dataclass(frozen=True, slots=True)
class _Session:
    options: Mapping[str, str]
    expires_at: datetime


class AssumedRole:
    """A role session per table, restricted to the table's objects; sessions are cached until they get old."""

    def __init__(
        self, role_arn: str, sts: Any, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._role_arn = role_arn
        self._sts = sts
        self._now = now
        self._lock = Lock()
        self._sessions: dict[str, _Session] = {}

    def credentials(self, bucket: str, key: str, access: StorageAccess) -> Mapping[str, str]:
        cache_key = f"{access.value}:{bucket}/{key}"
        if (session := self._find(cache_key)) is None:
            session = self._open(bucket, key, access)
            self._remember(cache_key, session)
        return session.options

    def _find(self, cache_key: str) -> _Session | None:
        with self._lock:
            session = self._sessions.get(cache_key)
        return session if session is not None and self._is_fresh(session) else None

    def _remember(self, cache_key: str, session: _Session) -> None:
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                self._sessions.clear()
            self._sessions[cache_key] = session

    def _is_fresh(self, session: _Session) -> bool:
        return session.expires_at - self._now() > MIN_REMAINING

    def _open(self, bucket: str, key: str, access: StorageAccess) -> _Session:
        with translated(f"a session of the role {self._role_arn}"):
            credentials = self._sts.assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=SESSION_NAME,
                DurationSeconds=int(LIFETIME.total_seconds()),
                Policy=json.dumps(table_policy(_partition(self._role_arn), bucket, key, access)),
            )["Credentials"]
        expires_at: datetime = credentials["Expiration"]
        options = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
            "expires_at_millis": str(int(expires_at.timestamp() * 1000)),
        }
        return _Session(options, expires_at)


def table_policy(partition: str, bucket: str, key: str, access: StorageAccess) -> Mapping[str, Any]:
    """An IAM policy for the objects below a key and nothing else."""
    actions = OBJECT_ACTIONS if access is StorageAccess.WRITE else READ_ACTIONS
    bucket_arn, pattern = f"arn:{partition}:s3:::{bucket}", _escaped(key)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(actions), "Resource": [f"{bucket_arn}/{pattern}/*"]},
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [bucket_arn],
                "Condition": {"StringLike": {"s3:prefix": [f"{pattern}/*"]}},
            },
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [bucket_arn]},
        ],
    }


def _escaped(key: str) -> str:
    """Escapes characters that IAM treats as wildcards, such as `*`, as `${*}`."""
    return re.sub(r"[*?$]", lambda match: f"${{{match.group()}}}", key)


def _partition(role_arn: str) -> str:
    """The partition of a role's ARN; compatible stores name roles freely but accept Amazon's bucket ARNs."""
    partition = role_arn.split(":")[1:2]
    return partition[0] if partition and partition[0] in PARTITIONS else "aws"
