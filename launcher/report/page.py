"""The report as one HTML file. It loads nothing and runs no script. All texts from the volume are escaped."""

from __future__ import annotations

from html import escape

from launcher import __version__
from launcher.report import accounts as accounting
from launcher.report import curves, drawing, lanes, tables
from launcher.report.accounts import Accounts
from launcher.report.curves import Chart
from launcher.report.drawing import Axis
from launcher.report.facts import STATES, Facts
from launcher.report.style import STYLE
from launcher.report.tables import prose
from launcher.report.verdict import EMPTY, RUNNING, SILENT, Verdict, judge
from launcher.report.words import duration, moment, percent, quantity, ranges

_SENTENCE = 330  # characters of the sentence at the top
_TAIL, _ROW = 13, 90  # rows of the last lines that are shown at once, and characters of a row
_TALL = 16  # lanes: more lanes are drawn lower
_SLOW = 0.8  # of the median speed
_SIZES = 8  # that a key figure shows
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_GOODPUT = "the share of the wall time that ended in a kept pass"


def render(facts: Facts) -> bytes:
    """Return the page about a job."""
    verdict = judge(facts)
    end = lanes.end_of_axis(facts, verdict)
    accounts = accounting.account(facts, verdict, end)
    body = [_header(facts, verdict), "<main>", _top(verdict)]
    if verdict.state != EMPTY:
        speeds, loss = curves.speeds(facts), curves.loss(facts, end)
        body += [
            _figures(facts, accounts, speeds),
            _findings(loss, speeds),
            _timeline(facts, verdict, accounts, end, loss),
            _section(
                "Speed", tables.speeds(speeds), "The usual speed of each trainer: the median of what it has printed."
            )
            if speeds
            else "",
            _section("Passes", tables.passes(accounts), _about_passes(facts, accounts)) if accounts.passes else "",
            _section("Generations", tables.generations(accounts), _ABOUT_GENERATIONS),
            _section(
                "Failures", tables.failures(facts), "Processes that failed, lost connections and stopped launchers."
            ),
            _section("Warnings", tables.warnings(facts)),
            _section("Members", tables.members(facts)),
        ]
    body += [_configuration(facts), _unread(facts), "</main>", _footer(facts)]
    title = f"{facts.name}: {verdict.title.lower()}"
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{drawing.PATTERNS}{''.join(body)}</body></html>\n"
    )
    return page.encode("utf-8", "backslashreplace")


_ABOUT_GENERATIONS = (
    "A generation is one start of all processes. Lost work: training that ended in no kept pass. Pause: from the end "
    "of the generation until the next one trains. Cost of the restart: both together."
)


def _section(title: str, content: str, note: str = "") -> str:
    about = f'<p class="note">{prose(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{about}{content}</section>" if content else ""


def _header(facts: Facts, verdict: Verdict) -> str:
    when = moment(facts.begin) if verdict.state != EMPTY else ""
    began = f"<span>began {when}</span>" if when else ""
    return (
        f"<header><b>{escape(facts.name)}</b><span>{escape(facts.folder)}</span>{began}"
        f'<span class="when">as of {moment(facts.now)}</span></header>'
    )


def _top(verdict: Verdict) -> str:
    """Return the verdict, with the last lines of the process that failed and what to do."""
    sentence, rest = verdict.sentence, ""
    if len(sentence) > _SENTENCE:
        cut = sentence.rfind(" ", 0, _SENTENCE)
        sentence, rest = f"{sentence[: cut if cut > 0 else _SENTENCE]} ...", f"<p>{prose(sentence)}</p>"
    head = (
        f'<section class="verdict {verdict.state}"><span class="chip">{escape(verdict.title)}</span>'
        f"<h1>{prose(sentence)}</h1>{rest}</section>"
    )
    if verdict.cause and verdict.state in (RUNNING, SILENT):
        head += f'<p class="latest"><b>The latest failure:</b> {prose(verdict.cause.sentence)}</p>'
    parts = []
    if verdict.tail:
        whose = f"Last lines of the {verdict.tail_of}"
        earlier, last = _split(verdict.tail)
        more = f"<details><summary>{len(earlier)} earlier lines</summary><pre>{_lines(earlier)}</pre></details>"
        parts.append(f"<div><h3>{escape(whose)}</h3><pre>{_lines(last)}</pre>{more if earlier else ''}</div>")
    if verdict.advice:
        items = "".join(f"<li>{prose(each)}</li>" for each in verdict.advice)
        parts.append(f"<div><h3>What to do</h3><ul>{items}</ul></div>")
    single = "" if len(parts) > 1 else " single"
    return head + (f'<section class="why{single}">{"".join(parts)}</section>' if parts else "")


