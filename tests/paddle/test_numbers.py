"""The newest loss, speed and progress are found in the output of each program, however it is divided."""

from __future__ import annotations

import math

import pytest

from launcher.model import Numbers
from launcher.paddle.numbers import PASS_PERIOD, PERIOD, NumberFinder
from launcher.processes.output import PassFinder

V0_BATCH = (
    b"I1013 14:07:01.471020 10456 TrainerInternal.cpp:163]  Batch=300 samples=480000 AvgCost=2.52866 "
    b"CurrentCost=2.56867 Eval: classification_error_evaluator=0.3  CurrentEval: classification_error_evaluator=0.25 \n"
)
V0_PASS = (
    b"I1013 14:07:23.806278 10456 TrainerInternal.cpp:180]  Pass=20 Batch=565 samples=904000 AvgCost=2.5615 "
    b"Eval: classification_error_evaluator=0.5 \n"
)
V0_TEST = b"I1013 14:07:25.855190 10456 Tester.cpp:111]  Test samples=97383 cost=2.75 Eval: \n"
V2 = b"Pass 0, Batch 100, Cost 2.261713, {'classification_error_evaluator': 0.75}\n"
V2_TEST = b"Test with Pass 3, Cost 0.5, {'classification_error_evaluator': 0.25}\n"
NLP_BEGIN = b"[2022-08-31 15:21:39,420] [    INFO] -   Total optimization steps = 1000.0\n"
NLP = (
    b"\x1b[32m[2022-08-31 15:21:41,543] [    INFO]\x1b[0m - loss: 0.8502594, learning_rate: 2.97e-06, global_step: 10, "
    b"interval_runtime: 2.1221, interval_samples_per_second: 3.77, interval_steps_per_second: 4.712, epoch: 1.5\n"
)
FORMERS_BEGIN = b"[    INFO] -   Total optimization steps = 1,234,567\n"
FORMERS = (
    b"[    INFO] - loss: 12.05887604, learning_rate: 3e-06, global_step: 2, current_memory_allocated: 7.549170255661011"
    b", max_memory_reserved: 12.4834623336792, interval_runtime: 1.1518, interval_samples_per_second: 0.8682, "
    b"interval_tokens_per_second_per_device: 889.0448, interval_hardware_tflops_per_device: 2.77, "
    b"interval_steps_per_second: 0.8682, progress_or_epoch: 0.0\n"
)
FORMERS_END = b"[    INFO] - train_runtime: 9.5, train_samples_per_second: 5.0, train_loss: 11.5, epoch: 1.0\n"
FORMERS_EVAL = b"[    INFO] - eval_loss: 1.5, eval_accuracy: 0.75, eval_samples_per_second: 90.1, epoch: 1.0\n"
DETECTION = (
    b"[07/21 14:43:00] ppdet.engine INFO: Epoch: [0] [ 20/200] learning_rate: 0.000025 loss_xy: 7.020596 loss_wh: "
    b"23.817680 loss: 1037.630493 eta: 10 days, 19:39:33 batch_cost: 6.6231 data_cost: 6.0753 ips: 4.8315 images/s, "
    b"max_mem_reserved: 42653 MB\n"
)
CLAS = (
    b"[2024/07/31 20:24:38] ppcls INFO: [Train][Epoch 24/120][Iter: 10/304]lr(PiecewiseDecay): 0.00100000, top1: "
    b"0.97159, CELoss: 0.05098, loss: 0.05099, batch_cost: 0.62808s, reader_cost: 0.12837, ips: 25.47451 samples/s, "
    b"eta: 5:08:34\n"
)
CLAS_EVAL = (
    b"[2024/07/31 20:29:51] ppcls INFO: [Eval][Epoch 24][Avg]CELoss: 0.06, loss: 0.0625, top1: 0.98, top5: 1.0\n"
)
CLAS_OLD = (
    b"2021-01-31 20:30:07 INFO: epoch:0  , train step:50  , top1: 0.75000, loss: 0.97458, ips: 92.36500 images/sec.\n"
)
CLAS_OLD_TEST = CLAS_OLD.replace(b"train", b"valid")
OCR = (
    b"[2022/09/29 02:59:23] ppocr INFO: epoch: [3/100], global_step: 90, lr: 0.000513, acc: 0.015625, norm_edit_dis: "
    b"0.062056, CTCLoss: 0.000000, SARLoss: 1.692174, loss: 1.692175, avg_reader_cost: 0.75652 s, avg_batch_cost: "
    b"1.62433 s, avg_samples: 128.0, ips: 78.80154 samples/s, eta: 2:56:51\n"
)
OCR_EVAL = b"[2022/09/29 03:09:23] ppocr INFO: cur metric, acc: 0.5, norm_edit_dis: 0.8, fps: 300.5\n"
SEG = (
    b"2021-03-30 06:55:57 [INFO]\t[TRAIN] epoch: 1, iter: 20/500, loss: 2.0859, lr: 0.009657, batch_cost: 0.5344, "
    b"reader_cost: 0.07273, ips: 3.7425 samples/sec | ETA 00:04:16\n"
)
HAPI = b"Epoch 2/5\nstep  10/938 - loss: 0.1234 - acc: 0.9062 - 12ms/step\n"
HAPI_SPEED = (
    b"step  20/938 - loss: [0.1] - acc_top1: 0.5 - avg_reader_cost: 0.00012 sec - avg_batch_cost: 0.00012 sec "
    b"- ips: 512.00000 samples/sec - 9ms/step\n"
)
HAPI_BARS = (
    b"Epoch 1/5\n\rstep   1/938 [..............................] - loss: 2.3 - acc: 0.1 - ETA: 9s - 12ms/step"
    + 90 * b"\b"
    + b"\rstep   2/938 [>.............................] - loss: 2.1 - acc: 0.2 - ETA: 9s - 11ms/step"
)
HAPI_EVAL = b"Eval begin...\nstep 10/157 - loss: 0.5 - acc: 0.8 - 6ms/step\n"
EXAMPLE = b"training pass=3 batch=40 loss=0.312345 examples/s=5120\n"
EXAMPLE_NOW = b"training pass=4/5 batch=40/50 loss=0.312345 examples/s=5120\n"
EXAMPLE_PASS = b"Pass=3 Batch=50 samples=1000 loss=0.305678 examples/s=5087\n"
TUTORIAL = b"epoch: 4, batch_id: 200, loss is: [0.2173], acc is: [0.95]\n"
HELPER = b"launcher.train: step=10 loss=0.25 examples_per_second=512 learning_rate=0.1\n"

