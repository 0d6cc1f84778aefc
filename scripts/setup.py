"""Sets this folder up: a virtual environment, the locked dependencies, the package and a Java for Spark."""

import fcntl
import hashlib
import importlib.util
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
VENV = FOLDER / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".stamp"
INPUTS = ("pyproject.toml", "requirements.lock", "scripts/uv.lock", "scripts/setup.py")


def main() -> None:
    with (FOLDER / "pyproject.toml").open() as guard:
        # Two make commands may start at once; the second waits and then finds the work done.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not is_done():
            make_environment()
            install_packages()
            STAMP.write_text(fingerprint())
        ensure_java()


def fingerprint() -> str:
    # The folder counts too: a copied environment still points at the folder it came from.
    digest = hashlib.sha256(str(FOLDER).encode())
    for name in INPUTS:
        digest.update((FOLDER / name).read_bytes())
    return digest.hexdigest()


def is_done() -> bool:
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == fingerprint()


def make_environment() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(f"Python {minor} lacks venv: run 'apt install python{minor}-venv', then make again.")
    print("Setting up .venv (once, a few minutes at most) ...", flush=True)
    run(sys.executable, "-m", "venv", "--clear", str(VENV))
    run(str(PYTHON), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", "scripts/uv.lock")


def install_packages() -> None:
    install("--require-hashes", "-r", "requirements.lock")
    install("--no-deps", "--editable", ".")


def install(*arguments: str) -> None:
    try:
        run(
            str(VENV / "bin" / "uv"),
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--python",
            str(PYTHON),
            *arguments,
        )
    except subprocess.CalledProcessError:
        # pip knows indexes and certificates configured for pip, uv does not.
        print("uv could not install the packages; trying pip ...", flush=True)
        run(str(PYTHON), "-m", "pip", "install", "--quiet", *arguments)


def ensure_java() -> None:
    find_java = [str(PYTHON), "scripts/java_home.py"]
    if subprocess.run(find_java, cwd=FOLDER, capture_output=True).returncode == 0:
        return
    print("No Java 17 to 21 found; installing one into .venv ...", flush=True)
    with suppress(subprocess.CalledProcessError):
        install("--require-hashes", "-r", "scripts/java.lock")
    # Prints what to do where no such runtime exists.
    linked = subprocess.run([*find_java, "--link"], cwd=FOLDER, stdout=subprocess.DEVNULL)
    sys.exit(linked.returncode)


def run(*command: str) -> None:
    subprocess.run(command, cwd=FOLDER, check=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"Set-up stopped: '{' '.join(failed.cmd)}' failed, its message is above.")
