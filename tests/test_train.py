"""The helper for training programs prints one line that the launcher reads, and never stops a training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import launcher
from launcher.model import Numbers
from launcher.paddle.numbers import NumberFinder
from launcher.train import log


class Scalar:
    """Looks like an array of numpy or a tensor of Paddle."""

    def __init__(self, value: object) -> None:
        self._value = value

    def item(self) -> object:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def read(text: str) -> Numbers | None:
    data = bytearray(text.encode())
    return NumberFinder().newest_in(data, 0, len(data))


def test_the_line_can_be_read_by_a_person_and_by_the_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    log(step=10, loss=0.25, accuracy=0.5, examples_per_second=512.0)
    printed = capsys.readouterr().out
    assert printed == "launcher.train: step=10 loss=0.25 accuracy=0.5 examples_per_second=512\n"
    assert read(printed) == Numbers(step=10, loss=0.25, accuracy=0.5, examples_per_second=512)


def test_every_documented_name_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = Numbers(1, 5, 10, 100, 20, 0.5, 0.25, 0.75, 0.125, 512)
    log(**vars(numbers))
    assert read(capsys.readouterr().out) == numbers


def test_a_line_with_only_a_step_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    log(step=3)
    assert read(capsys.readouterr().out) == Numbers(step=3)


def test_other_names_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    log(loss=1, learning_rate=1e-5, grad_norm=2.5)
    printed = capsys.readouterr().out
    assert printed == "launcher.train: loss=1 learning_rate=1e-05 grad_norm=2.5\n"
    assert read(printed) == Numbers(loss=1)


def test_a_diverged_loss_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    log(loss=float("nan"), a=float("inf"), b=float("-inf"))
    printed = capsys.readouterr().out
    assert printed == "launcher.train: loss=nan a=inf b=-inf\n"
    found = read(printed)
    assert found is not None
    assert repr(found.loss) == "nan"


@pytest.mark.parametrize("value", [Scalar(2.5), "2.5", Scalar("2.5")])
def test_values_with_one_number_are_printed(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    log(loss=value)
    assert capsys.readouterr().out == "launcher.train: loss=2.5\n"


@pytest.mark.parametrize(
    "value", [None, "text", [1, 2], {}, object(), 1j, Scalar(ValueError()), Scalar(None), Scalar(10**5000)]
)
def test_values_that_are_no_number_are_left_out(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    log(step=1, loss=value)
    log(loss=value)
    assert capsys.readouterr().out == "launcher.train: step=1\n"


def test_a_closed_standard_output_does_not_stop_the_training() -> None:
    script = "import sys; from launcher.train import log; sys.stdout.close(); log(loss=1); print('on', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("launcher.train: cannot print: ")
    assert done.stderr.endswith("\non\n")


def test_the_line_leaves_the_program_at_once() -> None:
    script = "import os; from launcher.train import log; log(loss=1); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "launcher.train: loss=1\n"


def test_the_helper_needs_only_the_package_and_imports_almost_nothing(tmp_path: Path) -> None:
    """An image's own Python has only a link to the package, without the libraries of the launcher."""
    (tmp_path / "launcher").symlink_to(Path(launcher.__file__).parent)
    script = (
        "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "before = set(sys.modules)\nimport launcher.train\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "launcher", "launcher.train", "math"}