FORMATS = [
    (V0_BATCH, Numbers(step=300, loss=2.56867, accuracy=0.75)),
    (V0_PASS, Numbers(pass_number=20, step=565, loss=2.5615, accuracy=0.5)),
    (V0_TEST, Numbers(test_loss=2.75)),
    (V2, Numbers(pass_number=0, step=100, loss=2.261713, accuracy=0.25)),
    (V2_TEST, Numbers(test_loss=0.5, test_accuracy=0.75)),
    (NLP_BEGIN, Numbers(steps=1000)),
    (FORMERS_BEGIN, Numbers(steps=1234567)),
    (NLP, Numbers(pass_number=1, step=10, loss=0.8502594, examples_per_second=3.77)),
    (FORMERS, Numbers(step=2, loss=12.05887604, examples_per_second=0.8682)),
    (FORMERS_END, Numbers()),
    (FORMERS_EVAL, Numbers(test_loss=1.5, test_accuracy=0.75)),
    (DETECTION, Numbers(pass_number=0, step=20, pass_steps=200, loss=1037.630493, examples_per_second=4.8315)),
    (CLAS, Numbers(24, 120, 10, None, 304, 0.05099, 0.97159, examples_per_second=25.47451)),
    (CLAS_EVAL, Numbers(test_loss=0.0625, test_accuracy=0.98)),
    (CLAS_OLD, Numbers(pass_number=0, step=50, loss=0.97458, accuracy=0.75, examples_per_second=92.365)),
    (CLAS_OLD_TEST, Numbers(test_loss=0.97458, test_accuracy=0.75)),
    (OCR, Numbers(3, 100, 90, loss=1.692175, accuracy=0.015625, examples_per_second=78.80154)),
    (OCR_EVAL, Numbers(test_accuracy=0.5)),
    (SEG, Numbers(pass_number=1, step=20, steps=500, loss=2.0859, examples_per_second=3.7425)),
    (HAPI, Numbers(2, 5, 10, None, 938, 0.1234, 0.9062)),
    (HAPI_SPEED, Numbers(step=20, pass_steps=938, loss=0.1, accuracy=0.5, examples_per_second=512)),
    (HAPI_BARS + b"\n", Numbers(1, 5, 2, None, 938, 2.1, 0.2)),
    (HAPI + HAPI_EVAL, Numbers(2, 5, 10, None, 938, 0.1234, 0.9062, 0.5, 0.8)),
    (EXAMPLE, Numbers(pass_number=3, step=40, loss=0.312345, examples_per_second=5120)),
    (EXAMPLE_NOW, Numbers(4, 5, 40, None, 50, 0.312345, examples_per_second=5120)),
    (EXAMPLE_NOW + EXAMPLE_PASS, Numbers(4, 5, 50, None, 50, 0.305678, examples_per_second=5087)),
    (EXAMPLE_PASS, Numbers(pass_number=3, step=50, loss=0.305678, examples_per_second=5087)),
    (TUTORIAL, Numbers(pass_number=4, step=200, loss=0.2173, accuracy=0.95)),
    (HELPER, Numbers(step=10, loss=0.25, examples_per_second=512)),
    (b"Pass=7\n", Numbers(pass_number=7)),
    (b"loss: 0.5\n", Numbers(loss=0.5)),
    (b"global_step: 12\n", Numbers(step=12)),
    *((name + b": 12\n", Numbers(examples_per_second=12)) for name in (b"ips", b"examples/s", b"samples_per_second")),
    (b"{'loss': '7231.944336', 'step': 3}\n", Numbers(step=3, loss=7231.944336)),
    (b"loss=1e-3.\nloss = -.5e+2\n", Numbers(loss=-50)),
    (b"accuracy=0.917 loss=0.234567 on 600 held-out examples\n", Numbers(test_loss=0.234567, test_accuracy=0.917)),
]


