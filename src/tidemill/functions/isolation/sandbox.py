"""The sandbox of a zygote and its children: namespaces of their own, in which nothing of the worker exists.

    outside   launcher       waits for the zygote and mirrors how it ends
              ------------------------------------------------------------------- user, mount, pid, network
    inside    zygote         pid 1, no capabilities; its root is a tmpfs with Python and packages, read-only
                |- keeper    waits for init and mirrors how the function's process ended
                   ------------------------------------------------------------------ user, mount, pid, ipc
                   |- init   pid 1; reaps, watches the memory of all processes, and takes them all along
                      |- the child: calls the function, and sees no process but those it started

A worker that is root makes the mounts and then becomes another user. Any other worker can do the same in a
user namespace. Either way the zygote ends up in a second user namespace: what a namespace inherits, such as
read-only mounts, cannot be undone inside. Children get theirs, so that functions cannot see each other.

The standard library alone: this runs before anything else is imported, and packages of users are not on the
path yet.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NoReturn

from tidemill.functions.isolation import kernel

# The user in the sandbox: not nobody, whom other programs use as well, and mapped in containers too.
SANDBOX_USER: Final = 65533
OLD_ROOT: Final = "/.old"
TMP_BYTES: Final = 1 << 30
SYSTEM_PATHS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SYSTEM_FILES: Final = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/fonts",
    "/etc/mime.types",
    "/etc/alternatives",
)
NETWORK_FILES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services")
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
READ_ONLY: Final = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID
PRIVATE: Final = kernel.MS_NOSUID | kernel.MS_NODEV
WATCH_SECONDS: Final = 0.2
STATUS: Final = struct.Struct("=i")


@dataclass(frozen=True)
class Limits:
    """Limits of each child. `memory_bytes` is for all its processes together, the rest for each or in sum."""

    memory_bytes: int | None = None
    processes: int = 256
    open_files: int = 1024
    cpu_seconds: int = 86_400


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True)
class Sandbox:
    """What exists inside: `readable` files and folders without the `hidden` ones, and whether a network."""

    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    has_network: bool = False
    limits: Limits = DEFAULT_LIMITS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Sandbox:
        return cls(
            tuple(body["readable"]), tuple(body["hidden"]), body["has_network"], Limits(**body["limits"])
        )


def enter(sandbox: Sandbox) -> None:
    """Returns inside, in another process. The process that called waits for it and ends like it."""
    sources = _sources(sandbox)
    user, group = os.getuid(), os.getgid()
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    flags |= 0 if sandbox.has_network else kernel.CLONE_NEWNET
    is_privileged = user == 0 and _try_unshare(flags)
    if not is_privileged:
        kernel.unshare(flags | kernel.CLONE_NEWUSER)
        kernel.map_ids(SANDBOX_USER, user, group)
    # The child changes the root of both processes, so the parent opens nothing afterwards.
    nothing = os.open(os.devnull, os.O_RDWR)
    pid = os.fork()
    if pid:
        _close_all(nothing)
        _end_like(os.waitpid(pid, 0)[1])
    os.close(nothing)
    _end_with_parent()
    _make_root(sources, sandbox.hidden)
    if is_privileged:
        os.setgroups([])
        os.setresgid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
        os.setresuid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
        kernel.set_process_option(kernel.PR_SET_DUMPABLE, 1)
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    kernel.map_ids(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
    kernel.drop_capabilities()
    _end_with_parent()
    _be_killed_first()


def enter_child(limits: Limits, fds: Sequence[int]) -> None:
    """Returns in the process that calls the function; `fds` are for that process alone."""
    reading, writing = os.pipe()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC)
    kernel.map_ids(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
    init = os.fork()
    if init:
        for fd in (*fds, writing):
            os.close(fd)
        raw = os.read(reading, STATUS.size)
        status = os.waitpid(init, 0)[1]
        _end_like(STATUS.unpack(raw)[0] if len(raw) == STATUS.size else status)
    os.close(reading)
    _make_private_mounts()
    kernel.drop_capabilities()
    _end_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child:
        for fd in fds:
            os.close(fd)
        kernel.set_process_option(kernel.PR_SET_DUMPABLE, 0)
        os.write(writing, STATUS.pack(_watch(child, limits.memory_bytes or default_memory())))
        os._exit(0)
    os.close(writing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    _set_limits(limits)
    kernel.filter_calls()


def default_memory() -> int:
    """Half of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _try_unshare(flags: int) -> bool:
    """Root in a container may not be allowed to do this without a user namespace."""
    try:
        kernel.unshare(flags)
    except PermissionError:
        return False
    return True


def _sources(sandbox: Sandbox) -> list[tuple[str, str]]:
    """Pairs of an existing path and where it is inside, ancestors first; found before the root changes."""
    network = NETWORK_FILES if sandbox.has_network else ()
    found = {}
    for path in (*SYSTEM_PATHS, *SYSTEM_FILES, *network, *sandbox.readable):
        real = os.path.realpath(path)
        if real != "/" and os.path.exists(real):  # pathlib takes longer to import
            found[os.path.abspath(path)] = real  # the same
            found[real] = real
    return sorted((real, inside) for inside, real in found.items())


