"""For training programs: repair the heterogeneous mode of Paddle 2.6.2 and 3.0.0. Needs nothing but Python and Paddle.

from launcher import paddle_heter

paddle_heter.repair()  # before minimize

The C++ of this mode works, the Python around it does not: an unmodified program never trains. docs/heter.md names each
fault. In a job without heter workers, `repair` changes nothing that the program uses.
"""

from __future__ import annotations

import importlib
import inspect
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CannotRepair", "repair"]

HETERS = "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"  # of a job with heter workers
VERSIONS = ("2.6.2", "3.0.0")  # of Paddle, on which this was tried
MARK = "_repaired_by_launcher"

_PASSES, _BUILDERS, _RUNTIME = (
    "paddle.distributed.passes.ps_trainer_pass",
    "paddle.distributed.ps.utils.ps_program_builder",
    "paddle.distributed.ps.the_one_ps",
)
_WAITS = "paddle.distributed.fleet.base.private_helper_function"
_WAIT = 600.0  # seconds for peers to listen
_LOOK_EVERY = 0.1
_SECTION = "section_program_of_launcher"  # the key of the split program in the attributes that all passes share


class CannotRepair(RuntimeError):
    """This Paddle is not one that `repair` knows. The message says what was found."""


def repair(pull_every: float = 0.02) -> None:
    """Repair the heterogeneous mode of this process's Paddle. Later calls do nothing.

    Args:
        pull_every: Seconds after which a process gets the dense parameters of its stage from the servers again.

    Raises:
        ValueError: `pull_every` is not above 0.
        CannotRepair: This Paddle has another version, or functions that are not as expected. Nothing is changed.
    """
    import paddle

    if not pull_every > 0:
        raise ValueError(f"pull_every: {pull_every!r}: expected seconds, above 0")
    if paddle.__version__ not in VERSIONS:
        raise CannotRepair(
            f"paddle {paddle.__version__}: expected {' or '.join(VERSIONS)}: other versions were not tried, and later "
            "ones have no parameter servers"
        )
    found = [_Function(*function) for function in _FUNCTIONS]
    if all(function.is_repaired for function in found):
        return
    for function in found:
        function.check()
    for function in found:
        function.replace(pull_every)


class _Function:
    """A function of Paddle that is replaced. `make` returns its replacement, from the function and `pull_every`.

    owner: its class, or "" for a function of the module
    """

    def __init__(self, module: str, owner: str, name: str, parameters: str, make: Callable[..., Any]) -> None:
        self._place = ".".join(filter(None, (module, owner, name)))
        try:
            imported = importlib.import_module(module)
        except ImportError as error:
            raise CannotRepair(f"{module}: cannot be imported: {error}") from error
        self._owner = getattr(imported, owner, None) if owner else imported
        self._home = module if owner else _WAITS  # the module in which Paddle defines it
        self._name = name
        self._parameters = parameters.split()
        self._make = make

    @property
    def _function(self) -> Any:
        return getattr(self._owner, self._name, None)

    @property
    def is_repaired(self) -> bool:
        return hasattr(self._function, MARK)

    def check(self) -> None:
        """Raise CannotRepair if the function is not the one of these versions."""
        function = self._function
        if not inspect.isfunction(function):
            raise CannotRepair(f"{self._place}: missing: this Paddle was changed, or is only in part installed")
        if self.is_repaired or function.__module__ != self._home:
            raise CannotRepair(f"{self._place}: {function.__module__} has replaced it: expected Paddle's own function")
        parameters = list(inspect.signature(function).parameters)
        if parameters != self._parameters:
            expected = ", ".join(self._parameters)
            raise CannotRepair(f"{self._place}: has the parameters {', '.join(parameters)}: expected {expected}")

    def replace(self, pull_every: float) -> None:
        replacement = self._make(self._function, pull_every)
        setattr(replacement, MARK, True)
        setattr(self._owner, self._name, replacement)


# ---- the replacements: each takes Paddle's method, and returns another -----------------------------------------------


