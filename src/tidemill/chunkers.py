"""Chunkers that split texts so that a small edit changes few chunks.

A view keeps the rows of chunks whose text did not change, with all that was computed from them. That saves
work only if the chunks behind an edit stay the same, which they do not if texts are cut at fixed
distances. The functions here decide about each cut by the text around it alone, so an edit moves only the
cuts nearby:

- `sentences`: at the ends of sentences and paragraphs; for prose.
- `markdown`: at headings; for documentation and notes.
- `tokens`: chunks of a limited number of tokens that overlap; for models with a small context.
- `content_defined`: chunks of a limited number of characters; for logs, code and texts without sentences.

They are plain functions. Declare one as it is, or in a function of your own that sets its options:

>>> import tidemill
>>> from tidemill import chunkers
>>> passages = tidemill.chunker(chunkers.sentences)
>>> passages.inputs, passages.output.names
(('text',), ['text', 'start'])

>>> from collections.abc import Iterator
>>> @tidemill.chunker
... def windows(body: str) -> Iterator[chunkers.Chunk]:
...     return chunkers.tokens(body, size=100, overlap=20)
>>> windows.inputs
('body',)

Every chunk is a piece of its text: `text[chunk.start : chunk.start + len(chunk.text)] == chunk.text`. No text
(None, or nothing but white space) has no chunks. The time they take grows with the length of the text alone.

Workers know these functions by name, so the catalog does not notice if their code changes. What they return
is therefore fixed: other rules for cutting get another name.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["Chunk", "Section", "content_defined", "markdown", "sentences", "tokens"]


class Chunk(NamedTuple):
    """A piece of a text, and the offset at which it starts, in characters."""

    text: str
    start: int


class Section(NamedTuple):
    """A piece of a Markdown text, with the heading it starts with; the level is 0 if it has none."""

    text: str
    start: int
    heading: str
    level: int


# Ends of sentences that no space has to follow.
WIDE_STOPS: Final = "。！？｡"
STOPS: Final = ".!?…" + WIDE_STOPS
OPENERS: Final = "\"'“‘«([{「『（【《*_"
CLOSERS: Final = "\"'”’»)]}」』）】》*_"
# Words, which end at white space; and after a wide stop and what closes there.
WORD: Final = re.compile(rf"[^\s{WIDE_STOPS}]*+[{WIDE_STOPS}]++[{re.escape(CLOSERS)}]*+|[^\s{WIDE_STOPS}]++")
# Initials and the numbers of lists and chapters, with a period that ends no sentence.
NUMBERING: Final = re.compile(r"\W*(?:[^\W\d_]|\d{1,2})\.")


def sentences(text: str | None) -> Iterator[Chunk]:
    """The sentences of a text; a blank line ends a sentence, too.

    A sentence ends with a stop (`.`, `!`, `?`, `…` or a wide one such as `。`) and what closes after it,
    before white space and a word that does not start with a small letter. There is no list of abbreviations:
    "Dr. No" is cut in two. A text without stops and blank lines is one chunk, however long it is.

    An edit changes the sentences it touches, and at most one before and one behind them.

    >>> [chunk.text for chunk in sentences('It turns. "Does it?" Yes, e.g. at high tide.')]
    ['It turns.', '"Does it?"', 'Yes, e.g. at high tide.']
    >>> list(sentences("潮が満ちる。水車が回る。"))
    [Chunk(text='潮が満ちる。', start=0), Chunk(text='水車が回る。', start=6)]
    """
    text = text or ""
    start, end, last = 0, 0, ""
    for word in WORD.finditer(text):
        if not last:
            start = word.start()
        elif _is_between_sentences(last, text[end : word.start()], word.group()):
            yield Chunk(text[start:end], start)
            start = word.start()
        end, last = word.end(), word.group()
    if last:
        yield Chunk(text[start:end], start)


def _is_between_sentences(word: str, space: str, following: str) -> bool:
    if len(f".{space}.".splitlines()) > 2:
        return True
    ending = word.rstrip(CLOSERS)[-1:]
    if not ending or ending not in STOPS:
        return False
    if ending in WIDE_STOPS:
        return True
    return not NUMBERING.fullmatch(word) and not following.lstrip(OPENERS)[:1].islower()


LINE: Final = re.compile(r"[^\r\n]++")
HEADING: Final = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
FENCE: Final = re.compile(r" {0,3}(`{3,}+(?=[^`]*+$)|~{3,}+)")


def markdown(text: str | None) -> Iterator[Section]:
    """The sections of a Markdown text: each from a heading (`#` to `######`) to the next one of any level.

    Headings inside fenced code are code. Underlined headings are not recognized. What comes before the first
    heading is a section of its own.

    An edit changes the sections it touches, and at most one before and one behind them. If it opens or closes
    fenced code, it also changes what becomes or stops being code by that.

    >>> for section in markdown("Intro\\n\\n# Mills\\nThey turn.\\n## Tide mills ##\\nTwice a day."):
    ...     print(section)
    Section(text='Intro', start=0, heading='', level=0)
    Section(text='# Mills\\nThey turn.', start=7, heading='Mills', level=1)
    Section(text='## Tide mills ##\\nTwice a day.', start=26, heading='Tide mills', level=2)
    """
    text = text or ""
    start, heading, level = len(text) - len(text.lstrip()), "", 0
    for line, depth in _headings(text):
        if line.start() > start:
            yield Section(text[start : line.start()].rstrip(), start, heading, level)
        start = line.start() + line.group().index("#")
        heading, level = _title(line.group()), depth
    if start < len(text):
        yield Section(text[start:].rstrip(), start, heading, level)


def _headings(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The lines outside fenced code that are headings, with their levels."""
    fence = ""
    for line in LINE.finditer(text):
        marked = FENCE.match(line.group())
        if fence:
            rest = line.group().strip()
            if marked and len(rest) >= len(fence) and not rest.strip(fence[0]):
                fence = ""
        elif marked:
            fence = marked.group(1)
        elif found := HEADING.match(line.group()):
            yield line, len(found.group(1))


