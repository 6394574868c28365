"""Which credentials of a Docker configuration are for an image."""

from __future__ import annotations

import pytest

from launcher.registry.keyring import credentials_for
from launcher.registry.reference import parse

IMAGE = "registry.test:5000/team/paddle:1"


def users(image: str, *keys: str) -> list[str]:
    """Return the users for an image, if each key has a user of its own name."""
    entries = {key: {"username": key, "password": "x"} for key in keys}
    return [found.user for found in credentials_for(parse(image), entries, "auths")]


@pytest.mark.parametrize(
    "key",
    [
        "registry.test:5000",
        "https://registry.test:5000/v1/",
        "registry.test:5000/v2",
        "registry.test:5000/team",
        "registry.test:5000/v2/team/paddle",
        "*.test:5000",
        "reg*.test:5000/team",
    ],
)
def test_a_key_may_have_a_path_and_stars(key: str) -> None:
    assert users(IMAGE, key) == [key]


@pytest.mark.parametrize(
    "key",
    ["registry.test", "registry.test:5001", "registry.test:5000/other", "*:5000", "*.*.test:5000", "test:5000", ""],
)
def test_a_key_for_other_images_is_not_used(key: str) -> None:
    assert users(IMAGE, key) == []


def test_the_longest_key_is_tried_first() -> None:
    keys = ("registry.test:5000", "registry.test:5000/team/paddle", "registry.test:5000/team")
    assert users(IMAGE, *keys) == [keys[1], keys[2], keys[0]]


@pytest.mark.parametrize("entries", [None, [], "text", {IMAGE: "text"}, {"registry.test:5000": {}}])
def test_entries_of_another_form_are_no_credentials(entries: object) -> None:
    assert credentials_for(parse(IMAGE), entries, "auths") == []