class Clock:
    """Time as a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """Reads an output in parts, as a process's output is read."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.seen: list[Numbers] = []
        self._finder = NumberFinder(self.clock)
        self._passes = PassFinder(b"Pass=")

    def add(self, part: bytes, after: float = PERIOD) -> None:
        self.clock.now += after
        data = bytearray(b"before" + part + b"after")
        begin, end = 6, 6 + len(part)
        number = self._passes.last_in(data, begin, end)
        self._note(self._finder.newest_in(data, begin, end, None if number is None else self._passes.at))

    def pause(self) -> None:
        while (wait := self._finder.due_in()) is not None:
            self.clock.now += wait
            self._note(self._finder.rest())

    def end(self) -> Numbers:
        self._note(self._finder.rest(is_end=True))
        return self.newest

    @property
    def newest(self) -> Numbers:
        return self.seen[-1] if self.seen else Numbers()

    def _note(self, numbers: Numbers | None) -> None:
        if numbers is not None:
            self.seen.append(numbers)


@pytest.mark.parametrize(("output", "numbers"), FORMATS, ids=lambda value: value[:50] if type(value) is bytes else "")
def test_the_numbers_of_each_format_are_found(output: bytes, numbers: Numbers) -> None:
    reader = Reader()
    reader.add(b"a line before\n" + output + b"a line after\n")
    assert reader.newest == numbers


@pytest.mark.parametrize(("output", "numbers"), FORMATS, ids=lambda value: value[:50] if type(value) is bytes else "")
def test_an_output_that_is_divided_anywhere_has_the_same_numbers(output: bytes, numbers: Numbers) -> None:
    for at in range(len(output) + 1):
        for after in (0, PERIOD):
            reader = Reader()
            reader.add(output[:at], after)
            reader.add(output[at:], after)
            reader.pause()
            assert reader.newest == numbers, (at, after)
    reader = Reader()
    for at in range(len(output)):
        reader.add(output[at : at + 1])
    assert reader.newest == numbers