def _title(line: str) -> str:
    title = line.strip(" \t").lstrip("#").strip(" \t")
    bare = title.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else title


# A word, a punctuation mark, or a character of a script that puts no spaces between words.
UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
TOKEN: Final = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]++|[^\w\s]")
TOKENS_HASHED: Final = 2


def tokens(text: str | None, *, size: int = 256, overlap: int = 32) -> Iterator[Chunk]:
    """Chunks of at most `size` tokens, each of which starts with the last `overlap` tokens of the one before.

    A token is a word, a punctuation mark, or a single character in scripts without spaces. Models count
    otherwise; leave them some room. Windows of a fixed length would all shift with an edit, so these end
    where a hash of the tokens is larger than around it: a chunk adds a quarter of `size - overlap` tokens to
    the one before or more, and about half of them on average.

    An edit changes 4 chunks at most, if it removes and inserts no more than `(size - overlap) / 4` tokens,
    and those behind them that overlap with one of these. About texts that repeat themselves see
    `content_defined`.

    Raises:
        ValueError: The size is less than 1, or the overlap is negative or not less than the size.

    >>> for chunk in tokens("one two three four five six seven", size=4, overlap=1):
    ...     print(chunk)
    Chunk(text='one', start=0)
    Chunk(text='one two three four', start=0)
    Chunk(text='four five six seven', start=14)
    """
    if size < 1:
        raise ValueError(f"size= is a number of tokens, 1 or more, not {size}")
    if not 0 <= overlap < size:
        raise ValueError(f"overlap= is a number of tokens from 0 to less than size={size}, not {overlap}")
    return _token_chunks(text or "", size - overlap, overlap)


