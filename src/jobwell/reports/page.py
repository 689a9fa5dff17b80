"""A report as one HTML file: nothing is loaded, nothing runs, it prints, and it follows the reader's light or dark."""

from collections.abc import Iterator
from datetime import datetime, tzinfo
from html import escape
from typing import Any

from jobwell.core.report import Summary, carried, named
from jobwell.core.text import visible
from jobwell.reports.plain import Jobs

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #e0e3e8; --back: #fff; --card: #f7f8fa;
  --bar: #d6409f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edeef0;
    --soft: #a0a4ab; --line: #33373d; --back: #16181b; --card: #1e2125;
    --bar: #e879b9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 80rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--soft); margin: 0 0 .5rem; }
.sentence { font-size: 1.45rem; line-height: 1.35; margin: 0 0 .75rem; max-width: 60rem; text-wrap: pretty; }
.meta { color: var(--soft); margin: 0 0 2rem; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
.group { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .9rem 1.1rem; margin: 0 0 .75rem;
  break-inside: avoid; }
.group h3 { display: flex; gap: 1rem; justify-content: space-between; margin: 0; font-size: 1rem; overflow-wrap: anywhere; }
.group h3 span { white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { height: .35rem; border-radius: .2rem; background: var(--line); margin: .5rem 0; overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--bar); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.group p { margin: .25rem 0; color: var(--soft); }
.group .example { color: var(--ink); overflow-wrap: anywhere; }
code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.jobs { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.message { min-width: 16rem; overflow-wrap: anywhere; }
td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
thead { display: table-header-group; } tr { break-inside: avoid; }
@media print { body { padding: 0; max-width: none; font-size: 11px; } table { font-size: 9px; } .sentence { font-size: 15px; }
  .jobs { overflow: visible; } .group { padding: .4rem .7rem; } }
"""
HEADS = ("failed at", "job", "task", "tenant", "why", "message", "carries")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(found: Summary, jobs: Jobs, zone: tzinfo | None) -> Iterator[str]:
    """Its pieces, the list of jobs as it comes."""
    title = f"Failed jobs, {_when(found.until, zone)}"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Failed jobs</h1>\n"
        f'<p class="sentence">{_text(found.sentence(zone))}</p>\n<p class="meta">{_meta(found, zone)}</p>\n'
    )
    if found.groups:
        yield f"<h2>By {_text(found.wanted.group_by)}</h2>\n"
        for group in found.rows():
            yield _group(found, group, zone)
        if found.more_groups:
            yield f'<p class="meta">… and {found.more_groups:,} smaller groups.</p>\n'
    heads = "".join(f"<th>{head}</th>" for head in _heads(found))
    yield f'<h2>Jobs</h2>\n<div class="jobs"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    for job in jobs:
        yield _job(job, zone)
    yield "</tbody></table></div>\n</body>\n</html>\n"


def _heads(found: Summary) -> list[str]:
    return [_text(found.tenant_word.replace("_", " ")) if head == "tenant" else head for head in HEADS]


def _meta(found: Summary, zone: tzinfo | None) -> str:
    filters = ", ".join(f"{name} {value!r}" for name, value in found.wanted.given().items())
    zone_name = f"{found.until.astimezone(zone):%Z}"
    period = f"{_when(found.since, zone)} – {_when(found.until, zone)} ({zone_name})"
    return _text(period + (f" · only {filters}" if filters else ""))


def _group(found: Summary, group: dict[str, Any], zone: tzinfo | None) -> str:
    facts = f"{_when(group['first'], zone)} – {_when(group['last'], zone)}"
    if group["tenants"]:
        facts += f" · {group['tenants']:,} × {found.tenant_word.replace('_', ' ')}"
    example = f'<p class="example">{_text(group["example"])}</p>\n' if group["example"] else ""
    return (
        f'<section class="group">\n<h3>{_text(named(group, found.wanted.group_by))}'
        f"<span>{group['jobs']:,} · {group['share']:.1%}</span></h3>\n"
        f'<div class="bar"><i style="width: {group["share"] * 100:.1f}%"></i></div>\n{example}<p>{_text(facts)}</p>\n'
        f"<p>Retry just these: <code>{_text(group['retry'])}</code></p>\n</section>\n"
    )


def _job(job: Any, zone: tzinfo | None) -> str:
    why = job["code"] or job["reason"]
    return (
        f'<tr><td class="when">{_when(job["failed_at"], zone)}</td><td><code>{job["id"]}</code></td><td>{_text(job["task"])}</td>'
        f"<td>{_text(job['tenant'])}</td><td>{_text(why)}</td>"
        f'<td class="message">{_text(job["message"] or job["error_type"] or "")}</td><td>{_text(carried(job))}</td></tr>\n'
    )


def _when(moment: datetime, zone: tzinfo | None) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _text(value: str) -> str:
    return escape(visible(value), quote=True)
