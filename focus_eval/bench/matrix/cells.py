"""Expands a matrix into selections and cells (a selection with a model), and computes their identities."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from focus_eval.bench.benchmarks.subtitles import SubtitleModeOption, SubtitleOptions, subtitle_choice
from focus_eval.bench.lmms.manifests import packages_of, stock_name
from focus_eval.bench.lmms.tasks import DEFAULT, prompts_for, subtitles_of_task, task_values
from focus_eval.bench.matrix.config import (
    BenchmarkConfig,
    EncoderConfig,
    MatrixConfig,
    ModelConfig,
    SamplerConfig,
    safe_name,
)
from focus_eval.bench.matrix.questions import find_documents, read_questions
from focus_eval.core.errors import FocusEvalError, InvalidInput, unknown_name
from focus_eval.core.types import AnswerParsing, CoarseSeed, FramePolicy, Timeline, check_query_form
from focus_eval.keyframes.encoders.cost import joint_gmacs, scan_share
from focus_eval.keyframes.encoders.registry import encoder_revision, scan_encoder_text
from focus_eval.keyframes.llms.registry import check_llm, llm_identity, llm_text, llm_token_gmacs
from focus_eval.keyframes.rows.identity import answer_identity, effective_arguments, identity_hash, selection_identity
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_name
from focus_eval.keyframes.subtitles.prompts import task_arguments
from focus_eval.keyframes.video import displayed, gives_exact_pixels


def model_weights(model: ModelConfig) -> str:
    """Return the identity of the weights that answer for `model`, a checkpoint or an answer encoder.

    "" if it names none.
    """
    from focus_eval.keyframes.encoders.weights import weights_identity

    if "answer_encoder" in model.args:
        checkpoint = model.args.get("answer_encoder_checkpoint")
        return encoder_revision(str(model.args["answer_encoder"]), {"checkpoint": checkpoint} if checkpoint else {})
    return weights_identity(str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main"))


def questions_digest(config: BenchmarkConfig) -> str:
    """Return a hash of a benchmark's questions, and of its file of rates if that replaces the videos.

    Returns "" if the questions cannot be read on this machine; no run starts in that state.
    """
    try:
        files = [Path(config.annotations)] if config.annotations else list(find_documents(config).files)
        files += [Path(config.rates)] if config.rates else []
        shards = [shard for file in files for shard in (sorted(file.glob("*.parquet")) if file.is_dir() else [file])]
        stamp = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in shards)
        # Cache the hash until a file changes, since many parts of a matrix ask for that of the same benchmark.
        return _digest(config.model_dump_json(), stamp)
    except (FocusEvalError, OSError):
        return ""


@lru_cache(maxsize=64)
def _digest(key: str, stamp: Hashable) -> str:
    """The hash for the benchmark config `key` (JSON); `stamp` only renews the cache when a file changes."""
    config = BenchmarkConfig.model_validate_json(key)
    questions, _ = read_questions(config)
    contents = [
        [question.id, question.video, question.query, list(question.options), question.answer] for question in questions
    ]
    # Include stated rates only if no videos are read: otherwise rates come from the videos.
    rates = Path(config.rates).read_text(encoding="utf-8") if config.rates and not config.videos else ""
    # Sort the questions, since their order changes no row.
    return identity_hash({"asked": sorted(contents, key=lambda entry: str(entry[0])), "rates": rates})


@dataclass(frozen=True, kw_only=True)
class SelectionSpec:
    """One way to choose keyframes for all questions of one benchmark; serves every model with the same k.

    Args:
        encoder: encoder that gives relevance; None for a sampler that needs none.
        k: keyframes per question.
        query: form of the question that encoders get (see `core.types.query_text`).
        share_frames: True lets questions and selections share embedded frames. This changes the cost of a row but not
            its
            keyframes, so it is not part of the identity; rows without sharing have their own folder.
        scan_encoder: encoder that the sampler scans with; None for a sampler that does not scan.
        timeline: whether samplers see a video of varying rate frame by frame or in even steps of time.
        backend: video reader, with `pixels=display` if the matrix says so.
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
    backend: str = "pyav"
    timeline: Timeline = "frames"

    @property
    def encoders(self) -> list[EncoderConfig]:
        """The encoders of this selection, the main one before the scan encoder."""
        return [encoder for encoder in (self.encoder, self.scan_encoder) if encoder]

    @cached_property
    def gmacs(self) -> dict[str, float]:
        """10^9 multiply-adds of encoder forwards and of a model's token, by the keys of rows (see `encoders.cost`)."""
        from focus_eval.keyframes.encoders.weights import local_gmacs

        pair = (self.encoder, self.scan_encoder)
        main, scanning = (local_gmacs(config.encoder, config.options) if config else {} for config in pair)
        encoders = joint_gmacs(main, scanning)
        return {**encoders, **llm_token_gmacs(self.sampler, encoders)}

    @property
    def scan_cost(self) -> float | None:
        """Cost of a scanned frame relative to a forward of the main encoder; None if not known."""
        return scan_share(self.gmacs)

    @cached_property
    def configuration(self) -> dict[str, object]:
        """The settings of a matrix that can change a selection, without revisions of weights or questions."""
        return self._identity(lambda encoder: json.dumps(effective_arguments(encoder.options), sort_keys=True))

    @cached_property
    def identity(self) -> dict[str, object]:
        """`configuration` with the encoder revisions and the hash of the questions on this machine."""
        # Use exact revisions, since a name such as "main" may later stand for different weights.
        named_identity = self._identity(lambda encoder: encoder_revision(encoder.encoder, encoder.options))
        return {**named_identity, "questions": questions_digest(self.benchmark)}

    def _identity(self, revision_of: Callable[[EncoderConfig], str]) -> dict[str, object]:
        """All settings that can change a selection, with `revision_of(encoder)` as the revision of each encoder."""
        identity = selection_identity(
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
            inexact_backend="" if gives_exact_pixels(self.backend) else self.backend,
        )
        timeline = {} if self.timeline == "frames" else {"timeline": self.timeline}
        return {"benchmark": self.benchmark.benchmark, **timeline, **identity}

    @cached_property
    def label(self) -> str:
        """The sampler with its options that differ from the defaults, e.g. `focus,alpha=0.1`."""
        defaults = type(self.sampler)().options
        # Show only the varied options, so that names stay short.
        options = {**self.sampler.options}
        if self.sampler.needs_llm:
            options["llm"] = llm_text(options["llm"])
        # Options that are off by default may be absent.
        changed = [f"{key}={value}" for key, value in options.items() if value != defaults.get(key)]
        changed += [] if self.query == "question" else [f"query={self.query}"]
        return ",".join([self.sampler.name, *changed])

    @cached_property
    def readable_name(self) -> str:
        """Benchmark, sampler, encoder, K and seed, without the hash of weights, questions and versions."""
        encoder = f"-{self.encoder.name}" if self.encoder else ""
        label = safe_name(self.label)  # a query's template may hold characters that a path must not
        # Sharing changes the cost of a selection but not its keyframes: keep rows with and without sharing in two
        # folders.
        suffix = "" if self.share_frames else "-alone"
        return f"{self.benchmark.name}-{label}{encoder}-k{self.k}-seed{self.seed}{suffix}"

    @cached_property
    def name(self) -> str:
        """Name of the folder, unique among all runs; ends in a hash of the identity."""
        return f"{safe_name(self.readable_name)}-{identity_hash(self.identity)[:8]}"