def _token_chunks(text: str, step: int, overlap: int) -> Iterator[Chunk]:
    places = [match.span() for match in TOKEN.finditer(text)]
    if not places:
        return
    values = [zlib.crc32(text[start:end].encode("utf-8", "surrogatepass")) for start, end in places]
    starts = cuts(rolling_hashes(values, TOKENS_HASHED), step)
    for first, end in zip(starts, [*starts[1:], len(places)], strict=True):
        start = places[max(first - overlap, 0)][0]
        yield Chunk(text[start : places[end - 1][1]], start)


CHARACTERS_HASHED: Final = 16


def content_defined(text: str | None, *, size: int = 2000) -> Iterator[Chunk]:
    """Chunks of at most `size` characters, cut where a rolling hash of the text is larger than around it.

    Together the chunks are the text, without a gap or an overlap. A chunk has a quarter of `size` or more,
    unless the text is shorter, and about half of it on average. Cuts are made between words where there are
    any.

    A cut is made where the hash of the last 16 characters is the largest within a quarter of `size` on both
    sides, and depends on nothing else. An edit therefore changes 4 chunks at most, if it removes and inserts
    no more than `size / 4 - 12` characters. Where the hash has no such peak for a whole `size`, which is rare
    unless a text repeats itself, there are cuts in between that may change as well, up to the next peak.

    Raises:
        ValueError: The size is less than 1.

    >>> text = "The tide turns the wheel, and the wheel turns the stone. " * 3
    >>> chunks = list(content_defined(text, size=80))
    >>> "".join(chunk.text for chunk in chunks) == text
    True
    """
    if size < 1:
        raise ValueError(f"size= is a number of characters, 1 or more, not {size}")
    return _character_chunks(text or "", size)


def _character_chunks(text: str, size: int) -> Iterator[Chunk]:
    if not text.strip():
        return
    hashes = rolling_hashes([ord(character) for character in text], CHARACTERS_HASHED)
    for word in re.finditer(r"(?<=\s)\S", text):
        hashes[word.start()] += PRIME
    starts = cuts(hashes, size)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield Chunk(text[start:end], start)


PRIME: Final = (1 << 61) - 1
BASE: Final = 0x1B873593CC9E2D51


def rolling_hashes(values: Sequence[int], width: int) -> list[int]:
    """For each place, a hash of the value there and the `width - 1` values before it."""
    leaving, current, hashes = pow(BASE, width, PRIME), 0, []
    for place, value in enumerate(values):
        gone = values[place - width] + 1 if place >= width else 0
        current = (current * BASE + value + 1 - gone * leaving) % PRIME
        hashes.append(current)
    return hashes


def cuts(hashes: Sequence[int], most: int) -> list[int]:
    """Where chunks of at most `most` values start: at peaks, and between those that are too far apart."""
    least, starts = shortest(most), [0]
    for end in [*peaks(hashes, least), len(hashes)]:
        while end - starts[-1] > most:
            low, high = starts[-1] + least, min(starts[-1] + most, end - least)
            # The last of equal ones: where a text repeats itself, so do the chunks.
            starts.append(max(range(low, high + 1), key=lambda place: (hashes[place], place)))
        if end < len(hashes):
            starts.append(end)
    return starts


def shortest(most: int) -> int:
    """The length of the shortest chunk, if the longest one has this length."""
    return max(most // 4, 1)


def peaks(hashes: Sequence[int], reach: int) -> list[int]:
    """Places with a larger hash than the `reach` places before them, and none larger in those behind them."""
    before = _largest_before(hashes, reach)
    behind = _largest_before(hashes[::-1], reach)[::-1]
    return [
        place
        for place in range(reach, len(hashes) - reach + 1)
        if before[place] < hashes[place] >= behind[place]
    ]


def _largest_before(values: Sequence[int], reach: int) -> list[int]:
    """For each place, the largest of the `reach` values before it, or -1."""
    largest: list[int] = []
    # Places that may hold the largest value of a window to come: the values fall from left to right.
    window: deque[int] = deque()
    for place, value in enumerate(values):
        if window and window[0] < place - reach:
            window.popleft()
        largest.append(values[window[0]] if window else -1)
        while window and values[window[-1]] <= value:
            window.pop()
        window.append(place)
    return largest