@pytest.mark.parametrize(
    "line",
    [
        b"loss: CrossEntropyLoss",
        b"epoch: 100",
        b"    step : 10",
        b"Saving parameters to ./output/pass-00007",
        b"seen trainer=1 lines=1000 least=5 most=5",
        b"loss_cls: 0.5 and CELoss: 0.5",
        b"loss: 12ms, loss: 1.2.3, loss: 0x1f, loss=1_000",
        b"loss: 0,25, acc: 0,91, step: 12,000",
        b"weight loss: see page 3",
        b"logger: launcher.train",
        b"Epoch 1/5 of the plan",
        b"bloss=1 unloss: 2 acclaim: 3 tips: 4",
    ],
)
def test_lines_without_numbers_of_the_training_are_not_read(line: bytes) -> None:
    reader = Reader()
    reader.add(line + b"\n")
    assert reader.end() == Numbers()


def test_the_newest_line_counts_and_older_numbers_stay() -> None:
    reader = Reader()
    reader.add(OCR + b"loss: 3\nloss: 2\nnothing\n")
    assert reader.newest == Numbers(3, 100, 90, loss=2, accuracy=0.015625, examples_per_second=78.80154)


def test_unchanged_numbers_are_returned_once() -> None:
    reader = Reader()
    for _ in range(3):
        reader.add(b"loss: nan\n")
    assert len(reader.seen) == 1


def test_a_diverged_loss_is_reported() -> None:
    reader = Reader()
    reader.add(b"Pass=1 Batch=2 samples=3 AvgCost=nan Eval: \n")
    assert math.isnan(reader.newest.loss or 0)
    reader.add(b"loss: -inf, acc: nan, ips: inf\n")
    assert (reader.newest.loss, reader.newest.accuracy, reader.newest.examples_per_second) == (-math.inf, None, None)


def test_the_output_is_looked_at_a_few_times_per_second_and_no_number_stays_unread() -> None:
    reader = Reader()
    for number in range(1000):
        reader.add(b"loss: %d\n" % number, after=0.001)
    assert len(reader.seen) <= 2 + 1 / PERIOD
    reader.pause()
    assert reader.newest.loss == 999


def test_a_pause_ends_no_line() -> None:
    """A program may print the rest of a number later."""
    reader = Reader()
    reader.add(b"loss: 3\nglobal_step: 1, loss: 0.1")
    reader.pause()
    assert reader.newest.loss == 3
    reader.add(b"25\n")
    assert reader.newest == Numbers(step=1, loss=0.125)


def test_a_line_at_the_end_of_the_output_needs_no_line_end() -> None:
    reader = Reader()
    reader.add(b"loss: 0.125")
    assert reader.end().loss == 0.125


def test_a_progress_bar_is_read_before_the_next_one_replaces_it() -> None:
    reader = Reader()
    reader.add(HAPI_BARS)
    reader.pause()
    assert reader.newest == Numbers(1, 5, 2, None, 938, 2.1, 0.2)


def test_a_training_goes_on_after_an_evaluation() -> None:
    reader = Reader()
    reader.add(HAPI + HAPI_EVAL + b"Epoch 3/5\nstep  10/938 - loss: 0.0625 - acc: 0.9375 - 12ms/step\n")
    assert reader.newest == Numbers(3, 5, 10, None, 938, 0.0625, 0.9375, 0.5, 0.8)


def test_the_epoch_of_hapi_is_found_above_many_lines() -> None:
    reader = Reader()
    reader.add(b"Epoch 4/5\n" + b"".join(b"step %d/938 - loss: 1 - 1ms/step\n" % step for step in range(400)))
    assert (reader.newest.pass_number, reader.newest.step) == (4, 399)


def test_batches_of_v0_belong_to_the_pass_after_the_last_finished_one() -> None:
    reader = Reader()
    reader.add(V0_PASS)
    reader.add(V0_BATCH)
    assert (reader.newest.pass_number, reader.newest.step) == (21, 300)


