"""Advice for known failures. The logs are those of real failures, shortened."""

from __future__ import annotations

import pytest

from launcher.paddle import advice, reason

NO_SERVER = "AttributeError: module 'paddle.base.libpaddle' has no attribute 'DistFleetWrapper'"
NO_SERVER_FOR_A_TRAINER = (
    "    from paddle.base.core import CommContext\n"
    "ImportError: cannot import name 'CommContext' from 'paddle.base.libpaddle' (/x/paddle/base/libpaddle.so)"
)
THROUGH_PIR = """\
    paddle.static.default_startup_program().clone(
TypeError: clone(): incompatible function arguments. The following argument types are supported:
    1. (self: paddle.base.libpaddle.pir.Program) -> object

Invoked with: {
    () = "builtin.set_parameter" (%3) {parameter_name:"fc_0.w_0"} : (tensor<4x1xf32>) ->
}
; kwargs: for_test=False"""
NEW_PROTOBUF = """\
    self.a_sync_configs = {"k_steps": 0}
    raise TypeError(
TypeError: a_sync_configs is not a attribute of DistributedStrategy"""
OLD_PROTOBUF = """\
    from google.protobuf.internal import builder as _builder
ImportError: cannot import name 'builder' from 'google.protobuf.internal' (/x/google/protobuf/internal/__init__.py)"""
NEW_NUMPY = "AttributeError: `np.Inf` was removed in the NumPy 2.0 release. Use `np.inf` instead."
NEWER_NUMPY = "AttributeError: module 'numpy' has no attribute 'in1d'. Did you mean: 'int16'?"
OLD_NAME = """\
AttributeError: module 'numpy' has no attribute 'bool'.
`np.bool` was a deprecated alias for the builtin `bool`. To avoid this error in existing code, use `bool` by itself."""
NO_DEVICE = (
    "RuntimeError: [enforce fail at /paddle/third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. "
    "Unable to find address for: nosuch0"
)
LOOPBACK = (
    "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:784] connect [127.0.0.1]:2462: "
    "Connection refused"
)
APART = (
    "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:83] TIMEOUT self_rank = none "
    "pair_rank = -1 peer_str = none"
)
PEER_DIED = (
    "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:587] TIMEOUT self_rank = 0 pair_rank = 1 "
    "peer_str = [127.0.0.1]:61824"
)
IPV6 = """\
    master_addr, master_port = endpoints.split(":")
    ^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: too many values to unpack (expected 2)"""
