"""An S3 and STS of the tests' own: moto in a process beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any
from uuid import uuid4

REGION = "us-east-1"
KEY_ID = "server-key"
SECRET = "server-secret"
MOTO = [sys.executable, "-W", "ignore", "-m", "moto.server", "--port", "0"]
ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class ObjectStore:
    """Where the store is, and whose keys open it."""

    endpoint: str

    @property
    def environment(self) -> Mapping[str, str]:
        """The standard AWS variables, as somebody would set them for this store."""
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @property
    def options(self) -> dict[str, str]:
        """Storage options for Lance, for those who do not go by the environment."""
        return {
            "aws_access_key_id": KEY_ID,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def client(self, service: str = "s3") -> Any:
        # Slow to import, and most tests need none.
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )

    def new_bucket(self) -> str:
        name = f"bucket-{uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]


@contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    with subprocess.Popen(MOTO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # A line per request follows; unless somebody reads them, the store would block on a full pipe.
        reader = Thread(target=process.stderr.read, daemon=True)
        try:
            endpoint = _endpoint(process.stderr)
            reader.start()
            yield ObjectStore(endpoint)
        finally:
            process.terminate()
            if reader.ident is not None:
                reader.join(30)


def _endpoint(lines: Any) -> str:
    for line in lines:
        if found := ADDRESS.search(line):
            return found.group(1)
    raise AssertionError("moto did not say where it listens")
