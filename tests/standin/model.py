"""The model that the stand-in trains: a softmax of two classes over a bag of words, read from the user's files.

The user's configuration and data provider are Python files that import `paddle.trainer_config_helpers` and
`paddle.trainer.PyDataProvider2`. This file imitates those parts of both modules that the quick start needs.
"""

from __future__ import annotations

import importlib
import math
import sys
import types
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from . import glog

if TYPE_CHECKING:
    from .store import Parameters

    Sample = tuple[list[int], int]  # the numbers of the words, the class

WEIGHTS, BIAS = "___fc_layer_0__.w0", "___fc_layer_0__.wbias"
CLASSES = 2

_DECORATIONS = (  # names that a configuration may use, but that do not change this model
    "AdamOptimizer AdaGradOptimizer MomentumOptimizer RMSPropOptimizer L1Regularization L2Regularization ModelAverage "
    "ExtraAttr ExtraLayerAttribute ParamAttr ParameterAttribute SoftmaxActivation SigmoidActivation LinearActivation "
    "fc_layer maxid_layer classification_cost cross_entropy outputs inputs"
)


class Config(NamedTuple):
    """The settings that the stand-in reads from a trainer configuration."""

    batch_size: int
    learning_rate: float
    words: int  # size of the dictionary
    train_list: str
    test_list: str | None
    samples: Callable[[list[str]], Iterator[Any]]
    provider: str


class Stats:
    """Cost and errors of all samples until now, for the log."""

    def __init__(self) -> None:
        self.samples = 0
        self.cost = 0.0
        self.errors = 0

    def add(self, samples: int, cost: float, errors: int) -> None:
        self.samples += samples
        self.cost += cost
        self.errors += errors

    def average_cost(self) -> str:
        return f"{self.cost / max(self.samples, 1):.6g}"

    def evaluation(self) -> str:
        return f"classification_error_evaluator={self.errors / max(self.samples, 1):.6g}"


def read_config(path: str, arguments: str) -> Config:
    """Execute the configuration file. On an error, print Python's traceback and end the process with 134."""
    if not path:
        glog.fatal("TrainerConfigHelper.cpp:173", "Check failed: hasConfig no valid config")
    seen: dict[str, Any] = {}
    given = dict(pair.split("=", 1) for pair in arguments.split(",") if pair)
    _imitate_paddle(seen, given)
    try:
        with open(path) as file:
            exec(
                compile(file.read(), path, "exec"),
                {"__name__": "paddle_config", "__file__": path, **_helpers(seen, given)},
            )
        sources, settings = seen["sources"], seen["settings"]
        provider = getattr(importlib.import_module(sources["module"]), sources["obj"])
        return Config(
            batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            words=seen["sizes"][0],
            train_list=sources["train_list"],
            test_list=sources["test_list"],
            samples=lambda files: provider(files, **sources["args"]),
            provider=f"{sources['module']}::{sources['obj']}",
        )
    except Exception as error:
        python_failed("TrainerConfigHelper.cpp:57", error)


def read_list(path: str) -> list[str]:
    """Return the data files that a file list contains, one per line."""
    try:
        with open(path) as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as error:
        glog.fatal("DataProvider.cpp:44", f"Check failed: fin.is_open() cannot open {path}: {error.strerror}")


def batches(config: Config, files: list[str]) -> Iterator[list[Sample]]:
    """Yield batches of samples in the order of the files. Read late: bad data causes an error during the training."""
    batch: list[Sample] = []
    try:
        for words, label in config.samples(files):
            if not 0 <= label < CLASSES or not all(0 <= word < config.words for word in words):
                raise ValueError(f"a word or a class is out of range: {words} {label}")
            batch.append((words, label))
            if len(batch) == config.batch_size:
                yield batch
                batch = []
    except Exception as error:
        python_failed("PyDataProvider2.cpp:345", error)
    if batch:
        yield batch