def _make_root(sources: Sequence[tuple[str, str]], hidden: Sequence[str]) -> None:
    kernel.make_mounts_private()
    kernel.mount("tmpfs", "/tmp", PRIVATE, "mode=0755,size=16m")  # any folder that exists
    os.mkdir("/tmp" + OLD_ROOT)  # the same
    kernel.pivot_root("/tmp", "/tmp" + OLD_ROOT)  # the same
    os.chdir("/")
    _mount_paths(sources, hidden)
    _make_devices()
    for folder in ("/proc", "/tmp"):  # a mount of the sandbox
        os.makedirs(folder, exist_ok=True)  # as above
    kernel.mount("proc", "/proc", PRIVATE | kernel.MS_NOEXEC)
    _write("/etc/passwd", f"function:x:{SANDBOX_USER}:{SANDBOX_USER}::/tmp:/bin/sh\n")
    _write("/etc/group", f"function:x:{SANDBOX_USER}:\n")
    kernel.detach(OLD_ROOT)
    os.rmdir(OLD_ROOT)  # as above
    kernel.restrict_mount("/", READ_ONLY | kernel.MOUNT_ATTR_NODEV, is_recursive=False)


def _mount_paths(sources: Sequence[tuple[str, str]], hidden: Sequence[str]) -> None:
    """Deeper paths come later: a hidden folder may be in a readable one, and the other way round."""
    binds = {inside: real for real, inside in sources}
    covers = []
    for path in sorted({*binds, *hidden}, key=lambda each: (each.count("/"), each)):
        if path in hidden:
            if os.path.isdir(path):  # as above
                kernel.mount("tmpfs", path, PRIVATE, "mode=0755,size=1m")
                covers.append(path)
        elif not os.path.lexists(path):
            _bind(OLD_ROOT + binds[path], path)
    for path in covers:
        kernel.restrict_mount(path, READ_ONLY, is_recursive=False)


def _bind(source: str, inside: str) -> None:
    if os.path.isdir(source):  # as above
        os.makedirs(inside)  # as above
    else:
        _write(inside, "")
    kernel.bind(source, inside)
    is_device = inside.startswith("/dev/")
    kernel.restrict_mount(
        inside, READ_ONLY | (0 if is_device else kernel.MOUNT_ATTR_NODEV), is_recursive=True
    )


def _make_devices() -> None:
    for name in DEVICES:
        _bind(f"{OLD_ROOT}/dev/{name}", f"/dev/{name}")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    os.makedirs("/dev/shm")  # a mount of the sandbox


def _make_private_mounts() -> None:
    kernel.mount("proc", "/proc", PRIVATE | kernel.MS_NOEXEC)
    for folder in ("/tmp", "/dev/shm"):  # mounts of the sandbox
        # Packages may be in such a folder; they have to stay.
        kept = {name: os.open(f"{folder}/{name}", os.O_PATH) for name in os.listdir(folder)}
        kernel.mount("tmpfs", folder, PRIVATE, f"mode=0700,size={TMP_BYTES}")
        for name, fd in kept.items():
            os.mkdir(f"{folder}/{name}")
            kernel.bind(f"/proc/self/fd/{fd}", f"{folder}/{name}")
            os.close(fd)
    _write("/proc/sys/user/max_user_namespaces", "0")


def _set_limits(limits: Limits) -> None:
    for kind, value in (
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))
    if limits.memory_bytes is not None:
        # Arrow alone has reserved a lot of addresses, without using them.
        space = limits.memory_bytes + _reserved()
        resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _reserved() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _watch(child: int, memory_bytes: int) -> int:
    """Reaps until the child ends; returns its wait status. Too much memory ends it like SIGKILL does."""
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, WATCH_SECONDS)
        while (ended := _reap()) is not None:
            if ended[0] == child:
                return ended[1]
        if _used_memory() > memory_bytes:
            return int(signal.SIGKILL)


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _used_memory() -> int:
    """What all processes here hold that is not in a file."""
    used = 0
    for name in os.listdir("/proc"):  # as above
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/status") as file:  # as above
                    lines = [line.split() for line in file if line.startswith(("RssAnon:", "RssShmem:"))]
            except OSError:
                continue
            used += sum(int(line[1]) for line in lines) * 1024
    return used


def _end_with_parent() -> None:
    """After every change of user, which resets it."""
    kernel.set_process_option(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _be_killed_first() -> None:
    """When the machine's memory runs out."""
    _write("/proc/self/oom_score_adj", "1000")


def _close_all(nothing: int) -> None:
    """Only standard error stays open: it is where the parent learns what went wrong."""
    for fd in (0, 1):
        os.dup2(nothing, fd)
    os.close(nothing)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # as above
    with open(path, "w") as file:  # as above
        file.write(text)
