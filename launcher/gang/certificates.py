"""The TLS certificates of this pod for the gang port, if the user has mounted some (LAUNCHER_TLS_DIR)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.base.aio import run_in_thread, wait_within
from launcher.errors import Exit, Failure

if TYPE_CHECKING:
    from launcher.base.tls import Contexts

log = logging.getLogger(__name__)

_LOAD_WITHIN = 10.0  # seconds for the file system of the folder to answer
_LOOK_EVERY = 30.0  # seconds; a new certificate is mounted days before the old one expires


class Certificates:
    """Load the certificates, and load them again when their files change. Connections that exist stay as they are."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._contexts: Contexts | None = None
        self._stamps: object = None
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Load the files, and watch them. Raise Failure (CONFIG) that names a file that is missing or wrong."""
        try:
            self._stamps, self._contexts = await self._load()
        except asyncio.TimeoutError:
            within = f"{_LOAD_WITHIN:g} s"
            raise Failure(Exit.CONFIG, f"LAUNCHER_TLS_DIR: {self._folder} has not answered for {within}") from None
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def of_server(self, within: float) -> dict[str, Any]:
        """Return the options of the event loop to accept a connection. `within`: seconds for the TLS handshake."""
        assert self._contexts is not None
        return {"ssl": self._contexts.server, "ssl_handshake_timeout": within}

    def of_client(self) -> dict[str, Any]:
        """Return the options of the event loop to make a connection."""
        assert self._contexts is not None
        return {"ssl": self._contexts.client, "server_hostname": ""}

    async def _look(self) -> None:
        problem = ""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            try:
                stamps, contexts = await self._load(unless=self._stamps)
            except asyncio.TimeoutError:
                continue
            except Failure as failure:
                if failure.message != problem:
                    problem = failure.message
                    log.warning(f"{problem}; new connections still use the earlier files")
                continue
            if contexts is not None:
                self._contexts = contexts
                log.info(f"new connections use the new certificate in {self._folder}")
            self._stamps = stamps

    async def _load(self, unless: object = None) -> tuple[object, Contexts | None]:
        return await wait_within(run_in_thread(partial(_load, self._folder, unless)), _LOAD_WITHIN)


def _load(folder: str, unless: object) -> tuple[object, Contexts | None]:
    """Return the stamps of the files, and the contexts made of them, or None if the stamps equal `unless`."""
    from launcher.base import tls  # only here: it costs memory

    stamps = tls.stamps(folder)
    return stamps, None if stamps == unless else tls.load(folder)
