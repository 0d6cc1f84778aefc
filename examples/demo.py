"""Tour of Tidemill: computes columns and a view from documents and keeps them up to date row by row."""

from __future__ import annotations

import ast
import hashlib
import io
import math
import os
import re
import sysconfig
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image
from rich.console import Console
from rich.table import Table as Grid

import tidemill

ROWS: Final = 4_000
DIMENSIONS: Final = 64
PASSAGE_LENGTH: Final = 400
SHORTEST_TEXT, LONGEST_TEXT = 80, 8_000
SKIPPED_FOLDERS: Final = {"__pycache__", "dist-packages", "idlelib", "site-packages", "test", "tests"}
CELLS, PIXELS = 4, 32
JOB_SECONDS: Final = 300


@tidemill.udf
def word_count(text: str) -> int:
    """Scalar function: called with the value of each row."""
    return len(text.split())


@tidemill.udf(output=pa.int32())
def length(text: pa.Array) -> pa.Array:
    """Array function: called once per batch."""
    return pc.utf8_length(text)


@tidemill.udf(inputs=["title", "text"], output=pa.float32())
def capital_share(batch: pa.RecordBatch) -> pa.Array:
    """Record batch function: the share of capital letters in title and text together."""
    both = pc.binary_join_element_wise(batch["title"], batch["text"], " ")
    capitals = pc.count_substring_regex(both, "[A-Z]")
    return pc.divide(pc.cast(capitals, pa.float32()), pc.cast(pc.utf8_length(both), pa.float32()))