PORT_TAKEN = "ValueError: (InvalidArgument) Bind network on IP_ANY:7169 failed."
PORT_TAKEN_3 = """\
I1118 18:09:28.624919  4521 tcp_store.cc:336] create libuv server at port: 7169
python: /paddle/third_party/libuv/src/unix/core.c:314: uv__finish_close: Assertion `handle->flags' failed.

C++ Traceback (most recent call last):"""
SERVER_PORT_TAKEN = """\
E1118 18:13:23.779636 20740 server.cpp:1005] Fail to listen 10.0.0.1:7164
E1118 18:13:23.779722 20740 brpc_ps_server.cc:93] BrpcPsServer start failed, ip_port= 10.0.0.1:7164"""
NOT_STOPPED = """\
I1118 17:57:36.574126  8115 brpc_ps_client.cc:684] BrpcPsClient::flush begin
C++ Traceback (most recent call last):
0   paddle::distributed::BrpcPsClient::PushDenseTaskConsume()
FatalError: `Segmentation fault` is detected by the operating system."""
STOPPED = """\
I1118 17:57:29.257244  7799 brpc_ps_client.cc:684] BrpcPsClient::flush begin
I1118 17:57:29.357388  7799 brpc_ps_client.cc:695] BrpcPsClient::flush done
FatalError: `Segmentation fault` is detected by the operating system."""
SYNCHRONOUS = """\
6   paddle::framework::OperatorBase::Run(paddle::framework::Scope const&, phi::Place const&)
7   paddle::operators::SendBarrierOp::RunImpl(paddle::framework::Scope const&, phi::Place const&) const
FatalError: `Segmentation fault` is detected by the operating system."""
ALONE = """\
    raise RuntimeError("The global group is not initialized.")
RuntimeError: The global group is not initialized."""
SHARED_MEMORY = """\
ERROR: Unexpected BUS error encountered in DataLoader worker. This might be caused by insufficient shared memory (shm)
SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception."""
LOG_FOLDER = "FileNotFoundError: [Errno 2] No such file or directory: '/proc/nowhere/workerlog.0'"
FULL = "OSError: [Errno 28] No space left on device: '/home/jobpath/x/output/pass-00003/fc_0.w_0'"
FULL_0 = "F1118 10:02:11.112233    20 Parameter.cpp:330] Check failed: fs Fail to write: No space left on device [28]"
READ_ONLY = "OSError: [Errno 30] Read-only file system: '/home/jobpath/x/output/pass-00003'"
PORT_TAKEN_0 = """\
I1118 10:02:11.112233    20 ParameterServer2Main.cpp:75] pserver started : eth0:7164
F1118 10:02:11.112240    21 LightNetwork.cpp:191] Check failed: bind(socket_, (struct sockaddr *)&serv_addr) >= 0 \
ERROR on binding 10.0.0.9: Address already in use [98]
*** Check failure stack trace: ***
    @     0x7f5d2f3c6390 (unknown)
*** Aborted at 1479463331 (unix time) try "date -d @1479463331" if you are using GNU date ***
/usr/local/bin/paddle: line 109:    20 Aborted                 ${DEBUGGER} $MYDIR/bin/paddle_pserver_main"""
PYTHON_ERROR_0 = """\
I1118 10:02:12.000000    30 TrainerInternal.cpp:165]  Batch=20 samples=1000 AvgCost=0.61 CurrentCost=0.58
F1118 10:02:12.112240    30 PythonUtil.h:213] Check failed: (data) != nullptr  Current PYTHONPATH: ['/root', '/usr/lib']
Python Error: <type 'exceptions.ValueError'> : need more than 1 value to unpack
Python Callstack:
            /root/dataprovider_bow.py : 61
            /root/words.py : 7
Calling iterator next error
*** Check failure stack trace: ***
    @     0x7f5d2f3c6390 (unknown)
/usr/local/bin/paddle: line 109:    30 Aborted                 ${DEBUGGER} $MYDIR/bin/paddle_trainer"""
NO_LIBRARY = "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory"
NO_PADDLE = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'paddle'"


def advised(log: str, mode: str = "collective", role: str = "trainer", code: int = 1) -> str | None:
    return advice(mode, role, code, tuple(log.splitlines()))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (NO_PADDLE, "install paddlepaddle for this Python"),
        (NO_LIBRARY, "install the package libgomp1"),
        (NEW_PROTOBUF, "'protobuf<7'"),
        (OLD_PROTOBUF, "'protobuf>=3.20.3"),
        (NEW_NUMPY, "'numpy<2'"),
        (NEWER_NUMPY, "'numpy<2'"),
        (OLD_NAME, "replace np.bool with bool"),
        (NO_DEVICE, "no network device nosuch0"),
        (LOOPBACK, "listens on loopback"),
        (APART, "waits only 30 s"),
        (IPV6, "does not support IPv6"),
        (PORT_TAKEN, "port 7169 is in use"),
        (PORT_TAKEN_3, "port 7169 is in use"),
        (ALONE, "get_world_size() is 1"),
        (SHARED_MEMORY, "/dev/shm is too small"),
        (LOG_FOLDER, "--log_dir"),
        (FULL, "is full"),
        (FULL_0, "is full"),
        (READ_ONLY, "mounted read-only"),
    ],
)
def test_a_known_failure_says_what_to_do(log: str, expected: str) -> None:
    assert expected in (advised(f"some line before\n{log}\nI1118 17:58:34 quit from MasterDaemon run loop") or "")


