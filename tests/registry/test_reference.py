"""The names of images."""

from __future__ import annotations

import pytest

from launcher.registry.errors import Unreadable
from launcher.registry.reference import Reference, parse

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry:5000/team/paddle:1.0", ("registry:5000", "team/paddle", "1.0")),
        ("registry.test/paddle", ("registry.test", "paddle", "latest")),
        ("localhost/paddle", ("localhost", "paddle", "latest")),
        ("Registry.TEST/paddle", ("registry.test", "paddle", "latest")),
        ("[::1]:5000/paddle:1", ("[::1]:5000", "paddle", "1")),
        (f"registry.test/a__b/c--d@{DIGEST}", ("registry.test", "a__b/c--d", DIGEST)),
        (f"registry.test/paddle:1@{DIGEST}", ("registry.test", "paddle", DIGEST)),
        ("paddle:1", ("default.test", "library/paddle", "1")),
        ("team/paddle:1", ("default.test", "team/paddle", "1")),
    ],
)
def test_a_name_has_a_registry_a_repository_and_a_version(image: str, expected: tuple[str, str, str]) -> None:
    assert parse(image, "default.test") == Reference(*expected)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "UPPER",
        "registry.test/",
        "registry.test/a/../b",
        "registry.test/a//b",
        "registry.test/a?x=1",
        "registry.test/a b",
        "registry.test/a\r\nX: y",
        "registry.test/paddle:a/b",
        "registry.test/paddle:",
        "registry.test/paddle@sha256:12",
        "registry.test/paddle@",
        "user@registry.test/paddle",
        "registry.test:port/paddle",
        "http://registry.test/paddle",
        "-registry.test/paddle",
        f"registry.test/{'a' * 256}",
        f"{'a.' * 200}test/paddle",
    ],
)
def test_a_wrong_name_is_refused(image: str) -> None:
    with pytest.raises(Unreadable, match="expected"):
        parse(image, "default.test")


def test_a_name_without_a_registry_needs_the_flag() -> None:
    with pytest.raises(Unreadable, match=r"^paddle:1: its name has no registry: name the registry .* with --registry"):
        parse("paddle:1", None)
