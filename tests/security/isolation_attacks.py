"""What users' code tries in order to get out of its sandbox.

Each attack is Python source with a function `attack()`. It returns what it got, as text, or nothing. How it
is run is a `Carrier`: as a column function, as a table function, or while its package is built.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "tidemill-attack-loot"
MEMORY_BYTES: Final = 1 << 30
PROCESSES: Final = 64

# Runs the source and returns what `attack()` returned; "" if it failed or was stopped.
Carrier = Callable[[str], str]


class Loot(NamedTuple):
    """The rows of a table function that attacks."""

    loot: str
    rows: int


@dataclass(frozen=True)
class Target:
    """What is worth attacking: a root with key, database and tables, a worker with a variable, a service."""

    root: Path
    port: int
    worker: int

    def render(self, source: str) -> str:
        code = Path(__file__).resolve().parents[2] / "src" / "tidemill"
        values = {"ROOT": str(self.root), "PORT": self.port, "MARK": MARK, "CODE": str(code)}
        values |= {"MEMORY": MEMORY_BYTES, "PROCESSES": PROCESSES, "WORKER": self.worker}
        return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + HELPERS + source


@dataclass
class Outcome:
    """What came of a run: the attacks that were tried, those that got through, and what else went wrong."""

    tried: list[str] = field(default_factory=list)
    got_through: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@contextmanager
def target_in(folder: Path) -> Iterator[Target]:
    table = folder / "warehouse" / "others" / "rows.lance"
    table.parent.mkdir(parents=True)
    for path in (folder / "secret.key", folder / "catalog.db", table):
        path.write_text(MARK)
        path.chmod(0o600)
    worker = subprocess.Popen(["sleep", "600"], env={"TIDEMILL_SECRET_KEY": MARK, "PATH": os.defpath})
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield Target(folder, listener.getsockname()[1], worker.pid)
    finally:
        worker.kill()
        worker.wait()


def run_attacks(target: Target, carrier: Carrier, attacks: Mapping[str, str]) -> Outcome:
    outcome = Outcome()
    for name, source in attacks.items():
        outcome.tried.append(name)
        try:
            got = carrier(target.render(source))
        except Exception as error:  # noqa: BLE001  # whatever is not a clean failure of the function
            outcome.errors[name] = f"{type(error).__name__}: {error}"
        else:
            if got:
                outcome.got_through[name] = got[:200]
        if _damage(target):
            outcome.got_through[name] = f"changed {_damage(target)}"
    return outcome


def _damage(target: Target) -> str:
    expected = {"secret.key", "catalog.db", "warehouse", "others", "rows.lance"}
    found = {path.name for path in target.root.rglob("*")}
    return ", ".join(sorted(found ^ expected))


HELPERS: Final = """
import ctypes, glob, mmap, os, resource, signal, socket, struct, sys, time
def read(path):
    try:
        with open(path, "rb") as file:
            text = file.read(1 << 16).decode(errors="replace")
        return path if MARK in text else ""
    except OSError:
        return ""
def first(paths):
    return next((path for path in paths if read(path)), "")
def walk(top, wanted, depth=6):
    try:
        entries = list(os.scandir(top))
    except OSError:
        return ""
    for entry in entries:
        if entry.name in wanted and read(entry.path):
            return entry.path
        is_big = entry.path in ("/proc", "/sys", "/usr", "/nix")
        if depth and entry.is_dir(follow_symlinks=False) and not is_big:
            found = walk(entry.path, wanted, depth - 1)
            if found:
                return found
    return ""
libc = ctypes.CDLL(None, use_errno=True)
"""

# These get through without a sandbox; the tests prove it.
STEALING: Final = {
    "environment of every process": "def attack(): return first(glob.glob('/proc/[0-9]*/environ'))",
    "own environment": "def attack(): return MARK if MARK in str(dict(os.environ)) else ''"
    " or first([f'/proc/{os.getppid()}/environ', f'/proc/{WORKER}/environ'])",
    "secret key": "def attack(): return read(ROOT + '/secret.key')",
    "database": "def attack(): return read(ROOT + '/catalog.db')",
    "other tables": "def attack(): return read(ROOT + '/warehouse/others/rows.lance')",
    "files of the worker through /proc": """
def attack():
    roots = glob.glob('/proc/[0-9]*/root') + glob.glob('/proc/[0-9]*/cwd')
    return first(root + ROOT + '/secret.key' for root in roots)
""",
    "symbolic link to the key": """
def attack():
    os.makedirs('/tmp/links', exist_ok=True)
    link = f'/tmp/links/{os.getpid()}-{time.time()}'
    os.symlink(ROOT + '/secret.key', link)
    return read(link)
""",
    "network": """
def attack():
    with socket.create_connection(('127.0.0.1', PORT), timeout=2):
        return 'connected'
""",
    "signal to the worker": """
def attack():
    os.kill(WORKER, 0)
    with open(f'/proc/{WORKER}/cmdline') as file:
        return file.read()
""",
}

BREAKING_OUT: Final = {
    "search of the whole file system": "def attack(): return walk('/', {'secret.key', 'catalog.db'})",
    "writing into the warehouse": """
def attack():
    for folder in (ROOT, ROOT + '/warehouse', ROOT + '/warehouse/others'):
        os.makedirs(folder, exist_ok=True)
        with open(folder + '/planted', 'w') as file:
            file.write('planted')
