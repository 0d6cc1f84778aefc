"""Requests are signed as S3 verifies them, and only for objects of the table."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import uuid4

import httpx
import pytest

from tests.object_store import KEY_ID, REGION, SECRET, ObjectStore
from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput
from tidemill.storage.s3 import S3Prefix
from tidemill.storage.signing import OutsideTable, S3RequestSigner

ROOT = S3Prefix("bucket", "lake")
TABLE = "s3://bucket/lake/iceberg/t"
ENDPOINT = "http://store:9000"
FILE = f"{ENDPOINT}/bucket/lake/iceberg/t/data/f.parquet"
BUCKET = f"{ENDPOINT}/bucket"
KEYS = SimpleNamespace(access_key="me", secret_key="hush", token=None)
SESSION = SimpleNamespace(access_key="me", secret_key="hush", token="for a while")


def signer(endpoint: str | None = ENDPOINT, keys: SimpleNamespace = KEYS) -> S3RequestSigner:
    return S3RequestSigner(ROOT, endpoint, lambda: keys)


def signed(
    uri: str,
    method: str = "GET",
    headers: Mapping[str, Sequence[str]] | None = None,
    body: str | None = None,
    location: str = TABLE,
) -> SignedRequest:
    return signer().sign(location, SignRequest(REGION, method, uri, headers or {}, body))


def header(request: SignedRequest, name: str) -> str:
    [value] = [",".join(values) for key, values in request.headers.items() if key.lower() == name]
    return value


def is_verified(request: SignedRequest, method: str, secret: str = "hush") -> bool:
    """What S3 does with a request, as its documentation has it."""
    scheme, credential, names, signature = header(request, "authorization").replace(",", "").split(" ")
    _, date, region, service, end = credential.removeprefix("Credential=").split("/")
    signed_names = names.removeprefix("SignedHeaders=").split(";")
    parts = urlsplit(request.uri)
    query = sorted(
        (quote(key, safe="-_.~"), quote(value, safe="-_.~"))
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    canonical = "\n".join(
        [
            method,
            quote(unquote(parts.path), safe="/-_.~"),
            "&".join(f"{key}={value}" for key, value in query),
            *(f"{name}:{parts.netloc if name == 'host' else header(request, name)}" for name in signed_names),
            "",
            ";".join(signed_names),
            header(request, "x-amz-content-sha256"),
        ]
    )
    scope = "/".join([date, region, service, end])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join([scheme, header(request, "x-amz-date"), scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return signature == f"Signature={hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}"


def deletion(*keys: str, more: str = "") -> str:
    objects = "".join(f"<Object><Key>{key}</Key>{more}</Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>true</Quiet></Delete>'


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", FILE),
        ("HEAD", FILE),
        ("PUT", FILE),
        ("DELETE", FILE),
        ("GET", f"{ENDPOINT}/bucket/lake/iceberg/t/day=2024-01-01/a b.parquet".replace(" ", "%20")),
        ("GET", f"{ENDPOINT}/bucket/lake/iceberg/t/%C3%BC%2541"),
        ("POST", f"{FILE}?uploads"),
        ("PUT", f"{FILE}?uploadId=a%2Fb&partNumber=2&x-id=UploadPart"),
        ("GET", f"{BUCKET}?list-type=2&prefix=lake%2Ficeberg%2Ft%2Fdata&delimiter=%2F"),
        ("GET", f"{BUCKET}/?prefix=lake/iceberg/t/&list-type=2"),
        ("GET", f"{BUCKET}?location"),
    ],
)
def test_the_signature_is_the_one_that_s3_computes(method: str, uri: str) -> None:
    headers = {
        "Range": ["bytes=0-9"],
        "Content-Type": ["text/plain"],
        "x-amz-meta-a": ["b"],
        "Host": ["elsewhere"],
    }
    assert is_verified(signed(uri, method, headers), method)


@pytest.mark.parametrize(
    "host",
    ["s3.amazonaws.com", "s3.eu-west-1.amazonaws.com", "s3.dualstack.us-gov-west-1.amazonaws.com"],
)
def test_amazons_hosts_are_known_in_both_styles(host: str) -> None:
    for uri in (f"https://bucket.{host}/lake/iceberg/t/f", f"https://{host}/bucket/lake/iceberg/t/f"):
        answer = signer(None).sign(TABLE, SignRequest(REGION, "GET", uri, {}))
        assert (answer.uri, is_verified(answer, "GET")) == (uri, True)


def test_a_table_may_be_named_with_hadoops_scheme() -> None:
    assert is_verified(signed(FILE, location="s3a://bucket/lake/iceberg/t/"), "GET")


def test_headers_that_change_between_uses_of_a_signature_are_not_part_of_it() -> None:
    answer = signed(FILE, headers={"Range": ["bytes=0-9"], "User-Agent": ["it"], "amz-sdk-retry": ["1"]})
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date," in header(answer, "authorization")
    assert (answer.headers["Range"], answer.headers["User-Agent"]) == (["bytes=0-9"], ["it"])


def test_the_host_is_that_of_the_uri_whatever_the_client_says() -> None:
    answer = signed(
        FILE, headers={"Host": ["other.store"], "Authorization": ["mine"], "X-Amz-Date": ["then"]}
    )
    assert answer.headers["host"] == ("store:9000",)
    assert sorted(name.lower() for name in answer.headers) == [
        "authorization",
        "host",
        "x-amz-content-sha256",
        "x-amz-date",
    ]


def test_the_token_of_a_session_is_sent_along() -> None:
    answer = signer(keys=SESSION).sign(TABLE, SignRequest(REGION, "GET", FILE, {}))
    assert (header(answer, "x-amz-security-token"), is_verified(answer, "GET")) == ("for a while", True)


def test_a_body_stays_unsigned_unless_the_client_tells_its_hash() -> None:
    digest = hashlib.sha256(b"it").hexdigest()
    assert header(signed(FILE, "PUT"), "x-amz-content-sha256") == "UNSIGNED-PAYLOAD"
    told = signed(FILE, "PUT", {"X-Amz-Content-Sha256": [digest]})
    assert (header(told, "x-amz-content-sha256"), is_verified(told, "PUT")) == (digest, True)


def test_removals_are_signed_for_the_very_body_that_was_judged() -> None:
    body = deletion("lake/iceberg/t/a", "lake/iceberg/t/b")
    answer = signed(f"{BUCKET}?delete", "POST", {"x-amz-content-sha256": ["UNSIGNED-PAYLOAD"]}, body)
    assert header(answer, "x-amz-content-sha256") == hashlib.sha256(body.encode()).hexdigest()
    assert is_verified(answer, "POST")


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", f"{BUCKET}/lake/iceberg/other/f"),
        ("GET", f"{BUCKET}/lake/iceberg/t"),
        ("GET", f"{BUCKET}/lake/iceberg/table/f"),
        ("GET", f"{BUCKET}/lake/iceberg/t/../other/f"),
        ("GET", f"{BUCKET}/lake/iceberg/t/%2e%2e/other/f"),
        ("GET", f"{BUCKET}/lake/iceberg/t/%2E%2E%2Fother/f"),
        ("GET", f"{BUCKET}/lake/iceberg/t/./f"),
        ("GET", f"{BUCKET}/Lake/iceberg/t/f"),
        ("GET", f"{BUCKET}?list-type=2&prefix=lake"),
        ("GET", f"{BUCKET}?list-type=2&prefix=lake/iceberg/t"),
        ("GET", f"{BUCKET}?list-type=2&prefix=lake/iceberg/t/../other"),
        ("GET", f"{BUCKET}?list-type=2&prefix="),
    ],
)
def test_what_lies_outside_the_table_is_not_signed(method: str, uri: str) -> None:
    with pytest.raises(OutsideTable, match=r"outside the table's location s3://bucket/lake/iceberg/t"):
        signed(uri, method)


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", f"{ENDPOINT}/other/lake/iceberg/t/f"),
        ("GET", "http://elsewhere/bucket/lake/iceberg/t/f"),
        ("GET", "http://store:9000@elsewhere/bucket/lake/iceberg/t/f"),
        ("GET", "https://store:9000/bucket/lake/iceberg/t/f"),
        ("GET", "http://bucket.elsewhere/lake/iceberg/t/f"),
        ("GET", "http://bucket.s3.amazonaws.com/lake/iceberg/t/f"),
        ("GET", "ftp://store:9000/bucket/lake/iceberg/t/f"),
        ("GET", f"{FILE}#x"),
        ("GET", f"{BUCKET}/lake/iceberg/t/%ff"),
        ("GET", f"{BUCKET}/lake/iceberg/t/%00"),
        ("GET", f"{BUCKET}/lake/iceberg/t/..\\f"),
        ("GET", f"{FILE}?acl"),
        ("PUT", f"{FILE}?tagging"),
        ("GET", f"{FILE}?versionId=1"),
        ("GET", f"{FILE}?X-Amz-Signature=1"),
        ("PATCH", FILE),
        ("GET", BUCKET),
        ("HEAD", BUCKET),
        ("DELETE", BUCKET),
        ("PUT", f"{BUCKET}?policy"),
        ("GET", f"{BUCKET}?versions&prefix=lake/iceberg/t/"),
        ("GET", f"{BUCKET}?prefix=lake/iceberg/t/&prefix=lake"),
        ("DELETE", f"{BUCKET}?prefix=lake/iceberg/t/"),
        ("POST", f"{BUCKET}?delete"),
    ],
)
def test_what_no_table_needs_is_not_signed(method: str, uri: str) -> None:
    with pytest.raises(InvalidInput):
        signed(uri, method)


@pytest.mark.parametrize(
    "host", ["bucket.s3.amazonaws.com.evil.org", "evil.org", "bucket.s3-accesspoint.eu-west-1.amazonaws.com"]
)
def test_other_hosts_than_amazons_are_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="is not in the bucket"):
        signer(None).sign(TABLE, SignRequest(REGION, "GET", f"https://{host}/lake/iceberg/t/f", {}))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no xml",
        "<Delete></Delete>",
        f"<!DOCTYPE x>{deletion('lake/iceberg/t/a')}",
        deletion("lake/iceberg/t/a", more="<VersionId>1</VersionId>"),
        deletion("lake/iceberg/t/a").replace("Delete", "Keep"),
        deletion("lake/iceberg/t/a").replace("<Quiet>", "<Other/><Quiet>"),
    ],
)
def test_removals_without_a_clear_body_are_not_signed(body: str) -> None:
    with pytest.raises(InvalidInput, match="body"):
        signed(f"{BUCKET}?delete", "POST", body=body)


def test_removals_of_other_objects_are_not_signed() -> None:
    with pytest.raises(OutsideTable, match="lake/iceberg/other/b"):
        signed(f"{BUCKET}?delete", "POST", body=deletion("lake/iceberg/t/a", "lake/iceberg/other/b"))


@pytest.mark.parametrize(
    "source", ["/bucket/lake/iceberg/other/f", "other/lake/iceberg/t/f", "bucket/lake%2Fsecret"]
)
def test_copies_of_other_objects_are_not_signed(source: str) -> None:
    with pytest.raises(OutsideTable):
        signed(FILE, "PUT", {"X-Amz-Copy-Source": [source]})


def test_copies_within_the_table_are_signed() -> None:
    answer = signed(FILE, "PUT", {"x-amz-copy-source": ["/bucket/lake/iceberg/t/g"]})
    assert is_verified(answer, "PUT")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-acl": ["public-read"]},
        {"X-Amz-Grant-Read": ["everybody"]},
        {"a b": ["c"]},
        {"a": ["b\r\nHost: elsewhere"]},
        {"a": ["b"], "A": ["c"]},
        {"x-amz-content-sha256": ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD"]},
    ],
)
def test_headers_that_would_do_more_are_refused(headers: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInput, match="headers"):
        signed(FILE, "PUT", headers)


def test_a_region_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="region"):
        signer().sign(TABLE, SignRequest("eu west", "GET", FILE, {}))


@pytest.mark.parametrize(
    "location", ["s3://other/lake/iceberg/t", "s3://bucket/elsewhere/t", "s3://bucket/lake", "/lake"]
)
def test_tables_outside_the_warehouse_are_not_signed_for(location: str) -> None:
    with pytest.raises(InvalidInput):
        signed(FILE, location=location)


def test_a_store_takes_what_is_signed(object_store: ObjectStore) -> None:
    bucket = object_store.new_bucket()
    keys = SimpleNamespace(access_key=KEY_ID, secret_key=SECRET, token=None)
    own = S3RequestSigner(S3Prefix(bucket, ""), object_store.endpoint, lambda: keys)
    table, name = f"s3://{bucket}/t", f"day=1/{uuid4()} ü"
    uri = f"{object_store.endpoint}/{bucket}/t/{quote(name)}"

    def send(method: str, data: bytes | None = None) -> httpx.Response:
        answer = own.sign(table, SignRequest(REGION, method, uri, {}))
        headers = {key: ",".join(values) for key, values in answer.headers.items()}
        return httpx.request(method, answer.uri, headers=headers, content=data)

    assert send("PUT", b"rows").status_code == 200
    assert object_store.keys(bucket) == [f"t/{name}"]
    assert send("GET").content == b"rows"
