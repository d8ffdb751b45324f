"""The page of a run, and the index of several: one file each, which opens offline."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from focus_eval.bench.benchmarks.question import NEAR_SECONDS
from focus_eval.bench.report.comparisons import (
    baseline_labels,
    baseline_table,
    group_baseline_table,
    not_compared,
    recall_table,
)
from focus_eval.bench.report.layouts import ASKED_OTHERWISE, layout_named, results_table
from focus_eval.bench.report.measures import FORWARDS, cost_tables, group_score_table
from focus_eval.bench.report.page.browser import MAX_THUMBNAIL_BYTES, Browser, json_for_script, pack_browser
from focus_eval.bench.report.page.charts import (
    PanelsByFigure,
    Point,
    charts_of,
    headline,
    lead_chart,
    panels_of,
    styles_of_run,
)
from focus_eval.bench.report.page.thumbnails import Thumbnails
from focus_eval.bench.report.rendering import (
    COUNT_TITLES,
    Counts,
    Table,
    TableRow,
    Value,
    count_texts,
    narrowed,
    notes_once,
    to_csv,
)
from focus_eval.bench.report.run import Run, load_run, sampler_order
from focus_eval.core.files import write_text
from focus_eval.keyframes.figures import css_variables

_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
_SCRIPTS = ("elements", "sorting", "points", "timeline", "answers", "question", "browser", "address", "start")


def write_html(run: Run, path: Path, *, videos: Path | None = None, **options: Any) -> Path:
    """Write the report of `run`: one self-contained file that requests nothing; texts are escaped.

    Args:
        videos: folder to which the rows' video paths are relative. A video found there plays when its frame is
            enlarged.
        options: further arguments of `render_html`.
    """
    videos_address = None if videos is None else quote(Path(os.path.relpath(videos, path.parent)).as_posix())
    return write_text(path, render_html(run, videos=videos_address, **options))


def render_html(
    run: Run,
    *,
    tables: Sequence[Table] | None = None,
    thumbnails: Thumbnails | None = None,
    thumbnail_bytes: int | None = MAX_THUMBNAIL_BYTES,
    videos: str | None = None,
    panels: PanelsByFigure | None = None,
    browser: Browser | None = None,
) -> str:
    """Return the page as text.

    Args:
        tables: from `report_tables`, if it was called already.
        thumbnails, thumbnail_bytes: as in `pack_browser`.
        videos: address of the videos' folder, relative to the page.
        panels: from `panels_of`, if it was called already.
        browser: from `pack_browser` with the same `thumbnails`, if it was called already.
    """
    if browser is None:
        browser = pack_browser(run, thumbnails=thumbnails, thumbnail_bytes=thumbnail_bytes)
    script, styles, panels = _script(), styles_of_run(run), panels_of(run) if panels is None else panels
    charts = charts_of(run, panels)
    has_published = any(chart.has_published for chart in charts)
    page_tables = [narrowed(item) for item in notes_once([*(tables or report_tables(run)), *cost_tables(run)])]
    listed, n_questions = len(browser.index["questions"]), browser.n_questions
    questions = f"{listed:,}" if listed == n_questions else f"{n_questions:,} (the first {listed:,} are listed)"
    return _render(
        "report.html.j2",
        script=script,
        run=run,
        facts=run_facts(run, questions=questions),
        headline=re.sub(r"(?<=\d) (?=%|s\b)", _NO_BREAK_SPACE, headline(run, panels)),
        leads=[
            (width, chart)
            for width in ("broad", "phone")
            if (chart := lead_chart(run, panels, is_narrow=width == "phone")) is not None
        ],
        tables=[replace(item, notes=()) for item in page_tables],
        notes=[(item.title, item.notes) for item in page_tables if item.notes],
        prompts={model: sent["text"] for model, sent in prompts_of(run).items() if "text" in sent},
        charts=sorted(charts, key=lambda chart: not chart.is_frontier),
        has_published=has_published,
        # Tables with published figures already have this sentence as a note.
        otherwise=[ASKED_OTHERWISE] if has_published and not run.anchors else [],
        legend=[(label, styles[label].css) for label in sorted(set(run.labels.values()), key=sampler_order)],
        index=json_for_script({**browser.index, "videos": videos}),
        chunks=browser.chunks,
        pictured=browser.pictured,
        has_pictures=thumbnails is not None,
    )


def render_sections(
    title: str,
    sections: Sequence[tuple[str, Sequence[str | Table | Mapping[str, str]]]],
    *,
    n_open: int = 1,
    links: Mapping[str, str] | None = None,
) -> str:
    """Return a page of headings, each followed by texts, tables, drawings (`figures.page_svg`) and links.

    Args:
        n_open: number of first sections that are open; the rest open by a click.
        links: row name -> address that the name links to.
    """
    tables = iter(notes_once([item for _, items in sections for item in items if isinstance(item, Table)]))
    narrow_sections = [
        (heading, [narrowed(next(tables)) if isinstance(item, Table) else item for item in items])
        for heading, items in sections
    ]
    script = _script(("elements", "sorting", "sections"))
    values = {"title": title, "sections": narrow_sections, "n_open": n_open, "links": links or {}}
    return _render("compare.html.j2", script=script, **values)


def _render(template: str, *, script: str = "", **values: object) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("focus_eval.bench.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = css_variables() + _asset("report.css")
    # With this content policy only our style and scripts run, and nothing is fetched, whatever a question's text
    # contains.
    policy = (
        "default-src 'none'; img-src data: file: 'self'; media-src file: 'self'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    environment.globals |= {"counts_line": _counts_line, "other_keys": _other_keys, "csv_address": _csv_address}
    return environment.get_template(template).render(style=style, script=script, policy=policy, **values)


def _asset(name: str) -> str:
    return (files("focus_eval.bench.report") / "page" / name).read_text(encoding="utf-8")


def _script(names: Sequence[str] = _SCRIPTS) -> str:
    """The scripts with these file names, joined to one text that keeps their names out of the global scope."""
    return '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in names) + "})();\n"


def _csv_address(table: Table) -> str:
    """`table` as a data address that a browser saves without fetching anything."""
    return "data:text/csv;base64," + base64.b64encode(to_csv(table).encode()).decode()


def _digest(text: str) -> str:
    """The hash by which the page's content policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def check_names(run: Run, layout: str | None, *, baseline: str | None) -> None:
    """Raise UnknownName if there is no layout `layout`, or if no sampler of the run is called `baseline`."""
    layout_named(layout or run.anchors or "overview")
    baseline_labels(run, baseline)


