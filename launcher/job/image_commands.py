"""What the container of an image runs if its pod template has no `command`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.registry.image import ImageConfig

_ADVICE = 'set the command in the template, or use --entrypoint, as in --entrypoint "python3 train.py"'
_EXPANDED = re.compile(r"\$(?=[$(])")


class Unknown(Exception):
    """The command of a container is unknown. The text says why, and what to do."""


@dataclass
class ImageCommands:
    """Reads images from their registries, each once.

    entrypoint: the ENTRYPOINT of all images; if it is not empty, no registry is asked
    registry: the registry of images whose name has none
    plain_http: registries that speak HTTP without TLS
    """

    entrypoint: tuple[str, ...] = ()
    registry: str | None = None
    plain_http: frozenset[str] = frozenset()
    _configs: dict[str, ImageConfig | str] = field(default_factory=dict, init=False)  # a text says why it is unknown

    def words(self, image: str, arguments: Sequence[str]) -> list[str]:
        """Return what a container runs: ENTRYPOINT and `args`, or ENTRYPOINT and CMD. Raises Unknown."""
        if self.entrypoint:
            return [*self.entrypoint, *arguments]
        if not image:
            raise Unknown(f"missing, and so is the image: {_ADVICE}")
        if image not in self._configs:
            self._configs[image] = self._read(image)
        config = self._configs[image]
        if isinstance(config, str):
            raise Unknown(f"missing, and the image's ENTRYPOINT cannot be read: {config}: {_ADVICE}")
        words = [*map(_literal, config.entrypoint), *(arguments or map(_literal, config.command))]
        if not words:
            raise Unknown(f"missing, and the image {image} has neither ENTRYPOINT nor CMD: {_ADVICE}")
        return words

    def _read(self, image: str) -> ImageConfig | str:
        from launcher.registry.errors import Unreadable
        from launcher.registry.image import read_image
        from launcher.registry.reference import parse

        try:
            return read_image(parse(image, self.registry), self.plain_http)
        except Unreadable as reason:
            return str(reason)


def _literal(word: str) -> str:
    """Return the word for the `args` of a pod, in which Kubernetes replaces $(NAME): it does not do this in images."""
    return _EXPANDED.sub("$$", word)
