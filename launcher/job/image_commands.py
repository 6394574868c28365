"""What the container of an image runs if its pod template has no `command`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.job.pull_secrets import PullSecrets, PullSource

if TYPE_CHECKING:
    from launcher.base.kube import KubeClient
    from launcher.registry.image import ImageConfig

_ADVICE = 'set the command in the template, or use --entrypoint, as in --entrypoint "python3 train.py"'
_Key = tuple[str | None, str, PullSource]  # namespace, image, credentials
_EXPANDED = re.compile(r"\$(?=[$(])")


class Unknown(Exception):
    """The command of a container is unknown. The text says why, and what to do."""


@dataclass
class ImageCommands:
    """Reads images from their registries, each once.

    entrypoint: the ENTRYPOINT of all images; if it is not empty, no registry is asked
    registry: the registry of images whose name has none
    plain_http: registries that speak HTTP without TLS
    connect: returns a client for a namespace, to read imagePullSecrets; None: they are not read
    namespace: of the job, or None for that of the client
    """

    entrypoint: tuple[str, ...] = ()
    registry: str | None = None
    plain_http: frozenset[str] = frozenset()
    connect: Callable[[str | None], KubeClient] | None = None
    namespace: str | None = None
    _configs: dict[_Key, ImageConfig | str] = field(default_factory=dict)  # a text says why it is unknown

    def words(self, image: str, arguments: Sequence[str], source: PullSource) -> list[str]:
        """Return what a container runs: ENTRYPOINT and `args`, or ENTRYPOINT and CMD. Raises Unknown.

        source: where the credentials for the image are, besides the user's
        """
        if self.entrypoint:
            return [*self.entrypoint, *arguments]
        if not image:
            raise Unknown(f"missing, and so is the image: {_ADVICE}")
        key = (self.namespace, image, source)
        if key not in self._configs:
            self._configs[key] = self._read(image, source)
        config = self._configs[key]
        if isinstance(config, str):
            raise Unknown(f"missing, and the image's ENTRYPOINT cannot be read: {config}: {_ADVICE}")
        words = [*map(_literal, config.entrypoint), *(arguments or map(_literal, config.command))]
        if not words:
            raise Unknown(f"missing, and the image {image} has neither ENTRYPOINT nor CMD: {_ADVICE}")
        return words

    def _read(self, image: str, source: PullSource) -> ImageConfig | str:
        from launcher.registry.errors import Unreadable
        from launcher.registry.image import read_image
        from launcher.registry.reference import parse

        connect = self.connect
        secrets = PullSecrets(source, None if connect is None else lambda: connect(self.namespace))
        try:
            return read_image(parse(image, self.registry), self.plain_http, secrets.credentials)
        except Unreadable as reason:
            return "; ".join([str(reason), *secrets.notes])


def _literal(word: str) -> str:
    """Return the word for the `args` of a pod, in which Kubernetes replaces $(NAME): it does not do this in images."""
    return _EXPANDED.sub("$$", word)