def report_tables(run: Run, layout: str | None = None, *, baseline: str | None = None) -> list[Table]:
    """Return the tables that every format of the report begins with.

    Args:
        layout: layout of the first table; by default that of the matrix. The overview is always included.
        baseline: sampler to compare with, by name or label; uniform by default.

    Raises:
        UnknownName: no such layout, or no sampler of the run is called `baseline`.
    """
    check_names(run, layout, baseline=baseline)
    tables = [results_table(run, layout)]
    if tables[0].name != "overview":
        tables.append(results_table(run, "overview"))
    groups = group_score_table(run)
    tables += [groups] if groups else []
    accuracy, recall = baseline_table(run, baseline=baseline), recall_table(run, baseline=baseline)
    tables += [accuracy] if accuracy else []
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *not_compared(run, baseline=baseline)))
    group_differences = group_baseline_table(run, baseline=baseline)
    return [*tables, *(table for table in (group_differences, recall) if table)]


def _counts_line(counts: Counts) -> str:
    """The counts of a row that are not zero, e.g. "1337 questions, 2 errors"."""
    texts = count_texts(counts)
    counter_texts = [f"{text} {title}" for title, text in zip(COUNT_TITLES[1:], texts[1:], strict=True) if text != "0"]
    return ", ".join([f"{texts[0]} {COUNT_TITLES[0]}", *counter_texts])


def _other_keys(table: Table, row: TableRow, name_index: int) -> str:
    """The keys of a row except its name, e.g. "videomme · K 8"; shown if the screen is too narrow for columns."""
    keys = zip(table.key_titles, row.keys, strict=True)
    entries = [entry for i, entry in enumerate(keys) if i != name_index and entry[1]]
    return " · ".join(f"{title} {key}" if key[0].isdigit() else key for title, key in entries)


