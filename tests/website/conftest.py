"""The built site, which `make test-docs` builds first, and a browser that reads it from a server on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import running_browser


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="session")
def site() -> Path:
    given = os.environ.get("DOCS_SITE")
    if not given:
        pytest.fail("DOCS_SITE must name the folder of the built site: `make test-docs` builds it", False)
    return Path(given)


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Yield the address of the site, below a path, as on many hosts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site.parent)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{site.name}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with running_browser() as running:
        yield running
