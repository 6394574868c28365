"""The JSON Schema of the variables, against their parsers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from launcher.config import VARIABLES, schema
from launcher.config.declaration import Variable
from tests.support.paths import K8S

SCHEMA = schema.schema()
VALIDATOR = Draft7Validator(SCHEMA)
# fmt: off
NUMBERS = [
    "0", "00", "1", "2", "5", "007", "0000000001", "00000000001", "4.9", "5.0", "14", "14.99", "15", "15.", ".5",
    "0.5", "0.000", "000.001", "1e3", "-1", "+1", "1_000", "64", "65", "1000", "1001", "65535", "65536", "99999",
    "100000", "100001", "1000000", "1000001", "99999999.99", "100000000", "0100000000.0", "100000000.1",
    "200000000", "9999999999", "99999999999", "\u0665",
]
WORDS = [
    "kubernetes", "dns", "static", "Static", "v0", "ps", "collective", "single", "trainer", "pserver", "text",
    "json", "json-all", "jsonl", "auto", "AUTO", "gpus", "GpUs", "true", "TRUE", "yes", "No", "false", "on",
    "eth0", "a,b", "a,,b", "a;b", "trainer=a;pserver=b", "pserver=b,c;trainer=a;;", "trainer=a",
    "trainer=a;trainer=b;pserver=c", "trainer=a=b;pserver=c", "trainer=;pserver=b", "master=a;pserver=b",
    "heter", "heter=a;pserver=b,c; trainer=d;", "trainer=a;heter=b", "2,2,3", "2,1", "2,,3",
    "10.0.0.1", "fe80::1%eth0", "trainer=jobs.paddle", "trainer=.x", "x.", "X", "-x", ".", "..", "...", "./",
    "../", "../x", "./../x", "a/b", "/a", "/", "//", "/.", "/..", "a..", "..a", "{job}", "_a", "0a", "a:b",
]
SPACED = [
    "", " ", " 5", "5 ", "\t15\n", " auto ", " gpus ", " true", "a, b", " trainer = a ; pserver = b ", "a b", "a\tb",
]
# fmt: on
LONG = ["a" * 200, "a" * 201, "a" * 255, "a" * 256, "a" * 1024, "a" * 1025]
CONTROL = ["a\x07b", "a\x7fb", "a\n\nb"]
EXAMPLES = NUMBERS + WORDS + SPACED + LONG + CONTROL
each_variable = pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)


def parses(variable: Variable, text: str) -> bool:
    """Return whether the launcher accepts this text. An empty text counts as unset."""
    try:
        if text:
            variable.parse(text)
    except ValueError:
        return False
    return True


def in_a_pod(name: str, value: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", "env": [{"name": name, "value": value}]}]}}


def env(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the variables of all containers of a manifest, and their values."""
    if isinstance(value, dict):
        for entry in value.get("env") or ():
            if "value" in entry:
                yield entry["name"], entry["value"]
        value = list(value.values())
    for below in value if isinstance(value, list) else ():
        yield from env(below)


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)


@each_variable
def test_every_variable_has_its_meaning_and_default_in_the_schema(variable: Variable) -> None:
    found = SCHEMA["definitions"][variable.name]
    assert SCHEMA["properties"][variable.name] == {"$ref": f"#/definitions/{variable.name}"}
    assert variable.meaning in found["description"]
    assert found.get("default") == variable.shown_default
    assert VALIDATOR.is_valid({variable.name: variable.shown_default or ""})


@each_variable
def test_the_schema_accepts_what_the_launcher_accepts(variable: Variable) -> None:
    differ = [text for text in EXAMPLES if VALIDATOR.is_valid({variable.name: text}) != parses(variable, text)]
    assert differ == []


@each_variable
def test_the_examples_have_a_good_and_a_bad_value_for_each_variable(variable: Variable) -> None:
    assert {parses(variable, text) for text in EXAMPLES} == {True, False}


def test_values_of_containers_are_checked_at_any_depth() -> None:
    for name, value, good in (
        ("TRAINER_COUNT", "4", True),
        ("TRAINER_COUNT", "four", False),
        ("TRAINER_COUNT", "$(CPUS)", True),
        ("LAUNCHER_MODE", "gloo", False),
        ("OTHER", "anything", True),
    ):
        assert VALIDATOR.is_valid(in_a_pod(name, value)) == good, (name, value)


def test_a_value_that_is_no_text_is_refused_as_kubernetes_does() -> None:
    assert not VALIDATOR.is_valid({"TRAINER_COUNT": 4})


def test_the_manifests_fit_the_schema_and_the_parsers() -> None:
    parsers = {variable.name: variable for variable in VARIABLES}
    checked = set()
    for path in sorted(K8S.rglob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            assert [error.message for error in VALIDATOR.iter_errors(manifest)] == [], path
            for name, value in env(manifest):
                if name in parsers and "$(" not in value:
                    assert parses(parsers[name], value), (path, name, value)
                    checked.add(name)
    assert len(checked) > 10


def test_no_pattern_needs_more_than_re2_has() -> None:
    assert "(?" not in json.dumps(SCHEMA)


def test_the_command_prints_the_schema() -> None:
    done = subprocess.run([sys.executable, "-m", "launcher", "schema"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA
