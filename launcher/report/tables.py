"""The tables of the page, as HTML. All texts are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from launcher.report.accounts import KEPT, REPEATED, Accounts, PassRow
from launcher.report.curves import Speed
from launcher.report.facts import Facts, Member
from launcher.report.words import clock, duration, moment, names, quantity, size
from launcher.store import sizes

_ROWS = 200  # of passes
_GENERATIONS = 100
_MEMBERS = 1500
_UNCOLLAPSED = 16
_SPEEDS = 16
_SLOWEST, _FASTEST = 10, 4
_WARNINGS = 60
_CODE = re.compile(r"`([^`\n]{1,300})`")
_CAUSE = 300

NUMBER, WIDE, TIME, PLAIN = "n", "w", "t", ""


def prose(text: str) -> str:
    """Return a text with the parts between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Each column has a heading and a kind. The cells of the rows are HTML."""
    head = "".join(
        f'<th class="{kind}">{escape(name)}</th>' if kind else f"<th>{escape(name)}</th>" for name, kind in columns
    )
    body = []
    for row in rows:
        cells = zip(row, columns, strict=True)
        shown = (f'<td class="{kind}">{cell}</td>' if kind else f"<td>{cell}</td>" for cell, (_, kind) in cells)
        body.append(f"<tr>{''.join(shown)}</tr>")
    full = ' class="full"' if any(kind in (WIDE, "barcell") for _, kind in columns) else ""
    return (
        f'<div class="scroll"><table{full}><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _folded(content: str, summary: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def passes(accounts: Accounts) -> str:
    """Return the table of the passes, newest last."""
    rows = accounts.passes
    has_numbers = [any(getattr(row.done, name) is not None for row in rows) for name in ("loss", "accuracy", "speed")]
    headings = ("loss", "accuracy", "examples/s")
    columns = [("pass", NUMBER), ("generation", NUMBER), ("done at (UTC)", TIME), ("time", NUMBER)]
    columns += [(name, NUMBER) for name, known in zip(headings, has_numbers, strict=True) if known]
    columns += [("", PLAIN)]

    def cells(row: PassRow) -> list[str]:
        done = row.done
        numbers = (quantity(done.loss), quantity(done.accuracy), quantity(done.speed))
        shown = [escape(each) for each, known in zip(numbers, has_numbers, strict=True) if known]
        fate = f'<span class="lostword">{row.fate}</span>' if row.fate == REPEATED else row.fate
        return [f"{done.number}", f"{done.generation}", clock(done.at), duration(row.seconds), *shown, fate]

    newest, older = rows[-_UNCOLLAPSED * 2 :], rows[: -_UNCOLLAPSED * 2]
    content = table(columns, map(cells, newest))
    if not older:
        return content
    more = f"{len(older)} earlier passes"
    if len(older) > _ROWS:
        older = older[-_ROWS:]
        more += f"; only the last {_ROWS} are shown"
    return _folded(table(columns, map(cells, older)), more) + content


def generations(accounts: Accounts) -> str:
    """Return the table of the generations, with the cost of each restart."""
    columns = [("generation", NUMBER), ("began (UTC)", TIME), ("ran for", NUMBER), ("from", TIME), ("kept", NUMBER)]
    columns += [("lost work", NUMBER), ("pause", NUMBER), ("cost", NUMBER), ("ended by", WIDE)]
    has_resized = sizes.vary([row.generation.size for row in accounts.generations])
    if has_resized:
        columns.insert(1, ("trainers", NUMBER))
    rows = []
    for row in accounts.generations[-_GENERATIONS:]:
        one = row.generation
        start = "the beginning" if one.after_pass is None else f"after pass {one.after_pass}"
        cause = prose(_short(row.cause.sentence)) if row.cause else "no end was written" if row.is_failed else ""
        cause = f"change of size: {cause}" if one.is_resize else cause
        rows.append(
            [
                f"{one.number}",
                *([f"{one.size or ''}"] if has_resized else []),
                clock(one.began),
                duration(row.end - one.began),
                start,
                duration(row.kept) if row.kept else "",
                duration(row.lost) if row.lost else "",
                "" if row.pause is None else duration(row.pause),
                "" if row.cost is None else duration(row.cost),
                cause,
            ]
        )
    left = len(accounts.generations) - len(rows)
    note = f'<p class="note">{left} earlier generations are not shown.</p>' if left > 0 else ""
    return note + table(columns, rows)


def _short(text: str) -> str:
    return text if len(text) <= _CAUSE else f"{text[:_CAUSE]} ..."


def members(facts: Facts) -> str:
    """Return the table of the members. In a large job, members that have not ended with 0 come first."""
    columns = [("member", TIME), ("pod", WIDE), ("phase", TIME), ("since (UTC)", TIME), ("last pass", NUMBER)]
    columns += [("copied", NUMBER), ("starts", NUMBER), ("exit code", NUMBER)]
    shown = [member for member in facts.members.values() if member.is_current or member.runs]
    many = len(shown) > _UNCOLLAPSED
    if many:
        usual = _most_common([_state_of(member) for member in shown])
        shown.sort(key=lambda member: _state_of(member) == usual)  # a stable sort: equal members stay in rank order
    rows = [_member(member) for member in shown[:_MEMBERS]]
    if not many:
        return table(columns, rows)
    more = f"{len(rows) - _UNCOLLAPSED} more members"
    if len(shown) > _MEMBERS:
        more += f"; {len(shown) - _MEMBERS} are not shown"
    return table(columns, rows[:_UNCOLLAPSED]) + _folded(table(columns, rows[_UNCOLLAPSED:]), more)


def _state_of(member: Member) -> tuple[object, ...]:
    run = member.run
    return (run.phase, run.exit_code, len(member.runs)) if run else ("", None, 0)


def _most_common(values: list[tuple[object, ...]]) -> tuple[object, ...]:
    counts: dict[tuple[object, ...], int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return max(counts, key=lambda value: counts[value])


def _member(member: Member) -> list[str]:
    run = member.run
    return [
        escape(member.name),
        escape(member.pod),
        escape(run.phase if run else "no events"),
        clock(run.since) if run else "",
        "" if member.last_pass is None else f"{member.last_pass}",
        size(member.copied),
        f"{len(member.runs)}",
        "" if run is None or run.exit_code is None else f"{run.exit_code}",
    ]


def speeds(found: Sequence[Speed]) -> str:
    """Return the usual speed of each trainer with a bar. Of many trainers, return the slowest and the fastest."""
    highest = max((each.median for each in found), default=0.0) or 1.0
    shown, note = list(found), ""
    if len(found) > _SPEEDS:
        ordered = sorted(found, key=lambda each: each.median)
        shown = [*ordered[:_SLOWEST], *ordered[-_FASTEST:]]
        note = f'<p class="note">The {_SLOWEST} slowest and the {_FASTEST} fastest of {len(found)} trainers.</p>'
    rows = [
        [
            escape(each.member.name),
            escape(quantity(each.median, 4)),
            f'<div class="bar" style="width:{max(0.0, each.median) / highest * 100:.1f}%"></div>',
        ]
        for each in shown
    ]
    return note + table([("trainer", TIME), ("examples/s", NUMBER), ("", "barcell")], rows)


def warnings(facts: Facts) -> str:
    """Return a table of the warnings of all members, each text once, or "" if there are none."""
    found: dict[str, tuple[float, int, list[str]]] = {}
    for member in facts.members.values():
        for text, (count, first) in member.warnings.items():
            at, total, of = found.get(text, (first, 0, []))
            found[text] = (min(at, first), total + count, [*of, member.name])
    ordered = sorted(found.items(), key=lambda item: item[1][0])
    rows = [[clock(at), f"{count}", escape(names(of, 3)), prose(text)] for text, (at, count, of) in ordered[:_WARNINGS]]
    if not rows:
        return ""
    left = len(ordered) - len(rows)
    note = f'<p class="note">{left} more warnings are in the logs.</p>' if left else ""
    return table([("first (UTC)", TIME), ("times", NUMBER), ("from", TIME), ("warning", WIDE)], rows) + note


def failures(facts: Facts) -> str:
    """Return a table of the lost connections and the dead processes, or "" if there are none."""
    first = {(each.cause.place, each.cause.kind, each.number) for each in facts.history if each.cause}
    rows = []
    for change in facts.peers[-100:]:
        member = facts.members.get(change.place)
        name = member.name if member else change.place.folder
        what = f"its connection to the hub was lost: {change.why}" if change.is_lost else "it has connected again"
        rows.append((change.at, name, change.pod, prose(what)))
    for member in facts.members.values():
        for death in member.deaths:
            memory = f": {death.out_of_memory}" if death.out_of_memory else ""
            what = prose(f"{death.process} ended with exit code {death.exit_code}{memory}")
            is_first = (member.place, death.process, death.generation) in first
            rows.append((death.at, member.name, member.pod, f"<b>{what}: the first cause</b>" if is_first else what))
        stops = [at for at in member.stops if not facts.resizes_after(at)]
        rows += [(at, member.name, member.pod, "got SIGTERM") for at in stops]
    rows.sort(key=lambda row: row[0])
    columns = [("at (UTC)", TIME), ("member", TIME), ("pod", TIME), ("what happened", WIDE)]
    shown = [[clock(at), escape(name), escape(pod), what] for at, name, pod, what in rows]
    if len(shown) > _UNCOLLAPSED:
        more = f"{len(shown) - _UNCOLLAPSED} later events"
        content = table(columns, shown[_UNCOLLAPSED : _UNCOLLAPSED + _ROWS])
        return table(columns, shown[:_UNCOLLAPSED]) + _folded(content, more)
    return table(columns, shown) if shown else ""


def pairs(title: str, found: Mapping[str, str]) -> str:
    if not found:
        return ""
    rows = [[f"<code>{escape(name)}</code>", escape(value)] for name, value in found.items()]
    return f"<div><h3>{escape(title)}</h3>{table([('name', TIME), ('value', WIDE)], rows)}</div>"


def kept_passes(rows: Sequence[PassRow]) -> int:
    """Return how many different passes are kept."""
    return len({row.done.number for row in rows if row.fate == KEPT})


def moments(facts: Facts, end: float) -> str:
    return f"{moment(facts.begin)} to {clock(end)}"
