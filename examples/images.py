"""Images as blobs: a function reads a blob like a file, so only the bytes it needs are fetched."""

import io
import sys
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
from PIL import Image

import tidemill


class Size(NamedTuple):
    width: int
    height: int


@tidemill.udf
def size(image: tidemill.Blob) -> Size:
    # Pillow reads the header and no pixels.
    with Image.open(io.BufferedReader(image)) as picture:
        return Size(*picture.size)


@tidemill.udf
def thumbnail(image: bytes) -> bytes:
    # With `bytes` instead of `Blob`, the function gets the whole value.
    with Image.open(io.BytesIO(image)) as picture:
        picture.thumbnail((32, 32))
        return png(picture)


def png(picture: Image.Image) -> bytes:
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


def main(lake: tidemill.Lake) -> None:
    # Lance stores a column with this metadata apart from the others, for values of megabytes and more.
    blob = pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("name", pa.string()), blob])
    colours = {"black": (640, 480), "white": (320, 200), "gray": (1024, 1024)}
    pictures = [png(Image.new("RGB", dimensions, name)) for name, dimensions in colours.items()]
    lake.create_namespace("media")
    photos = lake.create_table("media.photos", pa.table([list(colours), pictures], schema=schema))

    # One call of `size` fills two columns.
    photos.add_columns(["width", "height"], size)
    photos.add_column("thumbnail", thumbnail)
    for column in ("width", "thumbnail"):
        photos.backfill(column).wait()

    rows = photos.query(columns=["name", "width", "height", "thumbnail"]).to_pylist()
    for row in rows:
        small = Image.open(io.BytesIO(row["thumbnail"]))
        print(f"{row['name']}: {row['width']} × {row['height']}, thumbnail {small.width} × {small.height}")
    assert {row["name"]: (row["width"], row["height"]) for row in rows} == colours


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
    ):
        main(lake)