""",
    "writing into the code": """
def attack():
    for folder in (CODE, sys.prefix, os.path.dirname(os.__file__), '/usr/lib', '/etc', '/'):
        try:
            with open(folder + '/planted_by_attack', 'w'):
                pass
            os.unlink(folder + '/planted_by_attack')
            return folder
        except OSError:
            pass
""",
    "reopening inherited files": """
def attack():
    for fd in os.listdir('/proc/self/fd'):
        try:
            target = os.readlink(f'/proc/self/fd/{fd}')
            if target.startswith('/') and not target.startswith(('/dev/', '/proc', '/memfd', '/tmp')):
                open(f'/proc/self/fd/{fd}', 'rb+')
                return target
        except OSError:
            pass
""",
    "root inside": "def attack(): return 'root' if 0 in os.getresuid() or 0 in os.getresgid() else ''",
    "becoming root": """
def attack():
    for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0])):
        try:
            change()
            return 'changed'
        except OSError:
            pass
""",
    "capabilities": """
def attack():
    with open('/proc/self/status') as file:
        held = [line for line in file if line.startswith(('CapEff', 'CapPrm', 'CapBnd', 'CapAmb'))]
    return ' '.join(held) if any(int(line.split()[1], 16) for line in held) else ''
""",
    "namespaces of its own": """
def attack():
    return 'unshared' if libc.unshare(0x10000000 | 0x20000) == 0 else ''
""",
    "writable mounts": """
def attack():
    changed = [path for path in ('/usr', sys.prefix, CODE, '/')
               if libc.mount(None, path.encode(), None, 0x1000 | 0x20, None) == 0]
    return ' '.join(changed)
""",
    "mounting": "def attack(): return '' if libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) else 'mounted'",
    "unmounting": """
def attack():
    return ' '.join(path for path in ('/tmp', '/proc', '/usr', '/') if libc.umount2(path.encode(), 2) == 0)
""",
    "debugging the first process": """
def attack():
    if libc.ptrace(16, 1, 0, 0) == 0:
        return 'attached'
    with open('/proc/1/mem', 'rb+'):
        return 'opened'
""",
    "keys of the kernel": "def attack(): return 'keys' if libc.syscall(250, 0, -3, 0, 0, 0) > 0 else ''",
    "devices": """
def attack():
    return ' '.join(name for name in os.listdir('/dev')
                    if name not in ('null zero full random urandom shm fd stdin stdout stderr').split())
""",
    "killing everything": "def attack():\n    os.kill(-1, 9)\n    time.sleep(1)\n    return ''",
    "fork bomb": """
def attack():
    made = 0
    try:
        while made < 4 * PROCESSES:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError:
        pass
    return f'{made} processes' if made > PROCESSES else ''
""",
    "threads without end": """
def attack():
    import threading
    made = 0
    try:
        while made < 4 * PROCESSES:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            made += 1
    except RuntimeError:
        pass
    return f'{made} threads' if made > PROCESSES else ''
""",
    "memory": """
def attack():
    held = []
    try:
        while len(held) * (64 << 20) < 2 * MEMORY:
            held.append(bytearray(os.urandom(1)) * (64 << 20))
    except MemoryError:
        return ''
    return 'allocated'
""",
    "memory of many processes": """
def attack():
    for _ in range(8):
        if os.fork() == 0:
            held = b'x' * (MEMORY // 3)
            time.sleep(60)
            os._exit(0)
    time.sleep(5)
    return 'allocated'
""",
    "memory that no process holds": """
def attack():
    try:
        held = os.memfd_create('held')
        return 'memfd'
    except OSError:
        return 'shm' if libc.shmget(0, 1 << 20, 0o1600) >= 0 else ''
""",
    "full disk": """
def attack():
    written = 0
    with open('/tmp/full', 'wb') as file:
        try:
            while written < 3 * MEMORY:
                written += file.write(b'x' * (16 << 20))
        except OSError:
            os.truncate('/tmp/full', 0)
            return ''
    os.unlink('/tmp/full')
    return f'{written} bytes'
""",
    "open files": """
def attack():
    held = []
    try:
        while len(held) < 5000:
            held.append(open('/dev/null'))
    except OSError:
        return ''
    return f'{len(held)} files'
""",
    "messages that are too large": """
def attack():
    for fd in range(3, 64):
        try:
            channel = socket.socket(fileno=os.dup(fd))
            channel.sendall(struct.pack('!BIQ', 4, 0xFFFFFFFF, 1 << 62))
        except OSError:
            pass
    time.sleep(1)
    return ''
""",
    "truncating what is shared with the task": """
def attack():
    for fd in range(3, 64):
        try:
            os.ftruncate(fd, 0)
        except OSError:
            pass
    time.sleep(0.3)
    return ''
""",
    "leaving files for others": """
def attack():
    found = [name for name in os.listdir('/tmp') + os.listdir('/dev/shm') if name.startswith('left-')]
    for folder in ('/tmp', '/dev/shm', '/var/tmp'):
        try:
            open(f'{folder}/left-{os.getpid()}-{time.time()}', 'w').close()
        except OSError:
            pass
    return ' '.join(found)
""",
}
# What one attack leaves is looked for by another process.
ATTACKS: Final = {
    **STEALING,
    **BREAKING_OUT,
    "files that others have left": BREAKING_OUT["leaving files for others"] + "#",
}
