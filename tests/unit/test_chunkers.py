"""Chunks are pieces of their text that cover it, and an edit changes few of them."""

from __future__ import annotations

import doctest
import random
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidemill
from tidemill import chunkers
from tidemill.chunkers import Chunk, Section

PIECES = [
    "a",
    "B",
    "tide",
    " ",
    "  ",
    ". ",
    "? ",
    "!",
    "…",
    "。",
    "）",
    '"',
    "(",
    "\n",
    "\r\n",
    "\n\n",
    "é",
    "漢字",
    "\ud800",
]
LINES = ["# a", "## b ##", "####### c", "#d", "   # e", "text", "", " ", "```", "~~~~", "```sh", "# "]
PROSE = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
MARKDOWN = st.lists(st.sampled_from(LINES), max_size=20).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines))
)
WORDS = st.tuples(st.integers(0, 10**6), st.integers(0, 300)).map(lambda drawn: random_words(*drawn))
TEXTS = st.one_of(st.none(), PROSE, MARKDOWN, WORDS, st.text(max_size=50))
CHUNKERS: dict[str, Callable[[str | None], Iterable[Any]]] = {
    "sentences": chunkers.sentences,
    "markdown": chunkers.markdown,
    "tokens": lambda text: chunkers.tokens(text, size=9, overlap=3),
    "small tokens": lambda text: chunkers.tokens(text, size=2, overlap=1),
    "content_defined": lambda text: chunkers.content_defined(text, size=40),
    "characters": lambda text: chunkers.content_defined(text, size=1),
}


def random_words(seed: int, count: int) -> str:
    drawn = random.Random(seed)
    return " ".join("".join(drawn.choices("abcdefgh", k=drawn.randint(1, 8))) for _ in range(count))


class Edit(NamedTuple):
    """Replaces some characters of a text; places are shares of it."""

    place: float
    length: int
    inserted: str

    def start(self, text: str) -> int:
        return int(self.place * len(text))

    def end(self, text: str) -> int:
        return min(self.start(text) + self.length, len(text))

    def of(self, text: str) -> str:
        return text[: self.start(text)] + self.inserted + text[self.end(text) :]


EDITS = st.builds(
    Edit,
    st.floats(0, 1),
    st.integers(0, 6),
    st.one_of(st.sampled_from(["", *PIECES]), st.text("ab .#\n", max_size=6)),
)


@pytest.mark.parametrize("name", CHUNKERS)
@given(text=TEXTS)
def test_chunks_are_pieces_of_the_text_that_cover_it(name: str, text: str | None) -> None:
    chunks = list(CHUNKERS[name](text))
    source = text or ""
    assert all(chunk.text and source.startswith(chunk.text, chunk.start) for chunk in chunks)
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)
    covered = {place for c in chunks for place in range(c.start, c.start + len(c.text))}
    assert {place for place, character in enumerate(source) if not character.isspace()} <= covered
    if "tokens" not in name:
        assert sum(len(chunk.text) for chunk in chunks) == len(covered)


def touched(chunks: Sequence[Any], start: int, end: int) -> int:
    return sum(chunk.start <= end and start <= chunk.start + len(chunk.text) for chunk in chunks)


def check_touched(split: Callable[[str], Iterable[Any]], before: str, edit: Edit) -> None:
    """Changed are the chunks that the edit touches, and at most one before and one behind them."""
    after = edit.of(before)
    old, new = list(split(before)), list(split(after))
    removed = Counter(chunk.text for chunk in old) - Counter(chunk.text for chunk in new)
    added = Counter(chunk.text for chunk in new) - Counter(chunk.text for chunk in old)
    start = edit.start(before)
    assert removed.total() <= touched(old, start, edit.end(before)) + 2
    assert added.total() <= touched(new, start, start + len(edit.inserted)) + 2


@given(before=st.one_of(PROSE, WORDS), edit=EDITS)
def test_an_edit_changes_the_sentences_it_touches_and_one_on_each_side(before: str, edit: Edit) -> None:
    check_touched(chunkers.sentences, before, edit)


@given(before=MARKDOWN, edit=EDITS)
def test_an_edit_changes_the_sections_it_touches_and_one_on_each_side(before: str, edit: Edit) -> None:
    """Unless it makes or unmakes a line that opens or closes code."""
    assume(fences(before) == fences(edit.of(before)))
    check_touched(chunkers.markdown, before, edit)


