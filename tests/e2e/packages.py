"""Tiny packages that need no index: wheels written by hand."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile


def wheel(folder: Path, name: str, source: str) -> str:
    """Writes a package of one module and returns the requirement that installs it from its file."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    content = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*content, f"{info}/RECORD"))
    with ZipFile(path, "w") as archive:
        for file, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return f"{name} @ {path.as_uri()}"
