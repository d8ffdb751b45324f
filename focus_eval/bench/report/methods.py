"""Writes `methods.md` and `references.bib` of a run: its settings in a paragraph, and BibTeX of its sources.

    write_methods(load_run(folder), folder / "report")

Every citation in the paragraph has its BibTeX entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from focus_eval.bench.report.run import Run
from focus_eval.core.files import write_text
from focus_eval.core.resources import read_yaml, resource_path
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.samplers.registry import SAMPLERS

OUR_KEY = "focus_eval"


def write_methods(run: Run, folder: Path) -> list[Path]:
    """Write `methods.md` and `references.bib` of `run` into `folder`, and return both paths.

    Citations are pandoc's, `[@focus]`; sources without a reference on file are named at the end of `methods.md`.
    """
    methods, references = methods_texts(run)
    return [write_text(folder / "methods.md", methods), write_text(folder / "references.bib", references)]


def methods_texts(run: Run) -> tuple[str, str]:
    """Return the text of `methods.md` and of `references.bib`."""
    writer = _MethodsWriter(run, read_references())
    purposes = writer.purpose_by_key()
    known_keys = [key for key in purposes if key in writer.references]
    methods = ["# Methods", "", *writer.sentences()]
    missing = [
        purpose if purpose.endswith(key) else f"{purpose} ({key})"
        for key, purpose in purposes.items()
        if key not in writer.references
    ]
    methods += ["", f"No reference on file: {'; '.join(missing)}."] if missing else []
    entries = [_bibtex(key, writer.references[key]) for key in known_keys]
    own_fields = {
        "title": "{focus-eval}",
        "author": "{The focus-eval authors}",
        "note": f"Version {version('focus-eval')}",
    }
    entries.append(_entry("software", OUR_KEY, own_fields))
    return "\n".join(methods) + "\n", "\n".join(entries) + "\n"


class Reference(TypedDict, total=False):
    """A paper or a program that a method cites; `arxiv` is the number of a preprint."""

    title: str
    author: str
    year: int
    venue: str
    arxiv: str


def read_references() -> dict[str, Reference]:
    """Return author, title, year and venue of each paper, by key."""
    references: dict[str, Reference] = read_yaml(resource_path("configs") / "references.yaml")
    return references


@dataclass(frozen=True)
class _MethodsWriter:
    """Writes the methods section of a run, with references to the papers of its samplers."""

    run: Run
    references: Mapping[str, Reference]

    def purpose_by_key(self) -> dict[str, str]:
        """Return the purpose of each reference, e.g. "sampler focus"; a key may have no reference on file."""
        purposes: dict[str, str] = {}
        for row in self.run.variants:
            purposes.setdefault(self._paper(row.sampler), f"sampler {row.sampler}")
            for encoder in filter(None, (row.encoder, row.scan_encoder)):
                purposes.setdefault(_encoder_family(encoder), f"encoder {encoder}")
        for row in self.run.variants:
            purposes.setdefault(row.benchmark, f"benchmark {row.benchmark}")
        for model, identity in self._cells():
            purposes.setdefault(str(identity.get("model", model)), f"model {model}")
        if self.run.answers:
            purposes.setdefault("lmms-eval", "lmms-eval")
        purposes.pop("", None)
        return purposes

    def sentences(self) -> list[str]:
        """Return the sentences of `methods.md`: version, samplers, encoders, K, seeds, benchmarks and models."""
        run, start = self.run, (self.run.provenance.get("starts") or [{}])[-1]
        revision = f", revision {str(start['git'])[:10]}" if start.get("git") else ""
        our_version = start.get("versions", {}).get("focus-eval") or version("focus-eval")
        sentences = [f"Frames were chosen by focus-eval {our_version}{revision} [@{OUR_KEY}]."]
        sentences.append(f"Samplers: {'; '.join(self._samplers())}.")
        encoders = dict.fromkeys(self._encoder(row) for row in run.variants if row.encoder)
        sentences += [f"Relevance: {'; '.join(encoders)}."] if encoders else []
        ks, seeds = ({str(getattr(row, name)) for row in run.variants} for name in ("k", "seed"))
        numbers = f"K = {', '.join(sorted(ks, key=int))}; seeds {', '.join(sorted(seeds, key=int))}"
        # Values of coarse_seed ("question" or "video") that the matrix or cells state.
        selections = [identity.get("selection", {}) for _, identity in self._cells()]
        stated = [run.provenance.get("matrix", {}), *(item for item in selections if isinstance(item, Mapping))]
        coarse_seeds = dict.fromkeys(str(item["coarse_seed"]) for item in stated if item.get("coarse_seed"))
        coarse = "".join(f"; coarse_seed {value}" for value in coarse_seeds)
        sentences.append(f"{numbers}{coarse}.")
        counts = run.selection_frame.groupby("benchmark", sort=False)["question_id"].nunique()
        benchmarks = [f"{name}{self._cite(str(name))} ({count:,} questions)" for name, count in counts.items()]
        sentences.append(f"Benchmarks: {'; '.join(benchmarks)}.")
        models = dict.fromkeys(self._model(model, identity) for model, identity in self._cells())
        sentences += (
            [f"Answers: {'; '.join(models)}, scored with lmms-eval{self._cite('lmms-eval')}."] if models else []
        )
        versions = [f"{name} {text}" for name, text in start.get("versions", {}).items() if name != "focus-eval"]
        sentences += [f"Versions: {', '.join(versions)}."] if versions else []
        sentences += run.mixed_versions
        return sentences

    def _paper(self, sampler: str) -> str:
        """The key of a sampler's paper, "" for a sampler of this project; for an unknown sampler, its name."""
        return str(SAMPLERS.fact(sampler, "paper", "")) if sampler in SAMPLERS else sampler

    def _samplers(self) -> list[str]:
        """A phrase for each sampler of the run: name, citation, version and changed options."""
        selections = [identity.get("selection", {}) for _, identity in self._cells()]
        versions = {str(selection.get("sampler", "")): selection.get("sampler_version") for selection in selections}
        texts = []
        for row in self.run.variants:
            options = ", ".join(f"{name}={value}" for name, value in row.changed_options.items()) or "default options"
            details = [f"version {versions[row.sampler]}"] if versions.get(row.sampler) else []
            texts.append(f"{row.sampler}{self._cite(self._paper(row.sampler))} ({', '.join([*details, options])})")
        return list(dict.fromkeys(texts))

    def _encoder(self, row: SelectionRow) -> str:
        """A phrase for the row's encoder: name, citation, revision and scan encoder."""
        revision = f" ({row.encoder_revision})" if row.encoder_revision else ""
        scan = f", scan by {row.scan_encoder}" if row.scan_encoder else ""
        return f"{row.encoder}{self._cite(_encoder_family(row.encoder))}{revision}{scan}"

    def _model(self, model: str, identity: Mapping[str, object]) -> str:
        """A phrase for a model: name, citation and weights; without its option `frames`, which is not K."""
        weights = f" ({identity['weights']})" if identity.get("weights") else ""
        subtitles = f", subtitles {identity['subtitles']}" if identity.get("subtitles") else ""
        name = model.removesuffix(subtitles)
        return f"{name}{self._cite(str(identity.get('model', name)))}{weights}{subtitles}"

    def _cells(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Model and identity of each cell."""
        return [(model, self.run.made_with.get(cell, {})) for *_, cell, model in self.run.cells]

    def _cite(self, key: str) -> str:
        """The citation of `key` for pandoc, " [@key]"; "" without a reference on file."""
        return f" [@{key}]" if key in self.references else ""


def _encoder_family(encoder: str) -> str:
    """An encoder's name without options and size, the key of its paper."""
    return encoder.partition(":")[0].partition("_size")[0]


def _bibtex(key: str, reference: Reference) -> str:
    fields = {"title": f"{{{reference['title']}}}", "author": reference["author"], "year": str(reference["year"])}
    fields |= {"booktitle": reference["venue"]} if "venue" in reference else {}
    fields |= {"eprint": reference["arxiv"], "archivePrefix": "arXiv"} if "arxiv" in reference else {}
    return _entry("inproceedings" if "venue" in reference else "misc", key, fields)


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    return "\n".join([f"@{kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"])
