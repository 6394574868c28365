"""Prometheus reads the metrics of a launcher, and no other client can hold the launcher up."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launcher.model import Numbers, Outcome
from launcher.run import metrics
from launcher.run.node import Node
from tests.support.members import in_loop
from tests.support.sessions import node_of

GET = b"GET /metrics HTTP/1.1\r\nHost: pod\r\n\r\n"


@asynccontextmanager
async def served(node: Node) -> AsyncIterator[int]:
    """Serve the metrics of the node on a free port, and yield this port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    server = await metrics.serve(port, node)
    try:
        yield port
    finally:
        server.close()


async def ask(port: int, request: bytes = GET) -> tuple[bytes, str]:
    """Return the status line and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 8)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body.decode()


def value(text: str, name: str, label: str = "") -> float | None:
    """Return the value of one metric, or None if it is missing."""
    found = re.search(rf"^paddle_launcher_{name}\{{[^}}]*{label}[^}}]*\}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


@in_loop
async def test_prometheus_reads_phase_generation_pass_loss_and_speed(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    node.enter("training")
    node.saw(Numbers(loss=0.25, examples_per_second=1200.5))
    node.log_traffic = lambda: (5000, 300)
    node.passed(3)
    async with served(node) as port:
        status, text = await ask(port)
    assert status == b"HTTP/1.1 200 OK"
    found = {name: value(text, name) for name in ("up", "last_pass", "loss", "examples_per_second", "members")}
    assert found == {"up": 1, "last_pass": 3, "loss": 0.25, "examples_per_second": 1200.5, "members": 2}
    assert (value(text, "log_bytes_total"), value(text, "log_backlog_bytes")) == (5000, 300)
    assert value(text, "phase", 'phase="training"') == 1
    assert value(text, "phase", 'phase="starting"') == 0
    assert 'paddle_job="job",role="both",rank="1"' in text


@in_loop
async def test_a_job_whose_name_is_not_utf_8_has_metrics(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    node.job = b"job-\xff".decode(errors="surrogateescape")
    async with served(node) as port:
        status, text = await ask(port)
    assert status == b"HTTP/1.1 200 OK"
    assert 'paddle_job="job-?"' in text


@in_loop
async def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    async with served(node_of(tmp_path, 1)) as port:
        _, text = await ask(port)
    assert value(text, "loss") is value(text, "exit_code") is value(text, "lease_age_seconds") is None


@in_loop
async def test_a_loss_that_has_diverged_is_shown_as_such(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    node.saw(Numbers(loss=float("nan"), test_loss=float("inf")))
    assert re.search(r"^paddle_launcher_loss\{.*\} NaN$", metrics.text(node), re.MULTILINE)


@in_loop
async def test_the_exit_code_is_there_once_it_is_known(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    node.end(Outcome(71, None, "given up"))
    assert value(metrics.text(node), "exit_code") == 71
    assert value(metrics.text(node), "phase", 'phase="failed"') == 1


@in_loop
async def test_the_name_of_a_job_cannot_break_the_format(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    node.job = 'a"b\\c\nd'
    assert r'paddle_job="a\"b\\c\nd"' in metrics.text(node)
    assert all(line.startswith(("#", "paddle_launcher_")) for line in metrics.text(node).splitlines())


@in_loop
async def test_other_paths_and_methods_are_refused(tmp_path: Path) -> None:
    async with served(node_of(tmp_path, 1)) as port:
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 404 Not Found"
        assert (await ask(port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 405 Method Not Allowed"
        assert await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n") == (b"HTTP/1.1 200 OK", "")


@in_loop
async def test_clients_that_send_nothing_or_too_much_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_ANSWER_WITHIN", 0.05)
    async with served(node_of(tmp_path, 1)) as port:
        assert await ask(port, b"") == (b"", "")
        assert await ask(port, b"GET /metrics HTTP/1.1\r\n" + b"x" * 100_000) == (b"", "")
        assert (await ask(port))[0] == b"HTTP/1.1 200 OK"


@in_loop
async def test_too_many_connections_are_closed_at_once(tmp_path: Path) -> None:
    async with served(node_of(tmp_path, 1)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics._MOST_CONNECTIONS)]
        assert await ask(port) == (b"", "")
        for _, writer in silent:
            writer.close()
        while (await ask(port))[0] != b"HTTP/1.1 200 OK":
            pass  # until the connections are closed
