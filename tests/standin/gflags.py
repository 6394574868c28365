"""Parse command line flags as gflags does. The names and defaults are those of PaddlePaddle v0.9 and its glog."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Value = bool | int | float | str

COMMON: dict[str, Value] = {
    "async_count": 1,
    "beam_size": 1,
    "checkgrad_eps": 1e-5,
    "comment": "",
    "enable_grad_share": 100 * 1024 * 1024,
    "enable_parallel_vector": 0,
    "gpu_id": 0,
    "grad_share_block_num": 64,
    "init_model_path": "",
    "load_missing_parameter_strategy": "fail",
    "loadsave_parameters_in_pserver": False,
    "log_clipping": False,
    "log_error_clipping": False,
    "log_period": 100,
    "log_period_server": 500,
    "nics": "xgbe0,xgbe1",
    "num_gradient_servers": 1,
    "parallel_nn": False,
    "parallel_thread_num": 1,
    "port": 20134,
    "ports_num": 1,
    "ports_num_for_sparse": 0,
    "predict_file": "",
    "prev_batch_state": False,
    "pserver_num_threads": 1,
    "async_lagged_ratio_min": 1.0,
    "async_lagged_ratio_default": 1.5,
    "pservers": "127.0.0.1",
    "rdma_tcp": "tcp",
    "seed": 1,
    "show_layer_stat": False,
    "small_messages": False,
    "sock_recv_buf_size": 1024 * 1024 * 40,
    "sock_send_buf_size": 1024 * 1024 * 40,
    "thread_local_rand_use_global_seed": False,
    "trainer_count": 1,
    "trainer_id": 0,
    "use_gpu": False,
    # the flags of glog
    "alsologtostderr": False,
    "colorlogtostderr": False,
    "log_dir": "",
    "log_prefix": True,
    "logbuflevel": 0,
    "logbufsecs": 30,
    "logtostderr": True,
    "max_log_size": 1800,
    "minloglevel": 0,
    "stderrthreshold": 2,
    "stop_logging_if_full_disk": False,
    "v": 0,
    "vmodule": "",
}

TRAINER: dict[str, Value] = dict(
    COMMON,
    average_test_period=0,
    config="",
    config_args="",
    distribute_test=False,
    dot_period=1,
    feat_file="",
    job="train",
    local=True,
    model_list="",
    num_passes=100,
    predict_output_dir="",
    save_dir="",
    save_only_one=False,
    saving_period=1,
    saving_period_by_batches=0,
    show_parameter_stats_period=0,
    start_pass=0,
    start_pserver=False,
    test_all_data_in_one_period=False,
    test_pass=-1,
    test_period=0,
    test_wait=0,
    use_old_updater=False,
    with_cost=True,
)

PSERVER: dict[str, Value] = dict(COMMON)

_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no")
_KINDS = {bool: "bool", int: "int32", float: "double", str: "string"}


class Flags:
    """The values of all flags, by name."""

    def __init__(self, values: dict[str, Value]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str)
        return value

    def number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def on(self, name: str) -> bool:
        return self._values[name] is True


def parse(program: str, arguments: list[str], known: dict[str, Value]) -> Flags:
    """Parse the command line. If it is not valid, print the error and end the process with 1."""
    values = dict(known)
    errors: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue  # gflags leaves other words to the program, and Paddle ignores them
        name, equals, value = word.lstrip("-").partition("=")
        if name in ("help", "helpfull", "helpshort"):
            _help(program, known)
        if name == "version":
            print(program)
            raise SystemExit(0)
        if name not in known:
            if name.startswith("no") and isinstance(known.get(name[2:]), bool) and not equals:
                values[name[2:]] = False
            else:
                errors.append(f"unknown command line flag '{name}'")
            continue
        if not equals:
            if isinstance(known[name], bool):
                value = "true"
            else:
                following = next(words, None)
                if following is None:
                    errors.append(f"flag '{name}' is missing its argument")
                    continue
                value = following
        _set(values, name, value, errors)
    if errors:
        for error in errors:
            print("ERROR: " + error, file=sys.stderr)
        raise SystemExit(1)
    return Flags(values)


def _set(values: dict[str, Value], name: str, text: str, errors: list[str]) -> None:
    kind = type(values[name])
    try:
        if kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError(text)
            values[name] = text.lower() in _TRUE
        elif kind is int:
            values[name] = int(text, 16 if text.lower().startswith("0x") else 10)
        else:
            values[name] = kind(text)
    except ValueError:
        errors.append(f"illegal value '{text}' specified for {_KINDS[kind]} flag '{name}'")


def _help(program: str, known: dict[str, Value]) -> None:
    print(program + ":")
    for name, value in sorted(known.items()):
        print(f"    -{name} type: {_KINDS[type(value)]} default: {value}")
    raise SystemExit(1)
