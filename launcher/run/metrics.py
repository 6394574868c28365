"""Metrics of one launcher for Prometheus, on LAUNCHER_METRICS_PORT. docs/metrics.md describes them.

The text format is simple, and a library for it would take 11 MiB in each pod.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial

from launcher import __version__
from launcher.base.aio import wait_within
from launcher.run.node import PHASES, Node

log = logging.getLogger(__name__)

_PATH = b"/metrics"
_ANSWER_WITHIN = 5.0  # seconds, for the whole request
_HEAD_LIMIT = 8 * 1024
_MOST_CONNECTIONS = 8
_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = dict[str, str]


async def serve(port: int, node: Node) -> asyncio.AbstractServer:
    """Start to answer requests. Return the server. Raises OSError if the port cannot be opened."""
    open_now: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_now) >= _MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.ensure_future(_answer(reader, writer, partial(text, node)))
        open_now.add(task)
        task.add_done_callback(open_now.discard)

    return await asyncio.start_server(accept, None, port, limit=_HEAD_LIMIT)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Callable[[], str]) -> None:
    try:
        await wait_within(_answer_one(reader, writer, body), _ANSWER_WITHIN)
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        pass  # the client does not follow HTTP, or has disconnected
    finally:
        writer.transport.abort()


async def _answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Callable[[], str]) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].split(b" ")
    if len(request) != 3 or request[0] not in (b"GET", b"HEAD"):
        status, content = "405 Method Not Allowed", "only GET is answered\n"
    elif request[1].split(b"?")[0] != _PATH:
        status, content = "404 Not Found", "the metrics are at /metrics\n"
    else:
        status, content = "200 OK", body()
    data = content.encode(errors="replace")  # a name that is not UTF-8
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + (b"" if request[0] == b"HEAD" else data))
    await writer.drain()
    writer.write_eof()
    await reader.read(1)  # the client closes the connection when it has read everything


def text(node: Node) -> str:
    """Return all metrics in the text format of Prometheus."""
    lines: list[str] = []
    of = _labels(node)
    for name, kind, meaning, samples in _metrics(node):
        lines += [f"# HELP paddle_launcher_{name} {meaning}", f"# TYPE paddle_launcher_{name} {kind}"]
        lines += [f"paddle_launcher_{name}{_as_text(of | more)} {_number(value)}" for more, value in samples]
    return "\n".join(lines) + "\n"


def _labels(node: Node) -> Labels:
    """Return the labels of all metrics. Prometheus itself adds the pod and the namespace."""
    rank = node.rank
    place = {} if rank is None else {"role": node.shape.role(rank), "rank": str(node.shape.number(rank))}
    return {"paddle_job": node.job, **place}


def _metrics(node: Node) -> Iterator[tuple[str, str, str, list[tuple[Labels, float]]]]:
    now = node.snapshot()
    read, waiting = node.log_traffic()

    def one(value: float | None) -> list[tuple[Labels, float]]:
        return [] if value is None else [({}, value)]

    yield "up", "gauge", "1: this launcher runs.", [({"version": __version__}, 1)]
    phases: list[tuple[Labels, float]] = [({"phase": phase}, float(phase == now.phase)) for phase in PHASES]
    yield "phase", "gauge", "1 for the phase of this launcher, 0 for all others.", phases
    yield "generation", "gauge", "The number of the latest generation of the job.", one(now.generation)
    yield (
        "restarts_total",
        "counter",
        "How often this launcher has restarted its processes after a failure.",
        one(now.restarts),
    )
    yield "members", "gauge", "How many members the job has.", one(node.shape.size)
    joined = 0 if now.size is None else now.peers + 1
    yield "members_connected", "gauge", "Members that this launcher is connected to, and itself.", one(joined)
    yield "last_pass", "gauge", "The number of the latest finished pass.", one(now.last_pass)
    numbers = node.numbers
    yield "loss", "gauge", "The loss that a trainer of this member last printed.", one(numbers.loss)
    yield "accuracy", "gauge", "The accuracy that a trainer of this member last printed.", one(numbers.accuracy)
    speed = one(numbers.examples_per_second)
    yield "examples_per_second", "gauge", "The speed that a trainer of this member last printed.", speed
    yield "seconds_since_output", "gauge", "Since a trainer of this member printed something.", one(now.output_age)
    yield "log_bytes_total", "counter", "Bytes that the processes of this attempt have printed.", one(read)
    yield "log_backlog_bytes", "gauge", "Printed bytes that are not in the log files yet.", one(waiting)
    yield "lease_age_seconds", "gauge", "Hub only: since the lease was renewed.", one(now.lease_age)
    yield "staged_bytes", "gauge", "Bytes that were copied from the volume before the training.", one(node.staged_bytes)
    code = None if now.outcome is None else float(now.outcome.code)
    yield "exit_code", "gauge", "The exit code of this launcher, once it is known.", one(code)


def _as_text(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.10g}"