@dataclass(frozen=True, kw_only=True)
class AnswerSpec:
    """One cell of a matrix: a selection shown to a model."""

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
        """Name of the task's prompts for this model; `DEFAULT` if the benchmark has no task."""
        benchmark, model = self.benchmark, self.model.model
        if not benchmark.task:
            return DEFAULT
        return prompts_for(task_values(benchmark.task, benchmark.include_path), model, stock_name(model))

    @cached_property
    def subtitles(self) -> SubtitleModeOption:
        """Which subtitles the prompts get; "" for none, or "off" if the task itself would write subtitles."""
        task, mode = self.benchmark.task, self.model.subtitles
        kwargs = task_values(task, self.benchmark.include_path).get("lmms_eval_specific_kwargs") if task else None
        stated_kwargs = kwargs if isinstance(kwargs, Mapping) else None
        if subtitles_of_task(task, task_arguments(stated_kwargs, self.prompts)) is not None:
            return mode or "shown"
        return "" if mode == "off" else mode

    @cached_property
    def configuration(self) -> dict[str, object]:
        """The settings of a matrix that can change an answer, without revisions of weights or questions."""
        layout, tags = self.model.subtitle_layout, self.model.reasoning_tags
        return {
            "selection": self.selection.configuration,
            "model": self.model.model,
            "arguments": effective_arguments(self.model.args),
            "frames": self.model.frames,
            "task": self.benchmark.task,
            "frame_policy": self.frame_policy,
            "answer_parsing": self.answer_parsing,
            # Omit the default, so that the new option leaves earlier ids unchanged.
            **({} if tags is None else {"reasoning_tags": [list(pair) for pair in tags]}),
            **({"subtitles": self.subtitles} if self.subtitles else {}),
            **({"subtitle_layout": layout} if layout and self.subtitles not in ("", "off") else {}),
        }

    @cached_property
    def identity(self) -> dict[str, object]:
        """`configuration` with the revisions of weights, encoders and questions on this machine."""
        named_identity: dict[str, Any] = {
            **self.configuration,
            "selection": self.selection.identity,
            "weights": model_weights(self.model),
        }
        # Omit the default, so that the new option leaves earlier ids unchanged.
        named_identity["packages"] = packages_of(self.model.model)
        return answer_identity(
            **(named_identity if self.prompts == DEFAULT else {**named_identity, "prompts": self.prompts})
        )

    @cached_property
    def id(self) -> str:
        """Hash of `identity`, 16 hexadecimal digits."""
        return identity_hash(self.identity)

    @cached_property
    def readable_name(self) -> str:
        """Benchmark, model, sampler, encoder, K and seed, without the hash of weights, questions and versions."""
        spec = self.selection
        encoder = f"-{spec.encoder.name}" if spec.encoder else ""
        return f"{spec.benchmark.name}-{self.model.name}-{spec.label}{encoder}-k{spec.k}-seed{spec.seed}"

    @cached_property
    def name(self) -> str:
        """Name of the folder, unique among all runs; ends in a hash of the identity."""
        return f"{safe_name(self.readable_name)}-{self.id[:8]}"