def fences(text: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", text) if "```" in line or "~~~" in line]


class Sequences(NamedTuple):
    """What a text is cut by: hashes, the values that go into one, and the longest chunk without overlap."""

    values: Sequence[Any]
    hashes: Sequence[int]
    width: int
    most: int

    def most_changed(self, first: int, count: int) -> int:
        """How many chunks an edit of these values can change: those between peaks that it cannot change."""
        least = chunkers.shortest(self.most)
        peaks = chunkers.peaks(self.hashes, least)
        low = max([0, *(peak for peak in peaks if peak + least < first)])
        high = min([len(self.hashes), *(p for p in peaks if p - least - self.width + 1 >= first + count)])
        starts = [start for start in chunkers.cuts(self.hashes, self.most) if low <= start < high]
        # Without cuts between peaks, that is a number that depends on the lengths alone.
        if set(starts) <= {0, *peaks}:
            assert len(starts) <= (count + 2 * least + self.width - 2) // (least + 1) + 2
        return len(starts)


def check_peaks(old: Sequences, new: Sequences, before: Counter[str], after: Counter[str], more: int) -> None:
    first = next(
        (n for n, pair in enumerate(zip(old.values, new.values, strict=False)) if pair[0] != pair[1]),
        min(len(old.values), len(new.values)),
    )
    shorter = min(len(old.values), len(new.values)) - first
    ends = zip(old.values[::-1], new.values[::-1], strict=False)
    last = next((n for n, (one, other) in enumerate(ends) if n >= shorter or one != other), shorter)
    counts = len(old.values) - first - last, len(new.values) - first - last
    assert (before - after).total() <= old.most_changed(first, counts[0]) + more
    assert (after - before).total() <= new.most_changed(first, counts[1]) + more


def characters(text: str, size: int) -> Sequences:
    hashes = chunkers.rolling_hashes([ord(character) for character in text], chunkers.CHARACTERS_HASHED)
    for word in re.finditer(r"(?<=\s)\S", text):
        hashes[word.start()] += chunkers.PRIME
    return Sequences(text, hashes, chunkers.CHARACTERS_HASHED, size)


@given(before=st.one_of(PROSE, WORDS), edit=EDITS, size=st.sampled_from([1, 7, 40, 100, 400]))
def test_an_edit_changes_the_content_defined_chunks_between_two_peaks(
    before: str, edit: Edit, size: int
) -> None:
    after = edit.of(before)
    assume(before.strip() and after.strip())
    texts = [
        Counter(chunk.text for chunk in chunkers.content_defined(text, size=size)) for text in (before, after)
    ]
    check_peaks(characters(before, size), characters(after, size), texts[0], texts[1], more=0)


def words(text: str, step: int) -> Sequences:
    found = chunkers.TOKEN.findall(text)
    values = [zlib.crc32(token.encode("utf-8", "surrogatepass")) for token in found]
    return Sequences(found, chunkers.rolling_hashes(values, 2), 2, step)


@given(
    before=st.one_of(PROSE, WORDS),
    edit=EDITS,
    sizes=st.sampled_from([(1, 0), (4, 3), (12, 0), (20, 4), (40, 30)]),
)
def test_an_edit_changes_the_tokens_between_two_peaks_and_what_overlaps_with_them(
    before: str, edit: Edit, sizes: tuple[int, int]
) -> None:
    (size, overlap), after = sizes, edit.of(before)
    assume(before.strip() and after.strip())
    texts = [
        Counter(chunk.text for chunk in chunkers.tokens(text, size=size, overlap=overlap))
        for text in (before, after)
    ]
    behind = -(-overlap // chunkers.shortest(size - overlap))
    old, new = words(before, size - overlap), words(after, size - overlap)
    if old.values == new.values:
        # Only the space between two tokens is another.
        assert (texts[0] - texts[1]).total() <= 1 + behind
    else:
        check_peaks(old, new, texts[0], texts[1], more=behind)


@given(text=st.one_of(PROSE, WORDS), size=st.integers(1, 30), data=st.data())
def test_chunks_of_tokens_have_the_sizes_and_overlaps_asked_for(
    text: str, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    starts = {match.start(): number for number, match in enumerate(chunkers.TOKEN.finditer(text))}
    ends = {match.end(): number + 1 for number, match in enumerate(chunkers.TOKEN.finditer(text))}
    chunks = [
        (starts[chunk.start], ends[chunk.start + len(chunk.text)])
        for chunk in chunkers.tokens(text, size=size, overlap=overlap)
    ]
    assert all(0 < end - start <= size for start, end in chunks)
    assert [max(end - overlap, 0) for _, end in chunks[:-1]] == [start for start, _ in chunks[1:]]


@given(text=st.one_of(PROSE, WORDS), size=st.integers(1, 300))
def test_content_defined_chunks_have_the_sizes_asked_for(text: str, size: int) -> None:
    lengths = [len(chunk.text) for chunk in chunkers.content_defined(text, size=size)]
    assert all(length <= size for length in lengths)
    assert len(lengths) < 2 or min(lengths) >= size // 4


@pytest.mark.parametrize("unit", ["=", "-+", "| a | b |\n", "0000000001 ", "tide mill "])
def test_an_edit_in_a_text_that_repeats_itself_changes_few_chunks(unit: str) -> None:
    before = unit * (20000 // len(unit))
    after = before[:10001] + "x" + before[10001:]
    for split in (in_characters, in_tokens):
        old, new = (Counter(chunk.text for chunk in split(text)) for text in (before, after))
        assert max((old - new).total(), (new - old).total()) <= 6


def in_characters(text: str) -> Iterable[Chunk]:
    return chunkers.content_defined(text, size=200)


def in_tokens(text: str) -> Iterable[Chunk]:
    return chunkers.tokens(text, size=60)


@pytest.mark.parametrize("text", [None, "", "  \r\n \t"])
@pytest.mark.parametrize("name", CHUNKERS)
def test_no_text_has_no_chunks(name: str, text: str | None) -> None:
    assert list(CHUNKERS[name](text)) == []


@pytest.mark.parametrize("unit", [".", "#", ")", "`", ". ", "# a\n", "。", "\n", "a  "])
@pytest.mark.timeout(20)
def test_long_texts_take_no_longer_than_others(unit: str) -> None:
    """With a rule that looks back or ahead over all of it, each would take minutes."""
    text = f"a{unit * (200_000 // len(unit))}a"
    for split in (chunkers.sentences, chunkers.markdown, chunkers.tokens, chunkers.content_defined):
        assert any(True for _ in split(text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size= is a number of tokens, 1 or more, not 0"),
        ({"size": 8, "overlap": 8}, "overlap= is a number of tokens from 0 to less than size=8, not 8"),
        ({"size": 8, "overlap": -1}, "overlap= .* not -1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_at_once(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chunkers.tokens("text", **options)


def test_a_size_of_no_characters_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="size= is a number of characters, 1 or more, not 0"):
        chunkers.content_defined("text", size=0)


def test_headings_in_code_are_code() -> None:
    text = "# a\r\n```sh\r\n# no heading\r\n~~~\r\n```\r\n## b\r\n~~~\r\n# nor this"
    assert [(section.heading, section.level) for section in chunkers.markdown(text)] == [("a", 1), ("b", 2)]


FIXED = """Dr. Who? "No," he said... then left. A. Smith stayed (why?) until 3.14 p.m.

# The *tide* mill #
1. It turns. 2 wheels, one stone
## Empty
```
# code
```
潮が満ちる。「水車が回る。」終わり"""


def test_what_chunkers_return_is_fixed() -> None:
    """Views do not notice a change of these functions, so that their rows would be a mixture of both."""
    assert [chunk.start for chunk in chunkers.sentences(FIXED)] == FIXED_SENTENCES
    assert list(chunkers.markdown(FIXED))[1:] == FIXED_SECTIONS
    assert [chunk.start for chunk in chunkers.tokens(FIXED, size=14, overlap=4)] == FIXED_TOKENS
    assert [chunk.start for chunk in chunkers.content_defined(FIXED, size=50)] == FIXED_CHARACTERS


FIXED_SENTENCES = [0, 4, 9, 37, 77, 110, 160, 168]
FIXED_SECTIONS = [
    Section(
        text="# The *tide* mill #\n1. It turns. 2 wheels, one stone",
        start=77,
        heading="The *tide* mill",
        level=1,
    ),
    Section(
        text="## Empty\n```\n# code\n```\n潮が満ちる。「水車が回る。」終わり",
        start=130,
        heading="Empty",
        level=2,
    ),
]
FIXED_TOKENS = [0, 4, 22, 26, 53, 60, 77, 88, 103, 124, 139, 150, 155, 158, 162]
FIXED_CHARACTERS = [0, 15, 40, 71, 83, 133, 154]


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(chunkers)
    assert result.attempted > 10
    assert result.failed == 0


DIGEST = "import tidemill; print(tidemill.chunker(tidemill.chunkers.sentences).function.digest)"


def test_a_chunker_is_known_by_name_and_the_same_in_every_process() -> None:
    declared = tidemill.chunker(chunkers.sentences).function
    assert cloudpickle.loads(declared.payload) is chunkers.sentences
    said = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == declared.digest
    assert declared.digest != tidemill.chunker(chunkers.tokens).function.digest
    assert Chunk._fields == tuple(declared.output.names)