def new_parameters(config: Config, seed: int) -> Parameters:
    import random

    dice = random.Random(seed)
    weights = array("f", (dice.gauss(0, 0.01) for _ in range(config.words * CLASSES)))
    return {WEIGHTS: weights, BIAS: array("f", [0.0] * CLASSES)}


def gradient(parameters: Parameters, batch: list[Sample], stats: Stats) -> Parameters:
    """Return the sum of the gradients over the batch. The sums of two trainers add up to that of one trainer."""
    weights, bias = parameters[WEIGHTS], parameters[BIAS]
    weight_sums, bias_sums = [0.0] * len(weights), [0.0] * CLASSES
    for words, label in batch:
        score = bias[1] - bias[0] + sum(weights[CLASSES * word + 1] - weights[CLASSES * word] for word in words)
        positive = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        stats.add(1, -math.log(positive if label else 1 - positive), int((positive > 0.5) != bool(label)))
        slope = positive - label
        for word in words:
            weight_sums[CLASSES * word + 1] += slope
            weight_sums[CLASSES * word] -= slope
        bias_sums[1] += slope
        bias_sums[0] -= slope
    return {WEIGHTS: array("f", weight_sums), BIAS: array("f", bias_sums)}


def python_failed(where: str, error: Exception) -> NoReturn:
    """Fail a check whose message has the error of the user's Python code, and its call stack."""
    import traceback

    calls = traceback.extract_tb(error.__traceback__)
    stack = "".join(f"            {call.filename} : {call.lineno}\n" for call in calls)
    kind = f"<type 'exceptions.{type(error).__name__}'>"
    says = f"Check failed: (data) != nullptr Current PYTHONPATH: {sys.path}\nPython Error: {kind} : {error}"
    glog.fatal(where, f"{says}\nPython Callstack: \n{stack}Calling iterator next error")


def _helpers(seen: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """Return the names that `from paddle.trainer_config_helpers import *` defines."""

    def settings(batch_size: int, learning_rate: float = 1e-3, **_: Any) -> None:
        seen["settings"] = {"batch_size": batch_size, "learning_rate": learning_rate}

    def sources(train_list: str, test_list: str | None, module: str, obj: str, args: Any = None, **_: Any) -> None:
        seen["sources"] = {
            "train_list": train_list,
            "test_list": test_list,
            "module": module,
            "obj": obj,
            "args": args or {},
        }

    def get_config_arg(name: str, kind: Any, default: Any = None) -> Any:
        if name not in given:
            return default
        if kind is bool:
            return given[name].lower() in ("1", "true", "t", "yes", "y")
        return kind(given[name])

    def data_layer(name: str, size: int, **_: Any) -> str:
        seen.setdefault("sizes", []).append(size)
        return name

    def decoration(*_: Any, **__: Any) -> None:
        pass

    return {
        **dict.fromkeys(_DECORATIONS.split(), decoration),
        "settings": settings,
        "define_py_data_sources2": sources,
        "get_config_arg": get_config_arg,
        "data_layer": data_layer,
    }


def _provider(input_types: Any = None, init_hook: Any = None, **_: Any) -> Any:
    def decorate(process: Any) -> Any:
        def samples(files: list[str], **arguments: Any) -> Iterator[Any]:
            settings = types.SimpleNamespace(input_types=input_types)
            if init_hook is not None:
                init_hook(settings, file_list=files, **arguments)
            for name in files:
                yield from process(settings, name)

        return samples

    return decorate


def _imitate_paddle(seen: dict[str, Any], given: dict[str, str]) -> None:
    provider_names = {
        "provider": _provider,
        "CacheType": types.SimpleNamespace(NO_CACHE=0, CACHE_PASS_IN_MEM=1),
        "sparse_binary_vector": lambda size: ("sparse_binary_vector", size),
        "integer_value": lambda size: ("integer_value", size),
    }
    for name, content in (
        ("paddle", {}),
        ("paddle.trainer", {}),
        ("paddle.trainer_config_helpers", _helpers(seen, given)),
        ("paddle.trainer.PyDataProvider2", provider_names),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
