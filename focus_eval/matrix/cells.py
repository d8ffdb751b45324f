"""The selections and cells of a matrix, and what makes two of them the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.question import check_query_form
from focus_eval.core.errors import FocusEvalError, InvalidInput, unknown_name
from focus_eval.core.types import AnswerParsing, CoarseSeed, FramePolicy
from focus_eval.encoders.cost import joint_gmacs, scan_share
from focus_eval.encoders.registry import encoder_gmacs_of, encoder_revision, scan_encoder_of
from focus_eval.llms.registry import check_llm, llm_identity, llm_text, llm_token_gmacs
from focus_eval.lmms.manifests import packages_of, stock_name
from focus_eval.lmms.prompts import DEFAULT, prompts_for, task_values
from focus_eval.matrix.config import BenchmarkConfig, EncoderConfig, MatrixConfig, ModelConfig, SamplerConfig, safe_name
from focus_eval.matrix.questions import find_documents, read_questions
from focus_eval.rows.identity import answer_identity, identity_hash, selection_identity, with_effect
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.registry import make_sampler, sampler_name


def model_weights(model: ModelConfig) -> str:
    """Return the exact weights that `model` answers with, a checkpoint's or an encoder's; "" where it names none."""
    from focus_eval.encoders.weights import weights_identity

    if "answer_encoder" in model.args:
        checkpoint = model.args.get("answer_encoder_checkpoint")
        return encoder_revision(str(model.args["answer_encoder"]), {"checkpoint": checkpoint} if checkpoint else {})
    return weights_identity(str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main"))


def questions_digest(config: BenchmarkConfig) -> str:
    """Return a hash over what a benchmark asks, and over the file of rates where that stands in for its videos.

    "" where the questions are not on this machine: no run starts from that.
    """
    try:
        # Read again only when a file has changed: many parts of a matrix ask for the same benchmark.
        return _digest(config.model_dump_json(), _stamp(config))
    except (FocusEvalError, OSError):
        return ""


@lru_cache(maxsize=64)
def _digest(key: str, stamp: Hashable) -> str:
    config = BenchmarkConfig.model_validate_json(key)
    questions, _ = read_questions(config)
    asked = [
        [question.id, question.video, question.query, list(question.options), question.answer] for question in questions
    ]
    # Where videos are read, the rates change nothing.
    rates = Path(config.rates).read_text(encoding="utf-8") if config.rates and not config.videos else ""
    # Sorted: the order of the questions changes no row.
    return identity_hash({"asked": sorted(asked, key=lambda entry: str(entry[0])), "rates": rates})


def _stamp(config: BenchmarkConfig) -> Hashable:
    """Return what changes when a file of questions or rates does."""
    files = [Path(config.annotations)] if config.annotations else list(find_documents(config).files)
    files += [Path(config.rates)] if config.rates else []
    shards = [shard for file in files for shard in (sorted(file.glob("*.parquet")) if file.is_dir() else [file])]
    return tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in shards)


@dataclass(frozen=True, kw_only=True)
class SelectionSpec:
    """One way to choose keyframes for all questions of one benchmark; serves every model with the same k.

    Args:
        scan_encoder: what the sampler scans with, by the name that the matrix or the sampler's option gives it.
        share_frames: whether other selections may pay for its frames. It changes what a row cost, not what it says: it
            is not part of the identity, but such rows have a folder of their own.
    """

    benchmark: BenchmarkConfig
    sampler: FrameSampler
    encoder: EncoderConfig | None
    k: int
    seed: int
    coarse_seed: CoarseSeed
    query: str = "question"
    share_frames: bool = True
    scan_encoder: EncoderConfig | None = None

    @property
    def encoders(self) -> list[EncoderConfig]:
        """The encoders that take part, the main one first."""
        return [encoder for encoder in (self.encoder, self.scan_encoder) if encoder]

    @cached_property
    def gmacs(self) -> dict[str, float]:
        """What the encoders cost, as its rows will say it (see `encoders.cost`)."""
        both = (self.encoder, self.scan_encoder)
        main, scanning = (encoder_gmacs_of(of.encoder, of.options) if of else {} for of in both)
        encoders = joint_gmacs(main, scanning)
        return {**encoders, **llm_token_gmacs(self.sampler, encoders)}

    @property
    def scan_cost(self) -> float | None:
        """A forward of the scan encoder over one of the main encoder; None where there is none or it is not known."""
        return scan_share(self.gmacs)

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """Everything a matrix says that can change a selection."""
        return self._identity(lambda encoder: json.dumps(with_effect(encoder.options), sort_keys=True))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a selection: `configuration`, and what its names stand for on this machine."""
        # A name such as "main" may mean other weights tomorrow; the rows belong to the exact ones.
        said = self._identity(lambda encoder: encoder_revision(encoder.encoder, encoder.options))
        return {**said, "questions": questions_digest(self.benchmark)}

    def _identity(self, revision_of: Callable[[EncoderConfig], str]) -> dict[str, Any]:
        chosen = selection_identity(
            self.sampler,
            k=self.k,
            seed=self.seed,
            coarse_seed=self.coarse_seed,
            encoder=self.encoder.encoder if self.encoder else "",
            encoder_revision=revision_of(self.encoder) if self.encoder else "",
            scan_encoder=self.scan_encoder.encoder if self.scan_encoder else "",
            scan_encoder_revision=revision_of(self.scan_encoder) if self.scan_encoder else "",
            **llm_identity(self.sampler),
            query=self.query,
        )
        return {"benchmark": self.benchmark.benchmark, **chosen}

    @cached_property
    def label(self) -> str:
        """The sampler with its options that differ from the defaults, e.g. `focus,alpha=0.1`."""
        defaults = type(self.sampler)().options
        # Only these: names stay short, and two variants differ by what was varied.
        said = {**self.sampler.options}
        if self.sampler.needs_llm:
            said["llm"] = llm_text(said["llm"])
        changed = [f"{key}={value}" for key, value in said.items() if value != defaults[key]]
        changed += [] if self.query == "question" else [f"query={self.query}"]
        return ",".join([self.sampler.name, *changed])

    @cached_property
    def name(self) -> str:
        """Readable, unique among all runs: its hash stands at the end."""
        encoder = f"-{self.encoder.name}" if self.encoder else ""
        label = safe_name(self.label)  # a query's template may hold anything
        # Same choice, other cost: a folder of its own keeps the two kinds of seconds apart.
        alone = "" if self.share_frames else "-alone"
        readable = f"{self.benchmark.name}-{label}{encoder}-k{self.k}-seed{self.seed}{alone}"
        return f"{readable}-{identity_hash(self.identity)[:8]}"