def _remove_var_pair_by_grad(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Paddle's method takes the lists of all programs for one list of pairs, and fails at the first pair."""

    def remove(self: Any, var_name: str, attrs: dict[str, Any]) -> None:
        for kind in ("merged_variables_pairs", "merged_dense_pairs", "merged_sparse_pairs"):
            for pairs in attrs[kind]:
                pairs[:] = [pair for pair in pairs if pair[1].merged_var.name != var_name]

    return remove


def _create_heter_program(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Keep the program that Paddle splits off for a heter worker, and then drops."""

    def create(self: Any, program: Any, attrs: dict[str, Any], heter_program: Any, *more: Any) -> None:
        original(self, program, attrs, heter_program, *more)
        attrs[_SECTION] = heter_program

    return create


def _create_trainer_program(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Keep the program that Paddle splits off for a trainer, and then drops."""

    def create(self: Any, program: Any, origin_program: Any, attrs: dict[str, Any], *more: Any) -> None:
        original(self, program, origin_program, attrs, *more)
        attrs[_SECTION] = program
        slots = {op.attr("table_id"): op.attr("slots") for op in _pushes(origin_program)}
        for op in _pushes(program):  # Paddle has copied these operators without their slots
            op._set_attr("slots", slots[op.attr("table_id")])

    return create


def _pushes(program: Any) -> list[Any]:
    """Return the operators that send the gradients of sparse tables."""
    return [op for block in program.blocks for op in block.ops if op.type == "distributed_push_sparse"]


def _set_options(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Run the program that was split off. Without `is_fl_mode`, heter workers train without a data set of their own."""

    def apply(self: Any, main_program: Any, startup_program: Any, pass_ctx: Any) -> None:
        original(self, main_program, startup_program, pass_ctx)
        section = pass_ctx._attrs.get(_SECTION)
        if section is not None:
            main_program._heter_pipeline_opt["section_program"] = section
        for program in (main_program, startup_program):
            program._heter_pipeline_opt.pop("is_fl_mode", None)

    return apply


def _build_programs(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Tell the programs that the user runs which programs have been made from them."""

    def build(self: Any) -> None:
        original(self)
        if not self.is_server:
            self.loss.block.program._heter_pipeline_opt = self.cloned_main._heter_pipeline_opt
            self.origin_startup_program._heter_pipeline_opt = self.cloned_startup._heter_pipeline_opt

    return build


def _init_worker(original: Callable[..., None], pull_every: float) -> Callable[..., None]:
    """Get the dense parameters again and again: in this mode nothing else does."""

    def init(self: Any, scopes: Any = None) -> None:
        original(self, scopes)
        if self.is_heter_ps_mode:
            self.launcher_pull = _Pull(self, pull_every)

    return init


def _stop_worker(original: Callable[..., None], _: float) -> Callable[..., None]:
    def stop(self: Any) -> None:
        if pull := getattr(self, "launcher_pull", None):
            pull.end()
        original(self)

    return stop


def _wait_server_ready(original: Callable[..., None], _: float) -> Callable[..., None]:
    """Wait until the peers listen. Paddle 2.6.2 looks every 3 s, 3.0.0 does not wait, and then aborts."""

    def wait(endpoints: Sequence[str]) -> None:
        if not os.environ.get(HETERS):
            original(endpoints)
            return
        ends = time.monotonic() + _WAIT
        for endpoint in endpoints:
            while not _listens(endpoint):
                if time.monotonic() > ends:
                    raise TimeoutError(f"{endpoint} does not listen within {_WAIT:g} s")
                time.sleep(_LOOK_EVERY)

    return wait


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


class _Pull:
    """A thread that gets the dense parameters of this process's stage from the servers, until `end`."""

    def __init__(self, runtime: Any, every: float) -> None:
        public = importlib.import_module("paddle.distributed.ps.utils.public")
        names = _names(runtime.context["loss"].block.program._heter_pipeline_opt["section_program"])
        self._tables = public.get_the_one_recv_context(runtime.context, split_dense_table=True)
        self._sent = {
            gradient: sent
            for gradient, sent in runtime._send_ctx.items()
            if not sent.is_sparse() and names.intersection(self._tables[sent.table_id()])
        }
        self._runtime = runtime
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dense parameters", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._sent and not self._ended.wait(self._every):
                self._runtime._pull_all_dense(self._runtime.scopes, self._sent, self._tables)
        except Exception:
            traceback.print_exc()
            os._exit(1)  # else the process would train with old parameters


def _names(program: Any) -> set[str]:
    """Return the names of all variables of a program."""
    return {name for block in program.blocks for name in block.vars}


def _get_pull_sparse_ops(original: Callable[..., Any], _: float) -> Callable[..., Any]:
    """Send the gradients of sparse tables: Paddle looks for them under a name that it has changed for this mode."""

    def get(self: Any, program: Any, attrs: dict[str, Any]) -> Any:
        return original(self, program, {**attrs, "is_heter_ps_mode": False})

    return get


_FUNCTIONS = (
    (_PASSES, "DistributedOpsPass", "_get_pull_sparse_ops", "self _program attrs", _get_pull_sparse_ops),
    (_PASSES, "SplitTrainerOpsPass", "_remove_var_pair_by_grad", "self var_name attrs", _remove_var_pair_by_grad),
    (
        *(_PASSES, "SplitHeterWorkerOpsPass", "_create_heter_program"),
        "self program attrs heter_program program_block_ops_list heter_ops block_var_detail",
        _create_heter_program,
    ),
    (
        *(_PASSES, "SplitTrainerOpsPass", "_create_trainer_program"),
        "self program origin_program attrs program_block_ops_list block_var_detail",
        _create_trainer_program,
    ),
    (
        *(_PASSES, "SetHeterPipelineOptPass", "_apply_single_impl"),
        "self main_program startup_program pass_ctx",
        _set_options,
    ),
    (_BUILDERS, "HeterAsyncPsProgramBuilder", "_build_programs", "self", _build_programs),
    (_BUILDERS, "", "wait_server_ready", "endpoints", _wait_server_ready),
    (_RUNTIME, "", "wait_server_ready", "endpoints", _wait_server_ready),
    (_RUNTIME, "TheOnePSRuntime", "_init_worker", "self scopes", _init_worker),
    (_RUNTIME, "TheOnePSRuntime", "_stop_worker", "self", _stop_worker),
)
