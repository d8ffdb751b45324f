"""Writes what a paper says of a run: a paragraph of methods, the table in LaTeX, and BibTeX of all that was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from focus_eval.core.resources import read_yaml, resource_path
from focus_eval.registry.cards import Card
from focus_eval.report.run import Run
from focus_eval.report.table import latex_escaped, to_latex
from focus_eval.report.tables import results_table
from focus_eval.rows.records import SelectionRow

OURS = "focus_eval"


def read_references() -> dict[str, dict[str, Any]]:
    """Return what is known of each paper, by key."""
    found: dict[str, dict[str, Any]] = read_yaml(resource_path("registry") / "references.yaml")
    return found


def reference_text(about: Mapping[str, Any]) -> str:
    """Return a paper in one line, e.g. "TITLE, CVPR 2025, arXiv:2502.21271"."""
    arxiv = [f"arXiv:{about['arxiv']}"] if "arxiv" in about else []
    return ", ".join([about["title"], f"{about.get('venue', '')} {about['year']}".strip(), *arxiv])


def cited(run: Run, cards: Mapping[str, Card]) -> str:
    """Return the paragraph, the table and the BibTeX of `run`, as LaTeX; comments say what has no reference on file."""
    references, used = read_references(), _used(run, cards)
    known = [key for key in used if key in references]
    lacking = [f"{what} ({key})" if what != key else what for key, what in used.items() if key not in references]
    parts = [_paragraph(run, cards, references), "", to_latex(results_table(run, None))]
    parts += [_bibtex(key, references[key]) for key in known]
    parts.append(_ours())
    parts += [f"% no reference on file: {what}" for what in lacking]
    return "\n".join(parts) + "\n"


def _used(run: Run, cards: Mapping[str, Card]) -> dict[str, str]:
    """Return the key of each reference that the run needs, with what it is for."""
    used: dict[str, str] = {}
    for row in run.variants:
        used.setdefault(_paper(row.sampler, cards), f"sampler {row.sampler}")
        for encoder in filter(None, (row.encoder, row.scan_encoder)):
            used.setdefault(_plain(encoder), f"encoder {encoder}")
    for row in run.variants:
        used.setdefault(row.benchmark, f"benchmark {row.benchmark}")
    for model, made in _cells(run):
        used.setdefault(str(made.get("model", model)), f"model {model}")
    if run.answers:
        used.setdefault("lmms-eval", "lmms-eval")
    used.pop("", None)
    return used


def _paper(sampler: str, cards: Mapping[str, Card]) -> str:
    """Return the key of a sampler's paper; "" for ours, its own name where no card knows it."""
    card = next((card for card in cards.values() if card.sampler == sampler), None)
    return sampler if card is None else card.paper


def _plain(encoder: str) -> str:
    return encoder.partition(":")[0].partition("_size")[0]


def _paragraph(run: Run, cards: Mapping[str, Card], references: Mapping[str, Any]) -> str:
    last = (run.provenance.get("starts") or [{}])[-1]
    revision = f", revision {str(last['git'])[:10]}" if last.get("git") else ""
    sentences = [f"Frames were chosen by focus-eval {_version(last)}{revision}~\\cite{{{OURS}}}."]
    sentences.append(f"Samplers: {'; '.join(_samplers(run, cards, references))}.")
    encoders = [_encoder(row, references) for row in run.variants if row.encoder]
    sentences += [f"Relevance: {'; '.join(_unique(encoders))}."] if encoders else []
    ks, seeds = ({str(getattr(row, name)) for row in run.variants} for name in ("k", "seed"))
    sentences.append(f"K = {', '.join(sorted(ks, key=int))}; seeds {', '.join(sorted(seeds, key=int))}.")
    sentences.append(f"Benchmarks: {'; '.join(_benchmarks(run, references))}.")
    models = _unique(_model(model, made, references) for model, made in _cells(run))
    sentences += [f"Answers: {'; '.join(models)}, scored with lmms-eval~\\cite{{lmms-eval}}."] if models else []
    versions = ", ".join(f"{name} {text}" for name, text in last.get("versions", {}).items() if name != "focus-eval")
    sentences += [f"Versions: {latex_escaped(versions)}."] if versions else []
    sentences += [latex_escaped(text) for text in run.mixed_versions]
    against = [latex_escaped(str(text)) for text in run.provenance.get("against", [])]
    sentences += [f"Asked otherwise than in the paper: {'; '.join(against)}."] if against else []
    return "\n".join(sentences)


def _version(last: Mapping[str, Any]) -> str:
    return str(last.get("versions", {}).get("focus-eval") or version("focus-eval"))


def _samplers(run: Run, cards: Mapping[str, Card], references: Mapping[str, Any]) -> list[str]:
    chosen = [made.get("selection", {}) for _, made in _cells(run)]
    versions = {str(how.get("sampler", "")): how.get("sampler_version") for how in chosen}
    texts = []
    for row in run.variants:
        changed = ", ".join(f"{name}={value}" for name, value in row.changed_options.items())
        said = latex_escaped(row.sampler) + _cite(_paper(row.sampler, cards), references)
        about = [f"version {versions[row.sampler]}"] if versions.get(row.sampler) else []
        texts.append(f"{said} ({', '.join([*about, latex_escaped(changed) or 'default options'])})")
    return _unique(texts)


def _encoder(row: SelectionRow, references: Mapping[str, Any]) -> str:
    revision = f" ({latex_escaped(row.encoder_revision)})" if row.encoder_revision else ""
    scan = f", scan by {latex_escaped(row.scan_encoder)}" if row.scan_encoder else ""
    return latex_escaped(row.encoder) + _cite(_plain(row.encoder), references) + revision + scan


def _benchmarks(run: Run, references: Mapping[str, Any]) -> list[str]:
    counts = run.selection_frame.groupby("benchmark", sort=False)["question_id"].nunique()
    return [f"{latex_escaped(str(name))}{_cite(str(name), references)} ({n:,} questions)" for name, n in counts.items()]


def _model(model: str, made: Mapping[str, Any], references: Mapping[str, Any]) -> str:
    weights = f" ({latex_escaped(str(made['weights']))})" if made.get("weights") else ""
    frames = f", {made['frames']} frames" if made.get("frames") else ""
    return latex_escaped(model) + _cite(str(made.get("model", model)), references) + weights + frames


def _cells(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Return model and identity of each cell."""
    return [(model, run.made_with.get(cell, {})) for *_, cell, model in run.cells]


def _cite(key: str, references: Mapping[str, Any]) -> str:
    return f"~\\cite{{{key}}}" if key in references else ""


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _bibtex(key: str, about: Mapping[str, Any]) -> str:
    fields = {"title": f"{{{about['title']}}}", "author": about["author"], "year": str(about["year"])}
    fields |= {"booktitle": about["venue"]} if "venue" in about else {}
    fields |= {"eprint": about["arxiv"], "archivePrefix": "arXiv"} if "arxiv" in about else {}
    return _entry("inproceedings" if "venue" in about else "misc", key, fields)


def _ours() -> str:
    fields = {"title": "{focus-eval}", "author": "{The focus-eval authors}", "note": f"Version {version('focus-eval')}"}
    return _entry("software", OURS, fields)


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    return "\n".join([f"@{kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"])
