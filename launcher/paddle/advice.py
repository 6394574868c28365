"""The reason of a failure, and advice for known failures, found in the last output of a dead child.

Paddle 0.9.0, 2.6.2, 3.0.0 and 3.3.1 print these lines. docs/paddle.md describes each failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ABORT, _SEGFAULT = 134, 139
_LONGEST_REASON = 300  # characters
_FATAL = re.compile(r"F\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (?P<place>[^\s:]+:\d+)\] (?P<text>.*)")  # a line of glog
_PYTHON_ERROR = "Python Error: "
_PYTHON_CALL = re.compile(r" +(?P<file>\S.*) : (?P<line>\d+)")  # a line of the call stack after it, the innermost last


@dataclass(frozen=True)
class KnownFailure:
    """A pattern in the log, and the advice. The pattern counts only for this mode, these roles and this exit code.

    `{name}` in the advice is replaced by the text of the pattern's group `name`.
    """

    pattern: re.Pattern[str]
    advice: str
    mode: str | None = None
    roles: tuple[str, ...] = ()  # empty: all
    code: int | None = None

    def is_possible(self, mode: str, role: str, code: int) -> bool:
        """Return whether mode, role and exit code fit. Does not search for the pattern."""
        return self.mode in (None, mode) and role in (self.roles or (role,)) and self.code in (None, code)


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


_KNOWN = (
    # -- installed packages
    KnownFailure(
        _lines(r"^ModuleNotFoundError: No module named 'paddle'"),
        "this Python has no Paddle: install paddlepaddle for this Python, or name another Python after --",
    ),
    KnownFailure(
        _lines(r"libgomp\.so\.1: cannot open shared object file"),
        "this image has no libgomp1, a library that Paddle needs: install the package libgomp1 in the image",
    ),
    KnownFailure(
        _lines(r"has no attribute 'DistFleetWrapper'|cannot import name 'CommContext' from 'paddle\.base"),
        "Paddle 3.1 and later have no parameter server: install paddlepaddle 2.6.2 or 3.0.0, or train collectively "
        "(LAUNCHER_MODE=collective)",
    ),
    KnownFailure(
        _lines(r"^TypeError: clone\(\): incompatible function arguments(?s:.{0,400})pir\.Program"),
        "fleet cannot train with parameter servers through PIR: set LAUNCHER_MODE=ps or FLAGS_enable_pir_api=0, and "
        "install paddlepaddle 2.6.2 or 3.0.0",
    ),
    KnownFailure(
        _lines(r"^TypeError: \w+_configs is not a attribute of DistributedStrategy"),
        "protobuf is too new for this Paddle: pip install 'protobuf<7'",
    ),
    KnownFailure(
        _lines(r"^ImportError: cannot import name 'builder' from 'google\.protobuf"),
        "protobuf is too old for Paddle: pip install 'protobuf>=3.20.3,<7'",
    ),
    KnownFailure(
        _lines(
            r"^AttributeError: (?:`np\.\w+` was removed in the NumPy 2|module 'numpy' has no attribute "
            r"'(?:product|cumproduct|alltrue|sometrue|in1d|row_stack|trapz)')"
        ),
        "this code was written for NumPy 1, as Paddle 2.6 was: pip install 'numpy<2'",
    ),
    KnownFailure(
        _lines(r"^`np\.(?P<name>\w+)` was a deprecated alias for the builtin"),
        "this code was written for an older NumPy: replace np.{name} with {name}, or pip install 'numpy<1.24'",
    ),
    # -- network
    KnownFailure(
        _lines(r"Unable to find address for: (?P<device>\S+)"),
        "this pod has no network device {device}, or this device has no address: set CONF_PADDLE_NIC (or "
        "GLOO_SOCKET_IFNAME, if the job sets it) to the device that has the pod's address",
    ),
    KnownFailure(
        _lines(r"gloo/transport/tcp/pair\.cc:\d+\] connect \[127\.\S+ Connection refused"),
        "gloo of a peer listens on loopback, which other nodes cannot reach: set CONF_PADDLE_NIC (or "
        "GLOO_SOCKET_IFNAME, if the job sets it) to the device that has the pod's address",
    ),
    KnownFailure(
        _lines(r"gloo/transport/tcp/unbound_buffer\.cc:\d+\] TIMEOUT"),
        "gloo waits only 30 s for the other ranks, and no setting changes this: give all ranks the same number of "
        "batches, and keep slow work of one rank (saving, evaluation) shorter than 30 s",
    ),
    KnownFailure(
        _lines(r'master_addr, master_port = endpoints\.split\(":"\)(?s:.{0,200})too many values to unpack'),
        "Paddle does not support IPv6 in collective training: set POD_IP to the pod's IPv4 address",
    ),
    KnownFailure(
        _lines(r"Bind network on IP_ANY:(?P<port>\d+) failed"),
        "port {port} is in use on this node: set LAUNCHER_GANG_PORT to a port below a range of free ports",
    ),
    KnownFailure(
        _lines(r"create libuv server at port: (?P<port>\d+)\n(?s:.{0,400})uv__finish_close: Assertion"),
        "port {port} is in use on this node: set LAUNCHER_GANG_PORT to a port below a range of free ports",
    ),
    KnownFailure(
        _lines(r"ERROR on binding \S*: Address already in use"),
        "a port from CONF_PADDLE_PORT on is in use on this node: set CONF_PADDLE_PORT to a range of free ports",
        mode="v0",
        roles=("pserver",),
    ),
    KnownFailure(
        _lines(r"Fail to listen \S+:(?P<port>\d+)"),
        "port {port} is in use on this node: set CONF_PADDLE_PORT to another port",
        roles=("pserver", "heter"),
    ),
    # -- the program
    KnownFailure(
        _lines(r"^RuntimeError: The global group is not initialized"),
        "Paddle has no process group before init_parallel_env(), or in a job of one rank: call init_parallel_env() "
        "first, and skip collective operations if paddle.distributed.get_world_size() is 1",
    ),
    KnownFailure(
        re.compile(r"BrpcPsClient::flush begin(?!.*BrpcPsClient::flush done)", re.DOTALL),
        "a trainer must call fleet.stop_worker() after its training",
        mode="ps",
        roles=("trainer",),
        code=_SEGFAULT,
    ),
    KnownFailure(
        _lines(r"paddle::operators::SendBarrierOp::RunImpl"),
        "synchronous training with parameter servers crashes in Paddle: set strategy.a_sync = True",
        roles=("trainer",),
        code=_SEGFAULT,
    ),
    KnownFailure(
        _lines(r"BUS error encountered in DataLoader worker"),
        "/dev/shm is too small for the DataLoader: mount an emptyDir with medium Memory at /dev/shm, or use "
        "DataLoader(use_shared_memory=False)",
    ),
    KnownFailure(
        _lines(r"^AttributeError: 'tuple' object has no attribute 'merged_var'"),
        "Paddle's heterogeneous mode is broken: call launcher.paddle_heter.repair() before minimize (docs/heter.md)",
        mode="ps",
    ),
    # -- disks
    KnownFailure(
        _lines(r"No space left on device|Disk quota exceeded"),
        "the volume to which this process writes is full: free some space, or use a larger volume",
    ),
    KnownFailure(
        _lines(r"Read-only file system"),
        "the volume to which this process writes is mounted read-only: write below LAUNCHER_SAVE_DIR instead",
    ),
    # -- paddle.distributed.launch
    KnownFailure(
        _lines(r"^(?:FileNotFound|Permission)Error: .*/workerlog\.\d+'$"),
        "paddle.distributed.launch cannot write its log files: set its --log_dir to a writable folder",
    ),
)


def reason(mode: str, code: int, tail: Sequence[str]) -> str | None:
    """Return why a process of Paddle v0 has aborted, or None. The line that says it stands above the stack."""
    if mode != "v0" or code != _ABORT:
        return None
    fatal = next((at for at in reversed(range(len(tail))) if _FATAL.match(tail[at])), len(tail))
    lines = tail[fatal:]
    error = next((line.partition(_PYTHON_ERROR)[2] for line in lines if _PYTHON_ERROR in line), "")
    calls = [call for line in lines if (call := _PYTHON_CALL.fullmatch(line))]
    if error and calls:
        error = f"{error} ({calls[-1]['file']}, line {calls[-1]['line']})"
    match = _FATAL.match(lines[0]) if lines else None
    text = f"{_PYTHON_ERROR}{error}" if error else f"{match['text']} ({match['place']})" if match else ""
    return " ".join(text.split())[:_LONGEST_REASON] or None


def advice(mode: str, role: str, code: int, tail: Sequence[str]) -> str | None:
    """Return advice for a dead child, or None. If several patterns match, the last match in the output counts."""
    text = "\n".join(tail)
    matches = [
        (match.start(), known.advice.format(**match.groupdict()))
        for known in _KNOWN
        if known.is_possible(mode, role, code)
        for match in known.pattern.finditer(text)
    ]
    return max(matches)[1] if matches else None
