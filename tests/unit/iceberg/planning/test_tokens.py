"""Tokens come back as they were given, or not at all."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from tidemill.iceberg.planning.tokens import decode, encode

TABLE = uuid4()
PAYLOAD = {
    "scan": {"snapshot-id": 2**62, "filter": {"type": "eq", "term": "ü", "value": "x" * 100}},
    "first": 7,
}


def test_a_token_gives_back_what_is_in_it() -> None:
    assert decode(encode(PAYLOAD, TABLE), TABLE) == PAYLOAD


def test_a_token_is_safe_in_a_path() -> None:
    assert encode(PAYLOAD, TABLE).replace("-", "").replace("_", "").isalnum()


def test_a_token_of_another_table_is_none() -> None:
    assert decode(encode(PAYLOAD, TABLE), uuid4()) is None


@given(st.data())
def test_a_changed_token_is_none(data: st.DataObject) -> None:
    token = encode(PAYLOAD, TABLE)
    # The last character has bits that carry nothing.
    place = data.draw(st.integers(0, len(token) - 2))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    assert decode(token[:place] + other + token[place + 1 :], TABLE) is None


@given(st.one_of(st.text(), st.binary().map(lambda data: data.hex())))
def test_text_that_is_no_token_is_none(text: str) -> None:
    assert decode(text, TABLE) is None
