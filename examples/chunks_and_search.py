"""Chunks and search: documents become passages, passages get embeddings, and lancedb searches them."""

import math
import re
import sys
import zlib
from tempfile import TemporaryDirectory

import lancedb
import pyarrow as pa

import tidemill
from tidemill import chunkers

DIMENSIONS = 64
DOCUMENTS = [
    {"title": "Tides", "text": "The moon pulls the sea. Twice a day the water rises. Spring tides are high."},
    {
        "title": "Mills",
        "text": "A wheel turns the stones. The stones grind grain into flour. Bakers buy flour.",
    },
]


@tidemill.udf(output=pa.list_(pa.float32(), DIMENSIONS))
def embedding(text: str) -> list[float]:
    """Counts words in hashed positions. It stands for a model, needs no download and is deterministic."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"[a-z]{4,}", text.lower()):
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    length = math.sqrt(sum(number * number for number in vector)) or 1
    return [number / length for number in vector]


def main(lake: tidemill.Lake) -> None:
    lake.create_namespace("wiki")
    documents = lake.create_table("wiki.documents", DOCUMENTS)
    # A view with one row per sentence, with the title of its document. Views can have computed columns.
    sentences = tidemill.chunker(chunkers.sentences)
    passages = lake.create_materialized_view("wiki.passages", documents.select("title").chunk(sentences))
    passages.refresh().wait()
    passages.add_column("embedding", embedding)
    passages.backfill("embedding").wait()

    # A new document adds its own passages, and only these get embeddings.
    documents.add([{"title": "Ships", "text": "A ship needs deep water. Pilots know the harbour."}])
    refresh = passages.refresh().wait()
    backfill = passages.backfill("embedding").wait()
    print(f"{refresh.progress.computed} new document, {backfill.progress.computed} new embeddings")
    assert (refresh.progress.computed, backfill.progress.computed) == (1, 2)

    # A new sentence in an old document is one more, although it moves those behind it.
    documents.to_lance().update({"text": "'Tides are slow waves. ' || text"}, where="title = 'Tides'")
    passages.refresh().wait()
    backfill = passages.backfill("embedding").wait()
    print(f"{backfill.progress.computed} new embedding for a new sentence")
    assert backfill.progress.computed == 1

    # Tables and views are open: this is the client of lancedb, as it comes.
    database = lancedb.connect_namespace("rest", {"uri": lake.url})
    table = database.open_table("passages", namespace_path=["wiki"])
    question = embedding("How do stones make flour from grain?")
    found = table.search(question, vector_column_name="embedding").limit(3).to_list()
    for row in found:
        print(f"{row['_distance']:.2f} {row['title']}: {row['text']}")
    assert found[0]["text"] == "The stones grind grain into flour."


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
