"""Clients in Go, Rust and JavaScript, each with the scenario of its name in `scenarios/`.

A package manager downloads the client below the cache folder, and the compiler builds the scenario there.
The versions are pinned here, so no lock file is kept: it would name the registry that it was made with.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.clients.client import Client, ClientMissing, run_installer

SCENARIOS: Final = Path(__file__).parent / "scenarios"
CARGO: Final = """[package]
name = "scenario"
version = "0.0.0"
edition = "2024"

[profile.dev]
debug = false

[dependencies]
"""


def go_program(folder: Path, scenario: str, *modules: str) -> Sequence[str]:
    """Go picks the lowest versions that satisfy all modules, so these alone decide every other version."""
    requirements = "\n".join(f"require {module}" for module in modules)
    _place(folder, scenario, Path("main.go"), {"go.mod": f"module scenario\n\ngo 1.25\n\n{requirements}\n"})
    _require("go")
    run_installer("go", "mod", "tidy", cwd=folder)
    run_installer("go", "build", "-o", "scenario", ".", cwd=folder)
    return [str(folder / "scenario")]


def cargo_program(folder: Path, scenario: str, *dependencies: str) -> Sequence[str]:
    _place(folder, scenario, Path("src/main.rs"), {"Cargo.toml": CARGO + "\n".join(dependencies) + "\n"})
    _require("cargo")
    run_installer("cargo", "build", "--quiet", "--target-dir", str(folder / "target"), cwd=folder)
    return [str(folder / "target" / "debug" / "scenario")]


def node_program(folder: Path, scenario: str, *packages: str) -> Sequence[str]:
    program = _place(folder, scenario, Path("scenario.mjs"), {"package.json": '{"private": true}\n'})
    _require("npm")
    run_installer("npm", "install", "--silent", "--no-save", "--no-package-lock", *packages, cwd=folder)
    return ["node", str(program)]


def _place(folder: Path, scenario: str, program: Path, files: dict[str, str]) -> Path:
    """Writes what differs, so that a compiler has nothing to do when nothing has changed."""
    contents = {
        program: (SCENARIOS / scenario).read_text(),
        **{Path(name): text for name, text in files.items()},
    }
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return folder / program


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise ClientMissing(f"{program} is not installed")


def _iceberg_go(folder: Path) -> Sequence[str]:
    return go_program(folder, "iceberg_go_scenario.go", "github.com/apache/iceberg-go v0.7.0")


def _iceberg_rust(folder: Path) -> Sequence[str]:
    return cargo_program(
        folder,
        "iceberg_rust_scenario.rs",
        'iceberg = "=0.10.1"',
        'iceberg-catalog-rest = "=0.10.1"',
        'arrow-array = "=58.4.1"',
        'parquet = "=58.4.1"',
        'futures = "=0.3.34"',
        'serde_json = "=1.0.154"',
        'tokio = { version = "=1.54.1", features = ["full"] }',
    )


def _iceberg_js(folder: Path) -> Sequence[str]:
    return node_program(folder, "iceberg_js_scenario.mjs", "iceberg-js@1.0.0")


def _lancedb_node(folder: Path) -> Sequence[str]:
    return node_program(folder, "lancedb_node_scenario.mjs", "@lancedb/lancedb@0.39.0", "apache-arrow@18.1.0")


def _lance_namespace_rust(folder: Path) -> Sequence[str]:
    return cargo_program(
        folder,
        "lance_namespace_rust_scenario.rs",
        'lance-namespace-reqwest-client = "=0.13.0"',
        'arrow-array = "=58.4.1"',
        'arrow-ipc = "=58.4.1"',
        'arrow-schema = "=58.4.1"',
        'serde_json = "=1.0.154"',
        'tokio = { version = "=1.54.1", features = ["full"] }',
    )


CLIENTS: Final = (
    Client("iceberg-go", "0.7.0", "iceberg", _iceberg_go),
    Client("iceberg-js", "1.0.0", "iceberg", _iceberg_js),
    Client("iceberg-rust", "0.10.1", "iceberg", _iceberg_rust),
    # Workers build the indexes that these two ask for.
    Client(
        "lance-namespace-rust",
        "0.13.0",
        "lance",
        _lance_namespace_rust,
        timeout_seconds=600,
        needs_worker=True,
    ),
    Client("lancedb-node", "0.39.0", "lance", _lancedb_node, timeout_seconds=600, needs_worker=True),
)