def test_the_speed_of_v0_is_the_number_of_samples_by_the_time_of_the_lines() -> None:
    reader = Reader()
    reader.add(b"I1013 23:59:50.500000 1 T.cpp:1]  Batch=1 samples=100 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second is None
    reader.add(b"I1013 23:59:50.900000 1 T.cpp:1]  Batch=2 samples=200 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second is None, "too short to measure"
    reader.add(b"I1013 23:59:52.500000 1 T.cpp:1]  Batch=3 samples=300 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second == 100
    reader.add(b"I1013 23:59:58.500000 1 T.cpp:1]  Batch=1 samples=200 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second == 100, "another pass has begun"
    reader.add(b"I1014 00:00:01.000000 1 T.cpp:1]  Batch=2 samples=500 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second == 100, "another day has begun"
    reader.add(b"I1014 00:00:03.000000 1 T.cpp:1]  Batch=3 samples=900 AvgCost=1 CurrentCost=1 Eval:\n")
    assert reader.newest.examples_per_second == 200


NOISE = b"a line without any number\n" * 40_000  # a MiB


@pytest.mark.parametrize("before", [b"", b"x" * 100, NOISE])
@pytest.mark.parametrize("after", [NOISE, b"x" * 10**6])
def test_the_end_of_a_pass_is_read_however_much_follows_it(before: bytes, after: bytes) -> None:
    line = V0_PASS if before.endswith(b"\n") or not before else b"\n" + V0_PASS
    for at in (0, 1, 60, len(line) - 1, len(line)):
        reader = Reader()
        reader.add(b"loss: 5\n")
        reader.add(before + line[:at], after=PASS_PERIOD)
        reader.add(line[at:] + after, after=0)
        assert reader.newest == Numbers(pass_number=20, step=565, loss=2.5615, accuracy=0.5), at


def test_a_flood_of_passes_is_looked_at_a_few_times_per_second() -> None:
    reader = Reader()
    for number in range(2000):
        reader.add(b"Pass=%d loss=%d\n" % (number, number), after=0.0005)
    assert len(reader.seen) <= 4 + 1 / PASS_PERIOD
    reader.pause()
    assert reader.newest == Numbers(pass_number=1999, loss=1999)


def test_a_line_whose_beginning_was_dropped_is_not_read() -> None:
    for size in range(16 * 1024 - 20, 16 * 1024 + 20):
        reader = Reader()
        reader.add(NOISE + b"CELoss: 9\n" + b"x" * size + b"\n")
        assert reader.newest == Numbers(), size


def test_an_evaluation_of_which_the_end_was_dropped_has_ended() -> None:
    reader = Reader()
    reader.add(HAPI + HAPI_EVAL)
    reader.add(b"Epoch 3/5\n" + NOISE + b"step  10/938 - loss: 0.0625 - acc: 0.9375 - 12ms/step\n")
    assert (reader.newest.loss, reader.newest.test_loss) == (0.0625, 0.5)


def test_output_between_two_looks_does_not_fill_memory() -> None:
    reader = Reader()
    for _ in range(1000):
        reader.add(b"loss: 1\n" * 100, after=0)
    assert len(reader._finder._pending) <= 2**16


@pytest.mark.parametrize(
    "output",
    [
        b"x" * 65536,
        b"\r" * 65536,
        b"\n" * 65536,
        b"loss: " + b"9" * 65536,
        b"loss: 1\n" * 8192,
        b"Epoch 1/2\n" * 6553,
        b"step step step 1" * 4096,
        b"loss:        [[[(((" * 3449,
        b"Pass=" * 13107,
        bytes(range(256)) * 256,
        b"\xff\xfe loss: \xf0\x9f\n" * 4096,
        b"loss: nan" * 7281,
        (b"loss" + b"/" * 40) * 1489,
    ],
    ids=lambda output: repr(output[:20]),
)
def test_hostile_output_neither_raises_nor_fills_memory(output: bytes) -> None:
    reader = Reader()
    for _ in range(20):
        reader.add(output)
    reader.pause()
    reader.end()
    assert len(reader._finder._pending) <= 2**17


@pytest.mark.parametrize(
    "line",
    [
        b"step: " + b"9" * 400 + b", loss: 1",
        b"loss: 1, step: 1e999",
        b"loss: 1, step: -3",
        b"loss: 1, step: nan, epoch: inf",
        b"loss: 1, step: 1" + b"0" * 25,
    ],
)
def test_steps_that_cannot_be_are_not_reported(line: bytes) -> None:
    reader = Reader()
    reader.add(line + b"\n")
    assert reader.newest == Numbers(loss=1)