def _split(lines: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the earlier lines, which are folded, and the last lines, which are shown in at most _TAIL rows."""
    rows, place = 0, len(lines)
    while place and (rows := rows + 1 + len(lines[place - 1]) // _ROW) <= _TAIL:
        place -= 1
    place = min(place, len(lines) - 1)
    return lines[:place], lines[place:]


def _lines(lines: tuple[str, ...]) -> str:
    return escape("\n".join(lines))


def _figures(facts: Facts, accounts: Accounts, speeds: list[curves.Speed]) -> str:
    """Return the key figures: each with a name, a value and an explanation."""
    restarts = accounts.restarts
    cost = sum(row.cost or 0.0 for row in restarts)
    kept = tables.kept_passes(accounts.passes)
    found = [("Wall time", duration(accounts.wall), f"since {moment(facts.begin)}")]
    goodput = accounts.goodput
    found.append(
        (
            "Goodput",
            "unknown" if goodput is None else percent(goodput),
            _GOODPUT if goodput is not None else "no trainer has logged a pass",
        )
    )
    each = f"{duration(cost)} in all, {duration(cost / len(restarts))} each" if restarts else "all in one generation"
    found.append(("Restarts", f"{len(restarts)}", each))
    if facts.has_resized:
        changes = accounts.changes_of_size
        sizes = " to ".join(f"{size}" for size in _sizes(facts)[-_SIZES:])
        paused = duration(sum(row.pause or 0.0 for row in changes))
        found.append(("Changes of size", f"{len(changes)}", f"{sizes} trainers; {paused} in all"))
    saved = "" if facts.saved is None else f"newest saved pass: {facts.saved}"
    lost = sum(row.fate == accounting.REPEATED for row in accounts.passes)
    waiting = len(accounts.passes) - lost - kept
    repeated = (f"{lost} more lost; " if lost else "") + (f"{waiting} not yet saved; " if waiting > 0 else "")
    found.append(("Passes kept", f"{kept}", f"{repeated}{saved}" or "none is saved on the volume"))
    if speeds:
        values = [speed.median for speed in speeds]
        spread = f"{len(values)} trainers, {quantity(min(values))} to {quantity(max(values))} each"
        found.append(("Examples/s", quantity(sum(values), 4), spread if len(values) > 1 else "one trainer"))
    if (loss := curves.newest_loss(facts)) is not None:
        found.append(("Newest loss", quantity(loss), "the mean over the trainers"))
    cells = "".join(
        f'<div title="{escape(about)}"><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(about)}</dd></div>'
        for name, value, about in found
    )
    return f'<dl class="figures">{cells}</dl>'


def _sizes(facts: Facts) -> list[int]:
    """Return the sizes of the job, one after the other, without repetitions."""
    known = [each.size for each in facts.history if each.size is not None]
    return [size for size, before in zip(known, [None, *known], strict=False) if size != before]


def _findings(loss: Chart, speeds: list[curves.Speed]) -> str:
    """Return what the drawings may not show clearly: a training that has diverged, or a slow trainer."""
    found = []
    if loss.bad:
        at, text = loss.bad[0]
        found.append(f"The loss is not a number since {moment(at)} ({text}): the training has diverged.")
    if len(speeds) > 1:
        values = sorted(speed.median for speed in speeds)
        middle = values[len(values) // 2]
        slow = [speed for speed in speeds if speed.median < _SLOW * middle]
        if slow and middle > 0 and len(slow) * 2 < len(speeds):
            slowest = min(slow, key=lambda speed: speed.median)
            less = percent(1 - slowest.median / middle)
            others = f" {len(slow)} trainers are slow." if len(slow) > 1 else ""
            found.append(f"{slowest.member.full_name} is {less} slower than the median trainer.{others}")
    return f'<section class="findings">{"".join(f"<p>{prose(each)}</p>" for each in found)}</section>' if found else ""


def _timeline(facts: Facts, verdict: Verdict, accounts: Accounts, end: float, loss: Chart) -> str:
    """Return the lanes, and the curves below them on the same time axis."""
    axis = Axis(facts.begin, end)
    shown = lanes.lanes(facts, verdict)
    height, kind = (24, "") if len(shown) <= _TALL else (14, "compact")
    rows = [("head", "generation", "", drawing.generations(axis, accounts.generations))]
    if accounts.passes:
        rows.append(("head", "pass", "", drawing.passes(axis, accounts.passes)))
    for lane in shown:
        rows.append((kind, lane.label, lane.note, drawing.lane(axis, lane.spans, lane.marks, height, lane.label)))
    rows.append(("head", "time (UTC)", "", drawing.time_axis(axis)))
    speed = curves.speed(facts, end)
    charts = ""
    for chart, name, unit in ((loss, "loss", ""), (speed, "examples/s", "per trainer")):
        if not chart.is_empty:
            drawn = drawing.chart(axis, chart, 150, f"{name} over time")
            charts += '<div class="gap"></div>' + _row("top", name, unit, drawn)
    if charts:
        charts += _row("head", "time (UTC)", "", drawing.time_axis(axis))
    lines = drawing.grid(axis, accounts.generations)
    # The grid is the first child, so that all other children are drawn over it.
    grid = f'<svg class="grid" style="grid-column:2;grid-row:1/span {len(rows)}" aria-hidden="true">{lines}</svg>'
    parts = f'<div class="time">{grid}{"".join(_row(*row) for row in rows)}{charts}</div>'
    note = f'<p class="note">{tables.moments(facts, end)}. {_about_lanes(shown)}</p>'
    curve = _curve_legend(loss if not loss.is_empty else speed) if charts else ""
    legend = _legend(shown, accounts)
    return f"<section><h2>What each member did</h2>{note}{legend}{parts}{curve}{_where(accounts)}</section>"


def _row(kind: str, name: str, note: str, drawn: str) -> str:
    small = f'<small title="{escape(note)}">{escape(note)}</small>' if note else ""
    return f'<div class="who {kind}">{escape(name)}{small}</div>{drawn}'


def _about_lanes(shown: list[lanes.Lane]) -> str:
    text = "One lane per member."
    if any(len(lane.members) > 1 for lane in shown):
        text = "Members that did the same at the same time share a lane; lanes that differ come first."
    return f"{text} Point at a part to see its times."


def _legend(shown: list[lanes.Lane], accounts: Accounts) -> str:
    present = {span.state for lane in shown for span in lane.spans}
    items = [
        f'<li><svg aria-hidden="true"><rect class="s-{state}" width="18" height="12"/></svg>{state}</li>'
        for state in STATES
        if state in present
    ]
    if any(lane.marks for lane in shown):
        items.append(
            '<li><svg aria-hidden="true"><svg class="mark" x="9" width="1" height="12"><circle cx="0" cy="6" r="6"/>'
            '<path d="M-2.7 3.3l5.4 5.4m0 -5.4l-5.4 5.4"/></svg></svg>failure of this member</li>'
        )
    kinds = {"kept": "pass kept", "lost": "pass lost", "not yet saved": "pass not yet saved"}
    for fate, name in kinds.items():
        if any(row.fate == fate for row in accounts.passes):
            kind = "open" if fate == accounting.RUNNING else fate
            cross = "M-3 3l6 6m0 -6l-6 6" if kind == "lost" else ""
            items.append(
                f'<li><svg aria-hidden="true"><svg class="tick {kind}" x="9" width="1" height="12">'
                f'<path d="M0 1v10{cross}"/></svg></svg>{name}</li>'
            )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _curve_legend(chart: Chart) -> str:
    if chart.band:
        names = "<li>line: median of the trainers</li><li>band: lowest to highest</li>"
    else:
        names = "".join(
            f'<li><svg aria-hidden="true"><path class="line l{place}" d="M0 6h18"/></svg>{escape(line.label)}</li>'
            for place, line in enumerate(chart.lines)
        )
    cut = "<li>higher values are cut at the upper edge</li>" if chart.is_cut else ""
    return f'<ul class="legend">{names}{cut}</ul>'


def _where(accounts: Accounts) -> str:
    """Return where the wall time went: a bar, and its legend with the times."""
    items = "".join(
        f'<li><svg aria-hidden="true"><rect class="k{place}" width="18" height="12"/></svg>'
        f"{escape(name)} {duration(seconds)} ({percent(seconds / (accounts.wall or 1))})</li>"
        for place, (name, seconds) in enumerate(accounts.parts)
        if seconds > 0
    )
    bar = drawing.shares(accounts.parts)
    return f'<h3 class="apart">Where the time went</h3>{bar}<ul class="legend">{items}</ul>'


def _about_passes(facts: Facts, accounts: Accounts) -> str:
    lost = sorted({row.done.number for row in accounts.passes if row.fate == accounting.REPEATED})
    text = "Time: since the end of the previous pass, or since the training of the generation began."
    return f"{text} Lost in a generation: {ranges(lost)}." if lost else text


def _configuration(facts: Facts) -> str:
    content = tables.pairs("Variables", facts.settings) + tables.pairs("Versions", facts.versions)
    return _section("Configuration", f'<div class="columns">{content}</div>') if content else ""


def _unread(facts: Facts) -> str:
    items = "".join(f"<li>{prose(each)}</li>" for each in facts.unread)
    return _section("Files that could not be read", f"<ul>{items}</ul>") if items else ""


def _footer(facts: Facts) -> str:
    return (
        f"<footer>Made by paddle-launcher {escape(__version__)} from events.jsonl of the job and of its members in "
        f"{escape(facts.folder)}. This page loads nothing and runs no script.</footer>"
    )