def selection_specs(matrix: MatrixConfig) -> list[SelectionSpec]:
    """Return the distinct selections of `matrix`, in the order of its lists."""
    # Key by configuration, not by name: a name needs the revisions of weights and the questions, which are slow to
    # read.
    specs: dict[tuple[str, ...], SelectionSpec] = {}
    # A selection depends on a model only if the model's `frames` replace k.
    models: list[ModelConfig | None] = [*matrix.models] or [None]
    for benchmark, model in itertools.product(matrix.benchmarks, models):
        for sampler in matrix.samplers:
            for instance, k, seed in _variants(matrix, sampler, model):
                for encoder, query in itertools.product(_encoders(matrix, instance, sampler.encoders), matrix.queries):
                    spec = SelectionSpec(
                        benchmark=benchmark,
                        sampler=instance,
                        encoder=encoder,
                        k=k,
                        seed=seed,
                        coarse_seed=matrix.coarse_seed,
                        # Without an encoder and a model nothing reads the query, so all forms of the query give the
                        # same selection.
                        query=query if encoder or instance.needs_llm else "question",
                        share_frames=matrix.share_frames,
                        scan_encoder=_scan_encoder(matrix, instance),
                        timeline=matrix.timeline,
                        backend="pyav" if matrix.pixels == "stored" else displayed("pyav"),
                    )
                    # Keep one selection per configuration: models with the same k share it, and query forms without an
                    # encoder too.
                    names = (benchmark.name, *(item.name for item in spec.encoders))
                    specs.setdefault((*names, identity_hash(spec.configuration)), spec)
    return list(specs.values())


def _variants(
    matrix: MatrixConfig, sampler: SamplerConfig, model: ModelConfig | None
) -> Iterator[tuple[FrameSampler, int, int]]:
    """Yield (sampler, k, seed) for each combination of options, frame counts and seeds.

    A sampler that draws nothing at random gets only the first seed.
    """
    for instance in _instances(sampler):
        # A deterministic sampler chooses the same frames under every seed: run it once.
        yield from itertools.product(
            [instance], _frame_counts(matrix, model), matrix.seeds[: None if instance.draws else 1]
        )


def check_lists(matrix: MatrixConfig) -> None:
    """Check the lists of a matrix without data or weights, so that mistakes show before a run.

    Raises:
        UnknownName, InvalidInput: a sampler, an option or an encoder that does not exist, or a query that cannot be
            filled, or subtitles of a benchmark that declares none.
        SamplerError: a sampler's file that cannot be used.
    """
    for sampler in matrix.samplers:
        for instance in _instances(sampler):
            _encoders(matrix, instance, sampler.encoders)
            _scan_encoder(matrix, instance)
            check_llm(instance)
    for query in matrix.queries:
        check_query_form(query)
    for benchmark, model in itertools.product(matrix.benchmarks, matrix.models):
        facts = benchmark.make().facts.subtitles if model.subtitles in ("shown", "all") else None
        options = SubtitleOptions(mode=model.subtitles)
        subtitle_choice(facts, options, is_written_by_task=False, location=f"benchmark {benchmark.name}")
    if "/" in matrix.name or matrix.name in ("", ".", ".."):
        raise InvalidInput(f"name: {matrix.name!r} cannot be the name of the run's folder")


