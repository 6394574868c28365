"""`launcher.paddle_heter`: what it refuses to repair. tests/wheels/test_heter.py trains with what it has repaired."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from launcher import paddle_heter
from launcher.paddle_heter import CannotRepair
from tests.support.paths import REPOSITORY

# The functions of Paddle that `repair` replaces, with their parameters.
SOURCE = {
    "paddle/__init__.py": "__version__ = '2.6.2'\n",
    "paddle/distributed/fleet/base/private_helper_function.py": "def wait_server_ready(endpoints): return 'waited'\n",
    "paddle/distributed/passes/ps_trainer_pass.py": """
class DistributedOpsPass:
    def _get_pull_sparse_ops(self, _program, attrs): ...
class SplitTrainerOpsPass:
    def _remove_var_pair_by_grad(self, var_name, attrs): ...
    def _create_trainer_program(self, program, origin_program, attrs, program_block_ops_list, block_var_detail): ...
class SplitHeterWorkerOpsPass:
    def _create_heter_program(
        self, program, attrs, heter_program, program_block_ops_list, heter_ops, block_var_detail
    ): ...
class SetHeterPipelineOptPass:
    def _apply_single_impl(self, main_program, startup_program, pass_ctx): ...
""",
    "paddle/distributed/ps/utils/ps_program_builder.py": """
from paddle.distributed.fleet.base.private_helper_function import wait_server_ready
class HeterAsyncPsProgramBuilder:
    def _build_programs(self): ...
""",
    "paddle/distributed/ps/the_one_ps.py": """
from paddle.distributed.fleet.base.private_helper_function import wait_server_ready
class TheOnePSRuntime:
    def _init_worker(self, scopes=None): ...
    def _stop_worker(self): ...
""",
}
PASSES = "paddle.distributed.passes.ps_trainer_pass"


@pytest.fixture
def paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a package with these functions, which is not Paddle."""
    for name, text in SOURCE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("paddle")
    for name in [name for name in sys.modules if name.partition(".")[0] == "paddle"]:
        del sys.modules[name]


def replaced() -> set[str]:
    """Return the names of the functions that the passes of Paddle no longer have."""
    passes = importlib.import_module(PASSES)
    owners = [value for value in vars(passes).values() if isinstance(value, type)]
    return {name for owner in owners for name, value in vars(owner).items() if hasattr(value, paddle_heter.MARK)}


@pytest.mark.parametrize("version", paddle_heter.VERSIONS)
def test_each_known_version_is_repaired_once(paddle: ModuleType, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(paddle, "__version__", version)
    paddle_heter.repair()
    first = vars(importlib.import_module(PASSES).SplitTrainerOpsPass).copy()
    assert len(replaced()) == 5
    paddle_heter.repair()
    assert vars(importlib.import_module(PASSES).SplitTrainerOpsPass) == first


@pytest.mark.parametrize("version", ["2.6.1", "3.1.0", "0.0.0"])
def test_another_version_is_refused(paddle: ModuleType, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(paddle, "__version__", version)
    with pytest.raises(CannotRepair, match=rf"paddle {version}: expected 2.6.2 or 3.0.0"):
        paddle_heter.repair()
    assert replaced() == set()


def test_a_function_that_is_missing_is_named(paddle: ModuleType) -> None:
    del importlib.import_module(PASSES).SplitTrainerOpsPass._remove_var_pair_by_grad
    with pytest.raises(CannotRepair, match=r"ps_trainer_pass\.SplitTrainerOpsPass\._remove_var_pair_by_grad: missing"):
        paddle_heter.repair()
    assert replaced() == set()


def test_a_module_that_is_missing_is_named(paddle: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "paddle" / "distributed" / "ps" / "the_one_ps.py").unlink()
    with pytest.raises(CannotRepair, match=r"paddle\.distributed\.ps\.the_one_ps: cannot be imported"):
        paddle_heter.repair()
    assert replaced() == set()


@pytest.mark.parametrize("pull_every", [0, -1.0, float("nan")])
def test_the_pause_between_pulls_must_be_above_0(paddle: ModuleType, pull_every: float) -> None:
    with pytest.raises(ValueError, match=r"pull_every: .*: expected seconds, above 0"):
        paddle_heter.repair(pull_every)
    assert replaced() == set()


def test_a_class_that_is_missing_is_named(paddle: ModuleType) -> None:
    del importlib.import_module("paddle.distributed.ps.the_one_ps").TheOnePSRuntime
    with pytest.raises(CannotRepair, match=r"the_one_ps\.TheOnePSRuntime\._init_worker: missing"):
        paddle_heter.repair()
    assert replaced() == set()


def test_a_function_that_the_program_has_repaired_itself_is_not_replaced(paddle: ModuleType) -> None:
    def mine(self: object, var_name: str, attrs: object) -> None: ...

    importlib.import_module(PASSES).SplitTrainerOpsPass._remove_var_pair_by_grad = mine
    with pytest.raises(CannotRepair, match=rf"_remove_var_pair_by_grad: {__name__} has replaced it"):
        paddle_heter.repair()
    assert replaced() == set()


def test_a_function_with_other_parameters_is_named(paddle: ModuleType) -> None:
    owner = importlib.import_module(PASSES).SplitTrainerOpsPass

    def other(self: object, name: str) -> None: ...

    other.__module__ = PASSES
    owner._remove_var_pair_by_grad = other
    with pytest.raises(CannotRepair, match="has the parameters self, name: expected self, var_name, attrs"):
        paddle_heter.repair()
    assert replaced() == set()


def test_without_heter_workers_a_process_waits_as_paddle_does(
    paddle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    paddle_heter.repair()
    builder = importlib.import_module("paddle.distributed.ps.utils.ps_program_builder")
    builder.wait_server_ready(["127.0.0.1:1"])  # returns: the stand-in for Paddle's function does not wait
    monkeypatch.setenv(paddle_heter.HETERS, "127.0.0.1:2")
    monkeypatch.setattr(paddle_heter, "_WAIT", 0.0)
    with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:1 does not listen within 0 s"):
        builder.wait_server_ready(["127.0.0.1:1"])


def test_the_import_needs_only_the_standard_library() -> None:
    code = "import sys; from launcher import paddle_heter; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert {name for name in found.stdout.split() if name not in sys.stdlib_module_names} <= {"launcher", "__main__"}