@dataclass(frozen=True, kw_only=True)
class AnswerSpec:
    """One configuration of a matrix: a selection shown to a model."""

    selection: SelectionSpec
    model: ModelConfig
    frame_policy: FramePolicy
    answer_parsing: AnswerParsing

    @property
    def benchmark(self) -> BenchmarkConfig:
        """The benchmark whose questions are answered."""
        return self.selection.benchmark

    @cached_property
    def prompts(self) -> str:
        """The name under which the task has prompts for this model."""
        task, model = self.benchmark.task, self.model.model
        return prompts_for(task_values(task), model, stock_name(model)) if task else DEFAULT

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """Everything a matrix says that can change an answer."""
        return {
            "selection": self.selection.configuration,
            "model": self.model.model,
            "arguments": with_effect(self.model.args),
            "frames": self.model.frames,
            "task": self.benchmark.task,
            "frame_policy": self.frame_policy,
            "answer_parsing": self.answer_parsing,
        }

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that can change an answer: `configuration`, and what its names stand for on this machine."""
        said = {**self.configuration, "selection": self.selection.identity, "weights": model_weights(self.model)}
        # Left out where it is as usual, so that ids made before there was a choice stay the same.
        said["packages"] = packages_of(self.model.model)
        return answer_identity(**(said if self.prompts == DEFAULT else {**said, "prompts": self.prompts}))

    @cached_property
    def id(self) -> str:
        """Hash of `identity`, 16 hexadecimal digits."""
        return identity_hash(self.identity)

    @cached_property
    def name(self) -> str:
        """Readable, unique among all runs: its hash stands at the end."""
        spec = self.selection
        encoder = f"-{spec.encoder.name}" if spec.encoder else ""
        readable = f"{spec.benchmark.name}-{self.model.name}-{spec.label}{encoder}-k{spec.k}-seed{spec.seed}"
        return f"{readable}-{self.id[:8]}"


def selection_specs(matrix: MatrixConfig) -> list[SelectionSpec]:
    """Return the distinct selections of `matrix`, in the order of its lists."""
    specs: dict[str, SelectionSpec] = {}
    # Models matter here only where their own `frames` stand in for k.
    models: list[ModelConfig | None] = [*matrix.models] or [None]
    for benchmark, model in itertools.product(matrix.benchmarks, models):
        for sampler in matrix.samplers:
            for made, k, seed in _variants(matrix, sampler, model):
                for encoder, query in itertools.product(_encoders(matrix, made, sampler.encoders), matrix.queries):
                    spec = SelectionSpec(
                        benchmark=benchmark,
                        sampler=made,
                        encoder=encoder,
                        k=k,
                        seed=seed,
                        coarse_seed=matrix.coarse_seed,
                        # Without an encoder or a model nothing reads the query: all queries are one selection.
                        query=query if encoder or made.needs_llm else "question",
                        share_frames=matrix.share_frames,
                        scan_encoder=_scan_encoder(matrix, made),
                    )
                    # Several models with one k, or several queries without an encoder, give the same selection once.
                    specs.setdefault(spec.name, spec)
    return list(specs.values())


def _variants(
    matrix: MatrixConfig, sampler: SamplerConfig, model: ModelConfig | None
) -> Iterator[tuple[FrameSampler, int, int]]:
    for made in _made(sampler):
        # A sampler that draws nothing chooses the same frames under every seed: they are shown once, and count once.
        yield from itertools.product([made], _frame_counts(matrix, model), matrix.seeds[: None if made.draws else 1])


def check_lists(matrix: MatrixConfig) -> None:
    """Check the lists of a matrix without data or weights, so that mistakes show before a run.

    Raises:
        UnknownName, InvalidInput: a sampler, an option or an encoder that does not exist, or a query that cannot be
            filled.
        SamplerError: a sampler's file that cannot be used.
    """
    for sampler in matrix.samplers:
        for made in _made(sampler):
            _encoders(matrix, made, sampler.encoders)
            _scan_encoder(matrix, made)
            check_llm(made)
    for query in matrix.queries:
        check_query_form(query)
    if "/" in matrix.name or matrix.name in ("", ".", ".."):
        raise InvalidInput(f"name: {matrix.name!r} cannot be the name of the run's folder")


def cells(matrix: MatrixConfig) -> list[AnswerSpec]:
    """Return the cells of `matrix`: every selection with every model that is shown as many frames."""
    return [
        AnswerSpec(selection=spec, model=model, frame_policy=matrix.frame_policy, answer_parsing=matrix.answer_parsing)
        # Model outermost: each is loaded once and answers all of its cells.
        for model in matrix.models
        for spec in selection_specs(matrix)
        if spec.k in _frame_counts(matrix, model)
    ]


def _frame_counts(matrix: MatrixConfig, model: ModelConfig | None) -> list[int]:
    return list(matrix.k) or ([model.frames] if model else [])


def _encoders(matrix: MatrixConfig, sampler: FrameSampler, names: list[str]) -> list[EncoderConfig | None]:
    if not sampler.needs_encoder:
        return [None]
    known = {encoder.name: encoder for encoder in matrix.encoders}
    if not known:
        raise InvalidInput(f"matrix {matrix.name!r}: sampler {sampler.name!r} needs an encoder; add one to encoders")
    for name in names:
        if name not in known:
            raise unknown_name(f"encoder of matrix {matrix.name!r}:", name, known)
    # A sampler that names no encoder is run with every one.
    return [known[name] for name in names or known]


def _scan_encoder(matrix: MatrixConfig, sampler: FrameSampler) -> EncoderConfig | None:
    """Return the encoder of `matrix` that the sampler's option names, or the one that the option says itself."""
    known = {encoder.name: encoder for encoder in matrix.encoders}
    text = getattr(sampler, "scan_encoder", "")
    if sampler.needs_scan and text in known:
        return known[text]
    return EncoderConfig(name=safe_name(text), encoder=text) if scan_encoder_of(sampler) else None


