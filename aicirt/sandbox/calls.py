"""System calls that sandboxed processes may make, and the treatment of all others.

The lists contain the calls observed in workers, the builder and compilers (`strace -ff` of the runtime's
tests), and rarer calls that Python, the C library and wasmtime may make. A call on no list fails
with EPERM, as libraries expect in a sandbox. A call that no code makes by accident kills the process, so that
it is noticed.
"""

from __future__ import annotations

import os

from aicirt.sandbox.seccomp import Answer, Argument, Filter, answers

_MEMORY = "brk mmap munmap mremap mprotect mincore msync membarrier"
_PROCESS = (
    "exit exit_group getpid getppid gettid getuid geteuid getgid getegid getpgrp getrusage times uname "
    "sysinfo getcpu sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_getattr "
    "getpriority set_robust_list rseq arch_prctl futex getrandom getrlimit"
)
_SIGNALS = "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait sigaltstack restart_syscall"
_CLOCKS = "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time"
_STREAMS = (
    "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close fsync fdatasync "
    "fstat newfstatat statx"
)
_TIMERS = "timer_create timer_settime timer_gettime timer_getoverrun timer_delete"
_WAITING = "poll ppoll select pselect6"
#: for existing sockets; new ones cannot be created
_SOCKETS = "sendmsg recvmsg sendto recvfrom shutdown getsockopt setsockopt getsockname getpeername"
#: no files become shorter or get holes: a process that has mapped one would be killed with SIGBUS
_FILES = "dup memfd_create fadvise64"
#: inspecting files, as far as Landlock allows; Python's imports need these
_LOOKING = "stat lstat access faccessat faccessat2 readlink readlinkat getdents64 getcwd fstatfs statfs"

#: answered as unknown: the C library then uses an older call (`clone`, `openat`), whose arguments a filter
#: can check
_NEWER = "clone3 openat2"
#: calls that no code in a sandbox makes by accident
_HOSTILE = (
    "execve execveat ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp bpf "
    "perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register mount umount2 pivot_root "
    "chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns unshare keyctl add_key "
    "request_key kexec_load kexec_file_load init_module finit_module delete_module iopl ioperm modify_ldt "
    "open_by_handle_at swapon swapoff reboot acct settimeofday clock_settime adjtimex clock_adjtime"
)

_CLONE_THREAD = 0x0001_0000
_O_TMPFILE = 0o20000000
_TCGETS, _TIOCGWINSZ, _FIONREAD, _FIONBIO = 0x5401, 0x5413, 0x541B, 0x5421
_FIONCLEX, _FIOCLEX, _PAGEMAP_SCAN = 0x5450, 0x5451, 0xC060_6610
#: requests that Python and `aicirt.wasm.memory` make; not TIOCSTI, which types into a terminal
_IOCTL = (_TCGETS, _TIOCGWINSZ, _FIONREAD, _FIONBIO, _FIONCLEX, _FIOCLEX, _PAGEMAP_SCAN)
#: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS; not F_SETOWN, which
#: makes the kernel send signals
_FCNTL = (0, 1, 2, 3, 4, 1030, 1033, 1034)
#: MADV_*, except 9, MADV_REMOVE, which makes a hole in a mapped file
_MADVISE = (*range(9), *range(10, 26))
#: PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_PRCTL = (15, 16, 0x5356_4D41)
#: a pid that means the calling process or thread
_SELF = Argument(0, (0,))


def compiler() -> Filter:
    """Returns the filter of a compiler, which computes and uses only files that are already open."""
    allowed = (_MEMORY, _PROCESS, _SIGNALS, _CLOCKS, _STREAMS)
    return _filter(allowed, _tested())


def worker() -> Filter:
    """Returns the filter of a worker or builder, which also starts threads, opens files and makes memfds."""
    allowed = (_MEMORY, _PROCESS, _SIGNALS, _CLOCKS, _STREAMS, _TIMERS, _WAITING, _SOCKETS, _FILES, _LOOKING)
    making = os.O_CREAT | os.O_TRUNC | _O_TMPFILE
    tested = {
        **_tested(),
        "clone": (Argument(0, (_CLONE_THREAD,), mask=_CLONE_THREAD),),
        "open": (Argument(1, (0,), mask=making),),
        "openat": (Argument(2, (0,), mask=making),),
        "sched_setaffinity": (_SELF,),
        "sched_setattr": (_SELF,),
    }
    return _filter(allowed, tested)


def _tested() -> dict[str, tuple[Argument, ...]]:
    return {
        "ioctl": (Argument(1, _IOCTL),),
        "fcntl": (Argument(1, _FCNTL),),
        "madvise": (Argument(2, _MADVISE),),
        "prctl": (Argument(0, _PRCTL),),
        "tgkill": (Argument(0, (os.getpid(),)),),
        "prlimit64": (_SELF,),
    }


def _filter(allowed: tuple[str, ...], tested: dict[str, tuple[Argument, ...]]) -> Filter:
    calls = {
        **answers(" ".join(allowed).split(), Answer.ALLOW),
        **answers(_NEWER.split(), Answer.UNKNOWN),
        **answers(_HOSTILE.split(), Answer.KILL),
    }
    return Filter(calls, tested)