@tidemill.udf(inputs=["text"], output=pa.list_(pa.float32(), DIMENSIONS))
class TextEmbedding:
    """Stateful function: a hashed bag of words, normalized to length one. It needs no download."""

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimensions = dimensions

    def setup(self) -> None:
        """Called once in each worker process; a model would be loaded here."""
        self.words = re.compile(r"[a-z]{4,}")

    def __call__(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.zeros(self.dimensions, np.float32)
        for stem, count in Counter(word[:6] for word in self.words.findall(text.lower())).items():
            code = zlib.crc32(stem.encode())
            vector[code % self.dimensions] += math.sqrt(count) * (1 if code & 0x10000 else -1)
        return vector / max(float(np.linalg.norm(vector)), 1e-9)


@tidemill.udf
def brightness(image: bytes) -> float:
    """Function on images: the mean brightness of a picture, from 0 to 255."""
    with Image.open(io.BytesIO(image)) as picture:
        return float(np.asarray(picture.convert("L")).mean())


class Passage(NamedTuple):
    start: int
    passage: str


@tidemill.chunker
def passages(text: str) -> Iterator[Passage]:
    """Chunker: yields any number of rows per document, passages of about 400 characters cut between words."""
    start = 0
    while start < len(text):
        end = start + PASSAGE_LENGTH
        cut = text.rfind(" ", start + 1, end) if end < len(text) else len(text)
        end = cut if cut > start else end
        yield Passage(start, text[start:end].strip())
        start = end


COLUMNS: Final[dict[str, Any]] = {
    "words": word_count,
    "characters": length,
    "capitals": capital_share,
    "brightness": brightness,
    "embedding": TextEmbedding(),
}


@dataclass
class Report:
    """Collects the steps, their results and how long they took."""

    console: Console = field(default_factory=lambda: Console(highlight=False))
    steps: list[tuple[str, str, float]] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        self.console.rule(name, align="left")
        outcome: list[str] = []
        begun = time.perf_counter()
        yield outcome
        self.steps.append((name, ", ".join(outcome), time.perf_counter() - begun))

    def summary(self, url: str) -> None:
        grid = Grid("Step", "Result", "Seconds", title="Tidemill demo", title_justify="left")
        grid.columns[2].justify = "right"
        for name, outcome, seconds in self.steps:
            grid.add_row(name, outcome, f"{seconds:.1f}")
        grid.add_row(
            "Total", f"server was at {url}", f"{sum(step[2] for step in self.steps):.1f}", style="bold"
        )
        self.console.print(grid)


def main() -> None:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-", ignore_cleanup_errors=True) as folder:
        with report.step("Start the server and its worker") as outcome:
            lake = tidemill.connect(Path(folder) / "lake")
            outcome.append(lake.url)
            report.say(f"{lake!r}, {lake.health()}")
        with lake:
            run(lake, report)
            report.summary(lake.url)


def run(lake: tidemill.Lake, report: Report) -> None:
    with report.step("Collect documents on this machine") as outcome:
        found = collect(ROWS)
        held_back = max(found.num_rows // 100, 1)
        outcome.append(f"{found.num_rows:,} documents")
    with report.step("Create a table of text and images") as outcome:
        lake.create_namespace("library")
        docs = lake.create_table("library.docs", found.slice(0, found.num_rows - held_back))
        outcome.append(f"{docs.count_rows():,} rows")
    with report.step("Wait until Spark is warm") as outcome:
        outcome.append(f"worker {await_worker(lake)}")
    compute_columns(docs, report)
    view = make_passages(lake, docs, report)
    change(docs, found.slice(found.num_rows - held_back), report)
    catch_up(docs, view, report)
    search(lake, report)


def await_worker(lake: tidemill.Lake) -> str:
    deadline = time.monotonic() + JOB_SECONDS
    while lake.health()["worker"] != "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    return str(lake.health()["worker"])


def compute_columns(docs: tidemill.Table, report: Report) -> None:
    for column, function in COLUMNS.items():
        with report.step(f"Backfill '{column}'") as outcome:
            docs.add_column(column, function)
            report.say(str(docs.explain(column)))
            job = docs.backfill(column).wait(JOB_SECONDS, progress=True)
            outcome.append(f"{job.progress.computed:,} computed")
    chosen = ["title", *(column for column in COLUMNS if column != "embedding")]
    show(report, docs.query(columns=chosen, limit=3))


def make_passages(lake: tidemill.Lake, docs: tidemill.Table, report: Report) -> tidemill.View:
    with report.step("Materialize documents as passages") as outcome:
        definition = docs.select("id", "title").chunk(passages)
        view = lake.create_materialized_view("library.passages", definition)
        report.say(str(view.explain()))
        view.refresh().wait(JOB_SECONDS, progress=True)
        outcome.append(f"{docs.count_rows():,} documents, {view.count_rows():,} passages")
    return view


def change(docs: tidemill.Table, new: pa.Table, report: Report) -> None:
    with report.step("Append 1 %, update five, delete three") as outcome:
        docs.add(new)
        docs.to_lance().update(
            {"text": "concat(text, ' Revised at high tide.')"}, where="id BETWEEN 10 AND 14"
        )
        docs.to_lance().delete("id IN (20, 21, 22)")
        outcome.append(f"{docs.count_rows():,} rows, version {docs.version}")


def catch_up(docs: tidemill.Table, view: tidemill.View, report: Report) -> None:
    with report.step("Refresh: only what changed") as outcome:
        report.say(str(view.explain()))
        done = view.refresh().wait(JOB_SECONDS, progress=True).progress
        counts = f"computed {done.computed:,}, reused {done.reused:,}, replaced {done.replaced:,}"
        outcome.append(f"{counts}, removed {done.removed:,}")
        report.say(f"Rows of the source: {outcome[0]}")
    with report.step("Refresh again: nothing to do") as outcome:
        before = view.version
        job = view.refresh().wait(JOB_SECONDS, progress=True)
        if job.progress.computed or job.progress.commits or view.version != before:
            raise SystemExit(f"The second refresh did something: {job.progress}, version {view.version}")
        outcome.append(f"no-op: computed 0, no commit, still version {before}")
        report.say(f"{outcome[0]}; the job says {job.result}")
    with report.step("Backfill what is new and changed") as outcome:
        jobs = [docs.backfill(column).wait(JOB_SECONDS, progress=True) for column in COLUMNS]
        outcome.append(", ".join(f"{job.column} {job.progress.computed:,}" for job in jobs))


def search(lake: tidemill.Lake, report: Report) -> None:
    with report.step("Query with the stock lancedb client") as outcome:
        database = lancedb.connect_namespace("rest", {"uri": lake.url})
        passages = database.open_table("passages", namespace_path=["library"])
        found = passages.search().where("passage LIKE '%iterator%'").select(["title", "passage"]).limit(3)
        show(report, found.to_arrow())
        embed = TextEmbedding()
        embed.setup()
        question = "parse command line arguments and options"
        docs = database.open_table("docs", namespace_path=["library"])
        nearest = docs.search(embed(question).tolist(), vector_column_name="embedding")
        rows = nearest.select(["title", "text", "_distance"]).limit(5).to_arrow()
        show(report, rows)
        outcome.append(f"nearest to '{question}': {rows['title'][0]}")


def show(report: Report, rows: pa.Table) -> None:
    grid = Grid(*rows.column_names)
    for row in rows.to_pylist():
        grid.add_row(*(" ".join(str(value).split())[:60] for value in row.values()))
    report.console.print(grid)


class Document(NamedTuple):
    package: str
    title: str
    text: str


def collect(limit: int) -> pa.Table:
    """Returns at most `limit` documents as a table, each with a small picture drawn from its text."""
    found = list(islice(chain(package_descriptions(), standard_library_docstrings()), limit))
    return pa.table(
        {
            "id": pa.array(range(len(found)), pa.int64()),
            "package": [document.package for document in found],
            "title": [document.title for document in found],
            "text": [document.text for document in found],
            "image": pa.array([draw(document.text) for document in found], pa.binary()),
        }
    )


def package_descriptions() -> Iterator[Document]:
    for distribution in metadata.distributions():
        about: dict[str, Any] = distribution.metadata.json
        text = f"{about.get('summary', '')}\n\n{about.get('description', '')}".strip()
        if about.get("name") and len(text) >= SHORTEST_TEXT:
            yield Document(about["name"], about["name"], text[:LONGEST_TEXT])


def standard_library_docstrings() -> Iterator[Document]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, children, files in os.walk(root):
        children[:] = sorted(set(children) - SKIPPED_FOLDERS)
        for path in sorted(Path(folder, name) for name in files if name.endswith(".py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            yield from docstrings(path, module.removesuffix(".__init__"))


def docstrings(path: Path, module: str) -> Iterator[Document]:
    with warnings.catch_warnings(action="ignore"):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            title = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
            if len(text) >= SHORTEST_TEXT:
                yield Document(module.partition(".")[0], title, text[:LONGEST_TEXT])


def draw(text: str) -> bytes:
    """Draws coloured squares derived from the hash of the text, as PNG."""
    colours = hashlib.shake_128(text.encode()).digest(CELLS * CELLS * 3)
    image = Image.frombytes("RGB", (CELLS, CELLS), colours).resize((PIXELS, PIXELS), Image.Resampling.NEAREST)
    encoded = io.BytesIO()
    image.save(encoded, "PNG", compress_level=1)
    return encoded.getvalue()


if __name__ == "__main__":
    main()