def run_facts(run: Run, *, questions: str = "") -> list[tuple[str, str]]:
    """Return the facts of a run by name: benchmark, questions, model, start, device, code.

    Args:
        questions: number of questions as text; counted by default.
    """
    starts = run.provenance.get("starts", [])
    last = starts[-1] if starts else {}
    frame, versions = run.selection_frame, last.get("versions", {})
    git = str(last.get("git") or "")
    commit = git[:10] + ("+" if git.endswith("+") else "")  # "+" marks files that differed from the commit
    facts = [
        ("Benchmark", ", ".join(frame["benchmark"].unique())),
        ("Questions", questions or f"{len(frame.drop_duplicates(['benchmark', 'question_id'])):,}"),
        ("Model", ", ".join(run.models) or "none: frames only"),
        *_asked(run),
        ("Started", str(last.get("time", ""))),
        ("Device", str(last.get("device", ""))),
        ("Recoveries of encoders", _recoveries(run.provenance.get("recoveries", {}))),
        ("Code", " ".join(str(item) for item in (versions.get("focus-eval", ""), commit) if item)),
    ]
    return [(name, value) for name, value in facts if value]


def prompts_of(run: Run) -> dict[str, Mapping[str, Any]]:
    """Return the first prompt of each model, from its first cell."""
    return {model: run.prompts[cell] for *_, cell, model in reversed(list(run.cells)) if cell in run.prompts}


def _asked(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of each model's input: frame size, visual tokens, number type, attention, template.

    Models whose first prompt was not recorded are left out.
    """
    for model, sent in prompts_of(run).items():
        texts = [f"{sent['frame_pixels'][1]} × {sent['frame_pixels'][0]} px a frame"] if "frame_pixels" in sent else []
        texts += [f"{sent['visual_tokens']:,} visual tokens"] if "visual_tokens" in sent else []
        texts += [str(sent[name]) for name in ("dtype", "attention") if name in sent]
        texts += [f"template {sent['template']}"] if "template" in sent else []
        if texts:
            yield f"Asked, {model}", ", ".join(texts)


def _recoveries(by_encoder: dict[str, dict[str, int]]) -> str:
    """The numbers of batches that encoders had to repeat, by encoder and kind, as text; "" if there are none."""
    kinds = {"halved_batches": "halved for lack of memory", "fp32_batches": "redone in fp32"}
    return ", ".join(
        f"{encoder}: {count} {'batch' if count == 1 else 'batches'} {kinds.get(kind, kind)}"
        for encoder, counts in by_encoder.items()
        for kind, count in counts.items()
    )


def write_index(folders: Sequence[Path], path: Path) -> Path:
    """Write the index of the runs in `folders` as a page that opens offline; return its path."""
    rows = tuple(row for folder in folders for row in _rows(folder.name, load_run(folder)))
    table = Table(
        name="runs",
        title="Runs",
        key_titles=("Benchmark", "Model", "K", "Sampler", "Run"),
        columns=(f"recall within {NEAR_SECONDS:g} s (%)", "accuracy (%)", FORWARDS, "date"),
        rows=rows,
        notes=("Evidence recall and accuracy with 95 % intervals, by video. The last start of a run is its date.",),
    )
    pages = {
        folder.name: quote(Path(os.path.relpath(page, path.parent)).as_posix())
        for folder in folders
        if (page := folder / "report.html").is_file()
    }
    without_page = ", ".join(folder.name for folder in folders if folder.name not in pages)
    lines = [f"Without a page, which focus-eval report RUN writes: {without_page}."] if without_page else []
    title = f"{len(folders)} runs"
    return write_text(path, render_sections(title, [(title, [table, *lines])], links=pages))


def _rows(name: str, run: Run) -> list[TableRow]:
    """A row for each benchmark, model, K and sampler of `run`."""
    points: dict[tuple[str, str, int], dict[str, Point]] = {}
    for title, panels in panels_of(run).items():
        benchmark, _, model = title.partition(", ")
        for panel in panels:
            if panel.cost == FORWARDS:
                own_points = {point.label: point for point in panel.points if not point.is_published}
                points[benchmark, model, panel.k] = own_points
    starts = run.provenance.get("starts", [])
    date = str(starts[-1].get("time", ""))[:10] if starts else ""
    rows = []
    for (benchmark, model, k), by_label in points.items():
        is_answered = any(key[0] == benchmark and key[2] == k for key in points if key[1])
        if not model and is_answered:
            continue  # the row of the accuracy shows it already
        recalls = points.get((benchmark, "", k), {})
        for label, point in by_label.items():
            recall = recalls[label].value if label in recalls else Value()
            figures = (recall, point.value if model else Value(), Value(ours=point.cost, digits=2), date)
            rows.append(TableRow((benchmark, model, str(k), label, name), figures))
    return rows