def cells(matrix: MatrixConfig) -> list[AnswerSpec]:
    """Return the cells of `matrix`: each selection with each model that takes its number of frames."""
    specs = selection_specs(matrix)  # once, since each caches the hashes of its weights and questions
    return [
        AnswerSpec(selection=spec, model=model, frame_policy=matrix.frame_policy, answer_parsing=matrix.answer_parsing)
        # Loop over models outside, so that each model is loaded once.
        for model in matrix.models
        for spec in specs
        if spec.k in _frame_counts(matrix, model)
    ]


def _frame_counts(matrix: MatrixConfig, model: ModelConfig | None) -> list[int]:
    """The numbers of frames to choose: the matrix's `k`, else the model's `frames`; [] if neither is set."""
    return list(matrix.k) or ([model.frames] if model else [])


def _encoders(matrix: MatrixConfig, sampler: FrameSampler, names: list[str]) -> list[EncoderConfig | None]:
    """The encoders `names`, or all of the matrix if `names` is empty; [None] if the sampler needs no encoder."""
    if not sampler.needs_encoder:
        return [None]
    encoder_by_name = {encoder.name: encoder for encoder in matrix.encoders}
    if not encoder_by_name:
        raise InvalidInput(f"matrix {matrix.name!r}: sampler {sampler.name!r} needs an encoder; add one to encoders")
    for name in names:
        if name not in encoder_by_name:
            raise unknown_name(f"encoder of matrix {matrix.name!r}:", name, encoder_by_name)
    # A sampler without named encoders runs with all of them.
    return [encoder_by_name[name] for name in names or encoder_by_name]


def _scan_encoder(matrix: MatrixConfig, sampler: FrameSampler) -> EncoderConfig | None:
    """The encoder of the option `scan_encoder`: one of the matrix, or made from the text; None if not set."""
    encoder_by_name = {encoder.name: encoder for encoder in matrix.encoders}
    text = getattr(sampler, "scan_encoder", "")
    if sampler.needs_scan and text in encoder_by_name:
        return encoder_by_name[text]
    return EncoderConfig(name=safe_name(text), encoder=text) if scan_encoder_text(sampler) else None


def all_encoders(matrix: MatrixConfig) -> list[EncoderConfig]:
    """Return the encoders of `matrix` and the scan encoders of its samplers, each once."""
    scanning = [_scan_encoder(matrix, instance) for sampler in matrix.samplers for instance in _instances(sampler)]
    return list({encoder.name: encoder for encoder in [*matrix.encoders, *scanning] if encoder}.values())


def _instances(config: SamplerConfig) -> Iterator[FrameSampler]:
    """Yield the sampler once for each combination of its options' values; a list in the config is several values."""
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


def narrow(matrix: MatrixConfig, names_by_list: dict[str, list[str]]) -> MatrixConfig:
    """Return `matrix` with lists cut to the entries in `names_by_list`, e.g. {"sampler": ["focus", "aks"]}.

    Keys are benchmark, model, encoder, sampler, k, seed and question. The ids of questions are checked only when the
    questions are read. Lists without a key stay whole. A sampler in a file may be given by
    its name, `peaks`, or as `peaks.py:Peaks`.

    Raises:
        UnknownName: a list or an entry that the matrix does not have; the message has the nearest name.
        InvalidInput: a cut that leaves nothing.
    """
    changes: dict[str, object] = {}
    for key, names in names_by_list.items():
        if key == "question":
            changes["only_questions"] = names
            continue
        if key not in _LISTS:
            raise unknown_name("list to narrow", key, [*_LISTS, "question"])
        attribute, name_of = _LISTS[key]
        entries = getattr(matrix, attribute)
        entry_names = [name_of(entry) for entry in entries]
        # Accept a file sampler by its path in the matrix or by its name in rows.
        names = [sampler_name(name) for name in names] if key == "sampler" else names
        for name in names:
            if name not in entry_names:
                raise unknown_name(f"{key} of matrix {matrix.name!r}:", name, entry_names)
        # Keep the matrix's order, which cells and tables follow.
        changes[attribute] = [entry for entry in entries if name_of(entry) in names]
        if not changes[attribute]:
            raise InvalidInput(f"--only {key}=... matches nothing in matrix {matrix.name!r}")
    return matrix.model_copy(update=changes)