@pytest.mark.parametrize("role", ["pserver", "trainer"])
@pytest.mark.parametrize("log", [NO_SERVER, NO_SERVER_FOR_A_TRAINER])
def test_for_paddle_without_parameter_servers_another_version_is_advised(log: str, role: str) -> None:
    assert "install paddlepaddle 2.6.2 or 3.0.0" in (advised(log, "ps", role) or "")


def test_for_a_parameter_server_program_with_pir_the_flag_is_advised() -> None:
    assert "FLAGS_enable_pir_api=0" in (advised(THROUGH_PIR) or "")


def test_a_port_that_is_taken_is_named_even_if_the_server_ends_with_0() -> None:
    assert "port 7164 is in use" in (advised(SERVER_PORT_TAKEN, "ps", "pserver", 0) or "")


def test_a_missing_call_of_stop_worker_is_named() -> None:
    assert "fleet.stop_worker()" in (advised(NOT_STOPPED, "ps", code=139) or "")


@pytest.mark.parametrize(
    ("log", "mode", "code"), [(STOPPED, "ps", 139), (NOT_STOPPED, "ps", 137), (NOT_STOPPED, "collective", 139)]
)
def test_stop_worker_is_not_named_if_the_trainer_died_of_another_cause(log: str, mode: str, code: int) -> None:
    assert advised(log, mode, code=code) is None


def test_heterogeneous_training_without_a_repair_is_named() -> None:
    log = "AttributeError: 'tuple' object has no attribute 'merged_var'"
    assert "launcher.paddle_heter.repair()" in str(advice("ps", "trainer", 1, [log]))
    assert advice("collective", "trainer", 1, [log]) is None


def test_synchronous_training_is_named() -> None:
    assert "a_sync = True" in (advised(SYNCHRONOUS, "ps", code=139) or "")


@pytest.mark.parametrize("log", ["", "ValueError: batch size of 0", PEER_DIED])
def test_an_unknown_failure_or_one_caused_by_a_peer_gets_no_advice(log: str) -> None:
    assert advised(log) is None


def test_a_port_of_a_pserver_of_v0_that_is_taken_is_named_with_its_variable() -> None:
    assert "set CONF_PADDLE_PORT" in (advised(PORT_TAKEN_0, "v0", "pserver", 134) or "")


def reason_of(log: str, mode: str = "v0", code: int = 134) -> str | None:
    return reason(mode, code, tuple(log.splitlines()))


def test_the_reason_of_an_abort_is_the_line_above_its_stack() -> None:
    assert reason_of(PORT_TAKEN_0) == (
        "Check failed: bind(socket_, (struct sockaddr *)&serv_addr) >= 0 ERROR on binding 10.0.0.9: "
        "Address already in use [98] (LightNetwork.cpp:191)"
    )


def test_the_reason_of_an_error_in_the_users_python_is_the_error_and_its_place() -> None:
    assert reason_of(PYTHON_ERROR_0) == (
        "Python Error: <type 'exceptions.ValueError'> : need more than 1 value to unpack (/root/words.py, line 7)"
    )


def test_of_several_aborts_in_a_log_the_last_gives_the_reason() -> None:
    assert "Python Error" in (reason_of(f"{PORT_TAKEN_0}\n{PYTHON_ERROR_0}") or "")
    assert "Address already in use" in (reason_of(f"{PYTHON_ERROR_0}\n{PORT_TAKEN_0}") or "")


def test_a_long_reason_is_cut() -> None:
    assert len(reason_of(f"F1118 10:02:12.112240    30 Trainer.cpp:1] {'x' * 9000}") or "") == 300


@pytest.mark.parametrize(
    ("log", "mode", "code"),
    [("", "v0", 134), ("I1118 10:02:12.112240    30 Trainer.cpp:1] fine", "v0", 134)]
    + [(PORT_TAKEN_0, "v0", 139), (PORT_TAKEN_0, "ps", 134)],
)
def test_only_an_abort_of_v0_has_a_reason(log: str, mode: str, code: int) -> None:
    assert reason_of(log, mode, code) is None


def test_of_several_failures_the_last_counts() -> None:
    assert "no network device" in (advised(f"{NO_PADDLE}\nanother attempt\n{NO_DEVICE}") or "")
