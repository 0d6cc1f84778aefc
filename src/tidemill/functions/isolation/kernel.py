"""Calls of the Linux kernel that Python has no functions for: namespaces, mounts, capabilities, seccomp.

The standard library alone: a sandbox is set up before anything else is imported.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MNT_DETACH: Final = 0x2
# The same on every architecture.
SYS_MOUNT_SETATTR: Final = 442
MOUNT_ATTR_RDONLY: Final = 0x1
MOUNT_ATTR_NOSUID: Final = 0x2
MOUNT_ATTR_NODEV: Final = 0x4
AT_FDCWD: Final = -100
AT_RECURSIVE: Final = 0x8000
PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2
CAPABILITY_VERSION: Final = 0x20080522
MAX_CAPABILITIES: Final = 64
EPERM: Final = 1
SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# What a function may not call: ways to change namespaces, mounts and other processes, parts of the kernel
# that functions have no use for, and memory that no limit counts. In this order: shmget, msgget, ptrace,
# syslog, pivot_root, acct, mount, umount2, init_module, delete_module, quotactl, kexec_load, add_key;
# request_key, keyctl, unshare, perf_event_open, name_to_handle_at, open_by_handle_at, setns,
# process_vm_readv, process_vm_writev, finit_module, memfd_create, bpf, userfaultfd.
DENIED_CALLS: Final = {
    "x86_64": "29 68 101 103 155 163 165 166 175 176 179 246 248 "
    "249 250 272 298 303 304 308 310 311 313 319 321 323",
    "aarch64": "194 186 117 116 41 89 40 39 105 106 60 104 217 "
    "218 219 97 241 264 265 268 270 271 273 279 280 282",
}
# io_uring, the mount calls of 2019, memfd_secret: the same on every architecture.
DENIED_EVERYWHERE: Final = (425, 426, 427, 428, 429, 430, 431, 432, 433, SYS_MOUNT_SETATTR, 447)
X32_CALLS: Final = 0x40000000


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc().unshare(flags), "unshare")


def map_ids(inside: int, user: int, group: int) -> None:
    """Gives this process one user and one group in its new user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {user} 1"),
        ("gid_map", f"{inside} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # pathlib takes longer to import
            file.write(text)


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    made = _libc().mount(
        kind.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(made, f"mount {kind} on {target}")


def make_mounts_private() -> None:
    _check(_libc().mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "mount /")


def bind(source: str, target: str) -> None:
    made = _libc().mount(
        os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(MS_BIND | MS_REC), None
    )
    _check(made, f"bind {source} to {target}")


def restrict_mount(target: str, attributes: int, *, is_recursive: bool) -> None:
    """Sets attributes of a mount, such as read-only."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    flags = AT_RECURSIVE if is_recursive else 0
    made = _libc().syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(flags),
        wanted,
        ctypes.c_size_t(len(wanted)),
    )
    _check(made, f"make {target} read-only")


def pivot_root(new: str, old: str) -> None:
    number = SYS_PIVOT_ROOT[platform.machine()]
    made = _libc().syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old))
    _check(made, "pivot_root")


def detach(target: str) -> None:
    _check(_libc().umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def set_process_option(option: int, value: int) -> None:
    _check(_libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def drop_capabilities() -> None:
    """Gives up all capabilities, also those that a program with set-user-id could bring back."""
    libc = _libc()
    for capability in range(MAX_CAPABILITIES):
        # Fails for those that this kernel does not have, or for a process that has none to drop.
        libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    header = struct.pack("=II", CAPABILITY_VERSION, 0)
    _check(libc.capset(header, bytes(24)), "capset")
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls() -> None:
    """Makes the denied calls of the kernel fail with EPERM, for this process and its children."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        return
    numbers = [int(number) for number in DENIED_CALLS[machine].split()]
    code = _filter(ARCHITECTURES[machine], [*numbers, *DENIED_EVERYWHERE])
    program = _Program(len(code) // 8, code)
    _check(_libc().prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "prctl seccomp")


def _filter(architecture: int, numbers: Sequence[int]) -> bytes:
    load, jump_if_equal, jump_if_at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, deny = 0x7FFF0000, 0x00050000 | EPERM
    count = len(numbers)
    steps = [(load, 0, 0, 4), (jump_if_equal, 0, count + 3, architecture), (load, 0, 0, 0)]
    steps.append((jump_if_at_least, count + 1, 0, X32_CALLS))
    steps += [(jump_if_equal, count - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(answer, 0, 0, allow), (answer, 0, 0, deny)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