def all_encoders(matrix: MatrixConfig) -> list[EncoderConfig]:
    """Return the encoders of `matrix`, and those that its samplers scan with, each once."""
    scanning = [_scan_encoder(matrix, made) for sampler in matrix.samplers for made in _made(sampler)]
    return list({encoder.name: encoder for encoder in [*matrix.encoders, *scanning] if encoder}.values())


def _made(config: SamplerConfig) -> Iterator[FrameSampler]:
    choices = [value if isinstance(value, list) else [value] for value in config.options.values()]
    for values in itertools.product(*choices):
        yield make_sampler(config.sampler, **dict(zip(config.options, values, strict=True)))


_LISTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "benchmark": ("benchmarks", lambda entry: entry.name),
    "model": ("models", lambda entry: entry.name),
    "encoder": ("encoders", lambda entry: entry.name),
    "sampler": ("samplers", lambda entry: sampler_name(entry.sampler)),
    "k": ("k", str),
    "seed": ("seeds", str),
}


def narrow(matrix: MatrixConfig, chosen: dict[str, list[str]]) -> MatrixConfig:
    """Return `matrix` with each list cut to the entries named, e.g. {"sampler": ["focus", "aks"]}.

    A sampler in a file goes by its name, `peaks`, and by its place, `peaks.py:Peaks`.

    Raises:
        UnknownName: a list or an entry that the matrix does not have; the message has the nearest name.
        InvalidInput: a cut that leaves nothing.
    """
    changes = {}
    for key, names in chosen.items():
        if key not in _LISTS:
            raise unknown_name("list to narrow", key, _LISTS)
        attribute, name_of = _LISTS[key]
        entries = getattr(matrix, attribute)
        known = [name_of(entry) for entry in entries]
        # A sampler from a file has a path in the matrix, and a name in the rows: both are understood.
        names = [sampler_name(name) for name in names] if key == "sampler" else names
        for name in names:
            if name not in known:
                raise unknown_name(f"{key} of matrix {matrix.name!r}:", name, known)
        # In the matrix's own order, so that cells and tables keep theirs.
        changes[attribute] = [entry for entry in entries if name_of(entry) in names]
        if not changes[attribute]:
            raise InvalidInput(f"--only {key}=... matches nothing in matrix {matrix.name!r}")
    return matrix.model_copy(update=changes)
