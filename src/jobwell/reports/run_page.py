"""A run as one HTML page: nothing is loaded, nothing runs, it prints, and it follows the reader's light or dark."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from html import escape
from typing import Any

from jobwell.core.duration import text as duration
from jobwell.core.run_report import RunReport, state_words
from jobwell.core.runs import Pace, StageCard
from jobwell.core.text import visible
from jobwell.reports.page import POLICY, STYLE

MORE_STYLE = """
body { max-width: 60rem; }
:root { --s0: #0d74ce; --s1: #218358; --s2: #8145b5; --s3: #ad5700; --fail: #ce2c31; }
@media (prefers-color-scheme: dark) { :root { --s0: #70b8ff; --s1: #3dd68c; --s2: #d19dff; --s3: #ffa057; --fail: #ff9592; } }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.state { display: inline-block; padding: .1rem .6rem; border-radius: 1rem; border: 1px solid var(--line); font-weight: 600; }
.completed { color: var(--s1); } .completed_with_errors, .cancelled { color: var(--fail); } .paused { color: var(--s3); }
.part { display: block; width: 9rem; height: .5rem; border-radius: .25rem; background: var(--line); overflow: hidden;
  white-space: nowrap; font-size: 0; }
.part i { display: inline-block; height: 100%; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.part .d { background: var(--s1); } .part .f { background: var(--fail); } .part .k { background: var(--soft); }
svg { display: block; width: 100%; height: auto; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .name { fill: var(--ink); }
svg .axis { stroke: var(--line); } svg * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.c0 { fill: var(--s0); } .c1 { fill: var(--s1); } .c2 { fill: var(--s2); } .c3 { fill: var(--s3); } .fail { fill: var(--fail); }
"""
WIDE, HIGH, LEFT, BOTTOM = 800, 220, 56, 26
BARS, BAR = 10, 26
BAD_SHOWN = 20


def page(found: RunReport, zone: tzinfo | None) -> Iterator[str]:
    """Its pieces."""
    card = found.card
    title = f"{card.operation} {card.key or card.id}"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}{MORE_STYLE}</style>\n</head>\n<body>\n<h1>{_text(title)}</h1>\n"
        f'<p class="sentence">{_text(found.sentence())}</p>\n<p class="meta">{_meta(found, zone)}</p>\n'
    )
    yield from _stages(card.stages)
    if any(any(counts) for counts in found.pace.ended.values()):
        yield "<h2>Items that came to an end, over time</h2>\n"
        yield from _pace(found, zone)
    if found.reasons:
        yield "<h2>Errors by reason</h2>\n"
        yield from _reasons(found)
    if card.parts:
        yield "<h2>Before and after</h2>\n<ul>\n"
        for part in card.parts:
            yield f"<li>{_text(part.kind)} {_text(part.name)}: {_text(part.state)} {_text(part.message or '')}</li>\n"
        yield "</ul>\n"
    if found.bad:
        yield from _bad(found)
    yield f'<p class="meta">Made {_when(found.made_at, zone)}. Run {card.id}.</p>\n</body>\n</html>\n'


def _meta(found: RunReport, zone: tzinfo | None) -> str:
    card = found.card
    state = f'<span class="state {card.status}">{_text(state_words(card).removeprefix("is "))}</span> '
    period = _when(card.created_at, zone) + (f" – {_when(card.ended_at, zone)}" if card.ended_at else "")
    by = f" · {card.by}: {card.why}" if card.by and card.why else ""
    return state + _text(f"{period} ({card.created_at.astimezone(zone):%Z}) · started by {card.started_by}{by}")


def _stages(stages: Sequence[StageCard]) -> Iterator[str]:
    heads = "".join(f'<th class="n">{name}</th>' for name in ("total", "done", "failed", "skipped", "cancelled", "open"))
    told = any(one.accepted or one.delivered or one.bounced for one in stages)
    heads += '<th class="n">delivered</th><th class="n">bounced</th>' if told else ""
    yield f'<div class="jobs"><table>\n<thead><tr><th>stage</th><th></th>{heads}</tr></thead>\n<tbody>\n'
    for one in stages:
        numbers = [one.total, one.done, one.failed, one.skipped, one.cancelled, one.open]
        numbers += [one.delivered, one.bounced] if told else []
        cells = "".join(f'<td class="n">{"?" if number is None else f"{number:,}"}</td>' for number in numbers)
        yield f"<tr><td>{_text(one.name)}</td><td>{_share(one)}</td>{cells}</tr>\n"
    yield "</tbody></table></div>\n"


def _share(one: StageCard) -> str:
    total = max(one.total or one.processed + max(one.open, 0), 1)
    parts = (("d", one.done), ("f", one.failed), ("k", one.skipped + one.cancelled))
    bars = "".join(f'<i class="{name}" style="width: {number / total * 100:.2f}%"></i>' for name, number in parts if number)
    return f'<span class="part">{bars}</span>'


# --- charts ----------------------------------------------------------------------------------------------------------


def _pace(found: RunReport, zone: tzinfo | None) -> Iterator[str]:
    """Bars of items in a second: a colour for each stage, what failed in red at the foot."""
    pace = found.pace
    names = list(pace.ended)
    seconds = max(pace.seconds, 1e-9)
    tops = [sum(counts) for counts in zip(*pace.ended.values(), strict=True)]
    top = max(tops)
    step = (WIDE - LEFT - 8) / len(tops)
    scale = (HIGH - BOTTOM - 34) / top
    floor = HIGH - BOTTOM
    rate = top / seconds
    label = f"Items in a second, by stage; at most {_rate(rate)}"
    yield f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{label}">\n<title>{label}</title>\n'
    for share in (0.0, 0.5, 1.0):
        y = floor - top * scale * share
        yield f'<line class="axis" x1="{LEFT}" x2="{WIDE - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_rate(rate * share)}</text>\n'
    for at in range(len(tops)):
        y = float(floor)
        for kind, items in _parts(pace, at):
            y -= items * scale
            place = f'x="{LEFT + at * step:.1f}" y="{y:.1f}" width="{max(step - 1, 1):.1f}" height="{items * scale:.1f}"'
            yield f'<rect class="{kind}" {place}/>'
    yield "\n"
    for anchor, x, moment in (("start", LEFT, pace.since), ("end", WIDE - 8, pace.until)):
        yield f'<text x="{x}" y="{HIGH - 8}" text-anchor="{anchor}">{_when(moment, zone)}</text>'
    middle = (LEFT + WIDE) // 2
    yield f'<text x="{middle}" y="{HIGH - 8}" text-anchor="middle">a bar is {_text(duration(seconds))}; items/s</text>\n'
    x = LEFT
    for number, name in enumerate([*names, *(["failed"] if any(pace.failed) else [])]):
        kind = "fail" if number == len(names) else f"c{number % 4}"
        yield f'<rect class="{kind}" x="{x}" y="8" width="10" height="10"/>'
        yield f'<text class="name" x="{x + 15}" y="17">{_text(name)}</text>'
        x += 35 + 7 * len(name)
    yield "\n</svg>\n"


def _parts(pace: Pace, at: int) -> Iterator[tuple[str, int]]:
    """What a bar consists of: what failed at its foot, which is drawn once, then the rest of each stage."""
    failed = pace.failed[at]
    if failed:
        yield "fail", failed
    for number, counts in enumerate(pace.ended.values()):
        good = counts[at] - min(counts[at], failed)
        failed -= counts[at] - good
        if good:
            yield f"c{number % 4}", good


def _reasons(found: RunReport) -> Iterator[str]:
    """A bar for each of the most frequent ones, and a table of all that are told."""
    shown = found.reasons[:BARS]
    top = max(number for *_, number in shown)
    high = len(shown) * BAR + 12
    label = "Failed items by reason"
    yield f'<svg viewBox="0 0 {WIDE} {high}" role="img" aria-label="{label}">\n<title>{label}</title>\n'
    for at, (stage, code, number) in enumerate(shown):
        y = 6 + at * BAR
        name = f"{code or 'without a code'} in {stage}"
        width = max(number / top * (WIDE - 390), 2)
        yield (
            f'<text class="name" x="300" y="{y + 17}" text-anchor="end">{_text(_cut(name))}</text>'
            f'<rect class="fail" x="310" y="{y + 5}" width="{width:.1f}" height="16" rx="3"/>'
            f'<text x="{318 + width:.1f}" y="{y + 17}">{number:,}</text>\n'
        )
    heads = '<th class="n">items</th><th>stage</th><th>code</th><th>retry just these</th>'
    yield f'</svg>\n<div class="jobs"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    for stage, code, number in found.reasons:
        again = (
            f"<code>jobwell runs retry {found.card.id} --stage {_text(_quoted(stage))} --code {_text(_quoted(code))}</code>"
            if code
            else ""
        )
        yield f'<tr><td class="n">{number:,}</td><td>{_text(stage)}</td><td>{_text(code or "")}</td><td>{again}</td></tr>\n'
    yield "</tbody></table></div>\n"


def _bad(found: RunReport) -> Iterator[str]:
    yield f"<h2>Rows that do not fit: {found.card.bad_rows:,}</h2>\n"
    heads = '<th class="n">row</th><th>field</th><th>reason</th><th>value</th>'
    yield f'<div class="jobs"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    for row in found.bad[:BAD_SHOWN]:
        cells = "".join(f"<td>{_text(value or '')}</td>" for value in (row.field, row.reason, row.value))
        yield f'<tr><td class="n">{row.row:,}</td>{cells}</tr>\n'
    yield "</tbody></table></div>\n"
    if len(found.bad) > BAD_SHOWN:
        yield '<p class="meta">… the first of them; the XLSX report lists more.</p>\n'


def _quoted(value: str) -> str:
    import shlex

    return shlex.quote(value)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _cut(value: str) -> str:
    return value if len(value) <= 42 else f"{value[:41]}…"


def _when(moment: datetime, zone: tzinfo | None) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _text(value: Any) -> str:
    return escape(visible(str(value)), quote=True)
