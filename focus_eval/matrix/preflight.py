"""Checks everything a run needs before its first second of work, and names all that is missing at once."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from focus_eval.benchmarks.question import Question
from focus_eval.core.errors import FocusEvalError, MissingWeights, unknown_name
from focus_eval.core.extras import install_command
from focus_eval.core.types import VideoInfo
from focus_eval.matrix.answering import load_arguments
from focus_eval.matrix.cells import AnswerSpec, SelectionSpec, all_encoders, cells, selection_specs
from focus_eval.matrix.config import BenchmarkConfig, EncoderConfig, MatrixConfig, ModelConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.machine import best_device, gpu_gigabytes, host_gigabytes
from focus_eval.matrix.plan import SelectionPlan, count_selections
from focus_eval.matrix.questions import (
    MissingDocuments,
    QuestionSet,
    data_home,
    find_documents,
    load_questions,
    read_questions,
    task_source,
)

if TYPE_CHECKING:
    from focus_eval.encoders.weights import Located


@dataclass(frozen=True)
class Missing:
    """One missing requirement, and how to fix it.

    Args:
        gigabytes: that fetching it will take.
    """

    what: str
    fix: str
    gigabytes: float = 0.0


# Bytes of a row as a line of JSON beside its texts and options: of every row, of one that an encoder made (its
# revision, seconds by stage), of a keyframe with its time, of a pull with its relevance and clip, of a scanned frame.
ROW_BYTES, ENCODER_BYTES, KEYFRAME_BYTES, PULL_BYTES, SCAN_BYTES = 750, 400, 20, 32, 7
ANSWER_BYTES, FED_BYTES = 900, 7
# Bytes of an entry of the store beside its embedding; an embedding takes a fifth more than its numbers.
ENTRY_BYTES, STORED_SHARE = 30, 1.2
# SQLite's log beside the store grows to about this before it is folded in.
LOG_BYTES = 20_000_000
# Numbers of an embedding where the checkpoint is not here to tell: the largest of the shipped encoders.
LARGEST_EMBEDDING = 1_152
# Pulls are counted on so many videos of a benchmark, evenly over their lengths.
MOST_VIDEOS = 32
# Where neither rates nor the documents say how long a video is.
_USUAL_VIDEO = VideoInfo(n_frames=30 * 900, fps=30.0)

Asked = list[tuple[int, Question, VideoInfo | FocusEvalError]]


@dataclass(frozen=True)
class DiskEstimate:
    """Most bytes that a run will have added to the disk at any moment.

    Args:
        rows: lines of JSON while it runs; the Parquet files that replace them are smaller.
        store: embeddings and relevance of frames.
    """

    rows: float = 0.0
    store: float = 0.0

    @property
    def gigabytes(self) -> float:
        """All of it, in 10^9 bytes."""
        return (self.rows + self.store) / 1e9


def disk_estimate(
    matrix: MatrixConfig, sets: dict[str, QuestionSet], folder: Path | None = None, *, store: Path | None = None
) -> DiskEstimate:
    """Return what a run of `matrix` will write.

    Pulls are counted as in a plan, on flat relevance, but of a few videos only.

    Args:
        sets: the questions by "matrix/benchmark", as far as they are here.
        folder, store: the run's folder and store; what they hold already is not counted again.
    """
    try:
        specs, all_cells = selection_specs(matrix), cells(matrix)
    except FocusEvalError:
        return DiskEstimate()  # reported where the plan is made
    run, parts, stored = RunFolder(folder) if folder else None, [0.0], 0.0
    for benchmark in matrix.benchmarks:
        questions = sets.get(f"{matrix.name}/{benchmark.name}")
        if questions is None or not questions.questions:
            continue
        mine = [spec for spec in specs if spec.benchmark.name == benchmark.name]
        sample = _sample(questions)
        counted, distinct = count_selections(mine, sample)
        scale = len(questions.questions) / sum(len(asked) for asked in sample)
        n_texts = _mean_text(questions)
        for spec, plan in zip(mine, counted, strict=True):
            parts.append(_left(run, spec, scale * _row_bytes(spec, plan, n_texts), len(questions.questions)))
        for cell in all_cells:
            if cell.selection.benchmark.name == benchmark.name:
                n_bytes = len(questions.questions) * (ANSWER_BYTES + FED_BYTES * cell.selection.k)
                parts.append(_left(run, cell, n_bytes, len(questions.questions)))
        if questions.config.videos:
            stored += scale * _stored_bytes(mine, counted, distinct)
    if stored:
        stored = max(0.0, stored - _size(store)) + LOG_BYTES
    # A part's lines go when its Parquet files are there, which take about a fifth: for a moment it is there twice.
    return DiskEstimate(rows=sum(parts) + max(parts) / 4, store=stored)


def _row_bytes(spec: SelectionSpec, plan: SelectionPlan, text_bytes: float) -> float:
    fixed = ROW_BYTES + len(json.dumps(spec.sampler.options)) + ENCODER_BYTES * len(spec.encoders)
    listed = KEYFRAME_BYTES * plan.keyframes + PULL_BYTES * plan.pulls + SCAN_BYTES * plan.scanned
    return plan.questions * (fixed + text_bytes) + listed


def _mean_text(questions: QuestionSet) -> float:
    """Return the mean bytes of question and options; a row has both."""
    texts = [[question.query, *question.options] for question in questions.questions]
    return sum(len(text.encode(errors="replace")) for several in texts for text in several) / len(texts)


def _stored_bytes(specs: list[SelectionSpec], plans: list[SelectionPlan], distinct: dict[str, int]) -> float:
    """Return what the counted questions add to the store: nothing where each pays alone, or where no encoder runs."""
    total, encoders = 0.0, dict[str, EncoderConfig]()
    for spec, plan in zip(specs, plans, strict=True):
        if spec.encoder is None or not spec.share_frames or (n_bytes := embedding_bytes(spec.encoder)) is None:
            continue
        encoders[spec.encoder.name] = spec.encoder
        # Relevance is kept by question. As if no two samplers pulled one frame: too much is the safe side.
        total += ENTRY_BYTES * plan.embedded_alone
        if spec.scan_encoder is not None:
            encoders[spec.scan_encoder.name] = spec.scan_encoder
            total += ENTRY_BYTES * plan.scanned
    for name, encoder in encoders.items():
        if n_bytes := embedding_bytes(encoder):
            total += distinct[name] * (STORED_SHARE * n_bytes + ENTRY_BYTES)
    return total


def embedding_bytes(encoder: EncoderConfig) -> int | None:
    """Return the bytes of a frame's embedding in the store: 0 where only relevance is stored, None where nothing is.

    A checkpoint tells how many numbers it has; without it they are `LARGEST_EMBEDDING`.
    """
    from focus_eval.encoders.registry import ENCODERS

    try:
        made = ENCODERS.load(encoder.encoder)
    except FocusEvalError:
        return None  # it cannot run, which is reported elsewhere
    # As `ScoresFrames` in the scorer protocol: it is looked up by frame, and never stored.
    if hasattr(made, "relevance_of"):
        return None
    if not getattr(made, "stores_embeddings", False):
        return 0
    return 4 * (getattr(made, "embedding_size", 0) or _checkpoint_size(made, encoder) or LARGEST_EMBEDDING)


def _checkpoint_size(made: Any, encoder: EncoderConfig) -> int:
    """Return the numbers of an embedding as the checkpoint's config states them; 0 where it is not here."""
    try:
        stated = json.loads(_located(encoder, made.model_type).config.read_text(encoding="utf-8"))
    except (FocusEvalError, AttributeError, OSError, ValueError):
        return 0
    if stated.get("model_type") == "qwen3_vl":  # the language model gives the embedding
        return int(stated["text_config"]["hidden_size"])
    # SigLIP has no projection: its embeddings are as wide as its vision tower.
    size = stated.get("projection_dim") or (stated.get("vision_config") or stated.get("model_cfg") or {})
    size = size if isinstance(size, int) else size.get("hidden_size") or size.get("embed_dim")
    return size if isinstance(size, int) else 0


def _sample(questions: QuestionSet) -> list[Asked]:
    """Return `MOST_VIDEOS` videos of all lengths, each with its questions and length; no video is opened."""
    infos: dict[str, VideoInfo] = {}
    for video, asked in questions.by_video.items():
        infos[video] = questions.known_info(asked[0]) or _stated(asked[0].duration_seconds)
    by_length = sorted(infos, key=lambda video: infos[video].n_frames)
    n = min(MOST_VIDEOS, len(by_length))
    # The middle of each of n equal parts of the videos in the order of their lengths.
    chosen = [by_length[math.floor((at + 0.5) * len(by_length) / n)] for at in range(n)]
    return [[(0, question, infos[video]) for question in questions.by_video[video]] for video in chosen]


def _stated(seconds: float | None) -> VideoInfo:
    return _USUAL_VIDEO if seconds is None else VideoInfo(n_frames=max(1, int(30 * seconds)), fps=30.0)


def _left(run: RunFolder | None, part: SelectionSpec | AnswerSpec, n_bytes: float, n_questions: int) -> float:
    """Return how many of `n_bytes` of a part's rows are still to be written."""
    if run is None:
        return n_bytes
    folder = run.part(part)
    lines = sum(map(_size, folder.glob("rows-*.jsonl")))
    return max(0.0, n_bytes * (1 - min(1.0, _finished_rows(folder) / n_questions)) - lines)


def _finished_rows(folder: Path) -> int:
    file = folder / "rows.parquet"
    if not file.exists():
        return 0
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (OSError, pyarrow.ArrowException):  # damaged: the run says so
        return 0


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except OSError:  # not there, or gone between two looks
        return 0


def questions_or_problems(
    config: BenchmarkConfig, limit: int | None, *, available_only: bool = False
) -> tuple[QuestionSet | None, list[Missing]]:
    """Return the questions of a benchmark, or what keeps them from being read; the rates are read too."""
    try:
        found = load_questions(config, limit=limit, available_only=available_only)
        # Read here, so that a damaged file of rates is found before the run and not in the middle of it.
        _ = found.rates
    except MissingDocuments as error:
        return None, [_with_token_hint(config, error)]
    except FocusEvalError as error:
        return None, [Missing(f"questions of {config.name}", str(error))]
    return found, []


def documents_problems(questions: QuestionSet) -> list[Missing]:
    """Return why the task cannot ask questions that come from a separate annotation file."""
    config = questions.config
    try:
        find_documents(config)
        # Without `annotations`, so that what is read is what the task itself would ask.
        documents, where = read_questions(config.model_copy(update={"annotations": ""}))
    except MissingDocuments as error:
        return [_with_token_hint(config, error)]
    except FocusEvalError as error:
        return [Missing(f"documents of task {config.task} of {config.name}", str(error))]
    # By id, not by number: another version may hold as many questions, but others.
    known = {question.id for question in documents}
    absent = [question.id for question in questions.questions if question.id not in known]
    if not absent:
        return []
    what = f"{len(absent)} of {len(questions.questions)} questions of {config.name} in the task's documents ({where})"
    return [Missing(what, f"the first is {absent[0]!r}: another split or version? Leave `annotations` out")]


def place_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield a problem if the task looks for videos in another folder than the samplers."""
    # Only where both are stated can they disagree.
    if not (config.videos and config.task):
        return
    try:
        folder = task_source(config.task).video_folder
    except FocusEvalError:
        return  # reported with the questions
    # Samplers read from `videos`, the task from HF_HOME: two copies could differ without anyone noticing.
    looked = data_home(config) / folder
    stated = Path(config.videos).expanduser()
    videos = stated.resolve()
    # Links are followed: one folder under two names is one place.
    is_one_place = looked.resolve() in (videos, *videos.parents) or (looked / stated.name).resolve() == videos
    if folder and not is_one_place:
        yield Missing(
            f"one place for the videos of {config.name}: its task looks below {looked}, the config says {videos}",
            f"set data_home so that {folder} lies below it, or link {looked} to the videos",
        )


def folder_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield a missing folder of videos, if the questions do not name the videos they need."""
    if config.videos and not Path(config.videos).expanduser().is_dir():
        size = f" (about {config.disk_gigabytes:g} GB, {_to_fetch(config):g} GB with archives)"
        what = f"all videos of {config.name}{size if config.disk_gigabytes else ''}: no folder {config.videos}"
        yield Missing(what, _fetch_videos(config), gigabytes=_to_fetch(config))


def video_problems(questions: QuestionSet, *, answered: bool) -> list[Missing]:
    """Return how many videos are missing, of how many, and how large the data set is."""
    config = questions.config
    if not config.videos:
        if answered:
            return [Missing(f"the videos of {config.name}", "set videos in its config: models are shown frames")]
        return []
    if not questions.questions:
        return [Missing(f"every video of {config.name}", _fetch_videos(config), gigabytes=_to_fetch(config))]
    files = {video: questions.video_path(video) for video in questions.by_video}
    absent = [video for video, file in files.items() if not file.is_file()]
    # A download that was broken off may leave such files, and they would fail one question at a time.
    empty = [video for video, file in files.items() if file.is_file() and file.stat().st_size == 0]
    missing = []
    if absent:
        present = sum(file.stat().st_size for file in files.values() if file.is_file()) / 1e9
        size = f"; {present:.3g} GB of about {config.disk_gigabytes:g} GB are here" if config.disk_gigabytes else ""
        what = f"{len(absent)} of {len(files)} videos of {config.name} ({_named(absent)}){size}"
        # By the number of videos; their sizes are not known before they are here.
        share = _to_fetch(config) * len(absent) / len(files)
        fix = _fetch_videos(config)
        fix += "; or ask only the questions whose video is here: --available-only" if len(absent) < len(files) else ""
        missing.append(Missing(what, fix, gigabytes=share))
    if empty:
        what = f"{len(empty)} of {len(files)} videos of {config.name} are empty files ({_named(empty)})"
        missing.append(Missing(what, f"delete them and fetch them again: {_fetch_videos(config)}"))
    return missing


def _available_note(questions: QuestionSet) -> list[str]:
    asked, of = len(questions.questions), len(questions.all_ids)
    said = "every figure of this run is partial" if asked < of else "all of them"
    return [f"{questions.config.name}: {asked:,} of {of:,} questions are asked, those whose video is here: {said}"]


def _to_fetch(config: BenchmarkConfig) -> float:
    return config.disk_copies * config.disk_gigabytes


def _fetch_videos(config: BenchmarkConfig) -> str:
    place = f"unpack the videos into {config.videos}"
    return f"hf download {config.source} --repo-type dataset, then {place}" if "/" in config.source else place


def _with_token_hint(config: BenchmarkConfig, error: MissingDocuments) -> Missing:
    if not config.gated:
        return Missing(error.what, error.fix)
    # Only whether there is one: the token itself is shown nowhere.
    from huggingface_hub import get_token

    has_token = "a token is set" if get_token() else "no token is set on this machine"
    return Missing(f"{error.what}; the data set is gated, {has_token}", error.fix)


def _named(videos: list[str]) -> str:
    return ", ".join(videos[:3]) + (", .." if len(videos) > 3 else "")


_TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("spiece.model",))
# A request for the list of models is free; a service that does not answer within this is not reachable.
_API_SECONDS = 10


def argument_problems(
    model: ModelConfig, frames: int, *, without_weights: bool, without_key: bool
) -> Iterator[Missing]:
    """Yield what the model's own constructor would refuse before it loads a weight: its real checks are run.

    Args:
        frames: most frames per question.
        without_weights, without_key: these are missing, and named already.
    """
    from lmms_eval.models import get_model, list_available_models

    known = list_available_models(include_aliases=True)
    if model.model not in known:
        # Only ours are named: lmms-eval has two hundred.
        ours = [name for name in known if name.startswith("focus_")]
        yield Missing(f"model {model.name}", str(unknown_name("lmms-eval model", model.model, ours)))
        return
    # A missing key is reported already, and must not hide what else is wrong.
    key, stand_in = model.api_key, without_key and bool(model.api_key)
    if stand_in:
        os.environ[key] = "any"
    try:
        arguments = load_arguments(model, frames=frames, device=best_device())
        made = get_model(model.model)
        # A stock wrapper has no such check: it would have to load its weights.
        if hasattr(made, "check_arguments"):
            made.check_arguments(arguments)
    except MissingWeights as error:
        if not without_weights:
            yield Missing(f"weights of model {model.name}", str(error))
    except FocusEvalError as error:
        if not without_weights or "config.json" not in str(error):
            yield Missing(f"arguments of model {model.name} ({model.model})", str(error))
    except (ImportError, ValueError, TypeError, OSError) as error:
        yield Missing(f"model {model.name} ({model.model})", f"lmms-eval cannot make it: {error}")
    finally:
        if stand_in:
            # Nothing after this may take the stand-in for a key.
            del os.environ[key]


def weights_problems(model: ModelConfig) -> Iterator[Missing]:
    """Yield what is missing of a model's checkpoint: all of it, shards, the right architecture, its tokenizer."""
    from focus_eval.encoders.weights import is_path, weights_folder
    from focus_eval.lmms.weights import weights_problems as problems_of

    pretrained, revision = str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main")
    if not pretrained:
        return
    fetch = f"hf download {pretrained}" + (f" --revision {revision}" if revision != "main" else "")
    folder = weights_folder(pretrained, revision)
    size = f", {model.disk_gigabytes:g} GB" if model.disk_gigabytes else ""
    what = f"weights of model {model.name} ({pretrained}{size})"
    if folder is None and is_path(pretrained):
        yield Missing(f"weights of model {model.name}: no folder {pretrained}", "correct the path")
        return
    if folder is None:
        yield Missing(f"{what} are not on this machine", fetch, gigabytes=model.disk_gigabytes)
        return
    is_local = Path(pretrained).expanduser().is_dir()
    for problem in problems_of(folder, model.model):
        fix = f"put the whole checkpoint into {folder}" if is_local else f"{fetch} (fetches only what is not there)"
        yield Missing(f"{what}: {problem}", fix)


def key_problems(model: ModelConfig, notes: list[str]) -> Iterator[Missing]:
    """Yield what keeps an API from answering: no key, a refused key, an unknown model, an unreachable service."""
    if not model.api_key:
        return
    key = os.environ.get(model.api_key)
    if not key:
        yield Missing(f"the API key of model {model.name}", f"export {model.api_key}=...")
        return
    try:
        import openai
    except ImportError:
        return  # reported as a missing package
    where = str(model.args.get("base_url") or os.environ.get("OPENAI_API_BASE") or "") or None
    # No retries: a service that is down should be reported now, not after a minute.
    client = openai.OpenAI(api_key=key, base_url=where, timeout=_API_SECONDS, max_retries=0)
    name = str(model.args.get("model_version") or model.args.get("model") or "")
    service = str(client.base_url).rstrip("/")
    try:
        served = [item.id for item in client.models.list()]
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        yield Missing(
            f"an API key of model {model.name} that {service} accepts (it says {error.status_code})",
            f"export {model.api_key}=... with a key of that service",
        )
    except openai.APIConnectionError:
        yield Missing(f"the API of model {model.name}: {service} cannot be reached", "check the network and base_url")
    except openai.APIStatusError as error:
        notes.append(f"{model.name}: {service} lists no models ({error.status_code}): its key could not be checked")
    else:
        # An empty list says nothing of what is served.
        if served and name and name not in served:
            known = ", ".join(sorted(served)[:5])
            yield Missing(f"model {name} at {service}", f"set model_version to one it serves: {known}")


def llm_problems(sampler: Any) -> Iterator[Missing]:
    """Yield what keeps the model that a sampler asks from answering: no key, a service that is down."""
    from focus_eval.llms.registry import ready_llm

    try:
        ready_llm(sampler)
    except FocusEvalError as error:
        yield Missing(f"the model that {sampler.name} asks", str(error))


def encoder_problems(encoder: EncoderConfig) -> Iterator[Missing]:
    """Yield what is missing of an encoder: its packages, weights, tokenizer; options that it does not have."""
    from focus_eval.encoders.registry import ENCODERS, read_encoder

    try:
        read_encoder(encoder.encoder, encoder.options)
    except FocusEvalError as error:
        yield Missing(f"encoder {encoder.name}", str(error))
        return
    # Recorded relevance is read from a file, which is checked like weights.
    path = encoder.options.get("path")
    if isinstance(path, str) and not Path(path).expanduser().exists():
        yield Missing(f"the file {path} of encoder {encoder.name}", "record it, or correct the option path")
    # What a checkpoint's config must state: an encoder without it has no checkpoint from the hub.
    if model_type := ENCODERS.fact(encoder.encoder, "model_type"):
        yield from _checkpoint_problems(encoder, model_type)


def _located(encoder: EncoderConfig, model_type: str | tuple[str, ...]) -> Located:
    """Return the checkpoint of `encoder`. Raises as `locate`."""
    from focus_eval.encoders.registry import ENCODERS
    from focus_eval.encoders.weights import locate

    checkpoint, revision = encoder.options.get("checkpoint"), encoder.options.get("revision")
    name = str(checkpoint or ENCODERS.fact(encoder.encoder, "default_checkpoint", encoder.name))
    return locate(name, revision=str(revision) if revision else None, model_type=model_type)


def _checkpoint_problems(encoder: EncoderConfig, model_type: str | tuple[str, ...]) -> Iterator[Missing]:
    try:
        found = _located(encoder, model_type)
    except FocusEvalError as error:
        # Only what must be fetched takes room on the disk.
        size = encoder.disk_gigabytes if isinstance(error, MissingWeights) else 0.0
        said = f" ({encoder.disk_gigabytes:g} GB)" if encoder.disk_gigabytes else ""
        yield Missing(f"weights of encoder {encoder.name}{said}", str(error), gigabytes=size)
        return
    # open_clip brings its own tokenizer, and says itself where a checkpoint must hold another.
    if found.layout.has_tokenizer and not any(
        all((found.folder / name).is_file() for name in names) for names in _TOKENIZERS
    ):
        yield Missing(f"the tokenizer of encoder {encoder.name} in {found.folder}", "fetch the checkpoint again")


def memory_problems(model: ModelConfig, notes: list[str]) -> Iterator[Missing]:
    """Yield too few GPUs, or too little memory for the weights; a model that will run on the CPU is a note."""
    from focus_eval.encoders.weights import weights_folder
    from focus_eval.lmms.weights import weights_gigabytes

    pretrained: Any = model.args.get("pretrained")
    folder = weights_folder(str(pretrained), str(model.args.get("revision") or "main")) if pretrained else None
    if not model.needs_gpu or folder is None:
        return
    needed, cards, wanted = weights_gigabytes(folder), gpu_gigabytes(), int(model.gpus or 1)
    if not cards:
        notes.append(f"{model.name} will run on the CPU: torch finds no GPU")
        # Weights only: frames and activations come on top, so a model that fails here cannot run.
        memory = host_gigabytes()
        if memory is not None and needed > memory:
            yield Missing(
                f"memory for model {model.name}: {needed:.0f} GB of weights, {memory:.0f} GB here", "use a GPU"
            )
    elif len(cards) < wanted:
        yield Missing(f"GPUs for model {model.name}: it takes {wanted}, {len(cards)} are here", "use a larger node")
    elif needed > sum(cards[:wanted]):
        yield Missing(
            f"memory for model {model.name}: {needed:.0f} GB of weights, {sum(cards[:wanted]):.0f} GB on {wanted} GPUs",
            "set gpus in the model's config, and device_map: auto",
        )


EntryT = TypeVar("EntryT")


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Args:
        missing: all without which a run would stop or record errors.
        notes: what is worth knowing and stops nothing.
        sets: the questions by "matrix/benchmark", as far as they are on this machine.
    """

    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    sets: dict[str, QuestionSet]


def check_all(
    matrices: Sequence[tuple[MatrixConfig, Path]], *, engine: str = "local", store: Path | None = None
) -> Preflight:
    """Check the matrices that are to be run, each with its folder: packages, arguments, weights, questions, videos,
    keys, devices and disk. Fetches nothing, loads no weights, writes nothing.

    Args:
        store: file of embeddings, where it does not lie beside the runs.
    """
    notes: list[str] = []
    missing = [*_packages([matrix for matrix, _ in matrices], engine)]
    sets: dict[str, QuestionSet] = {}
    missing += _of_folder(store.parent, "--store") if store else []
    for matrix, folder in matrices:
        missing += _of_folder(folder, "--out")
        for benchmark in matrix.benchmarks:
            missing += place_problems(benchmark)
            found, problems = questions_or_problems(benchmark, matrix.limit, available_only=matrix.available_only)
            missing += problems
            if found is None:
                # Without questions it is not known which videos are needed, but the folder can be checked.
                missing += folder_problems(benchmark)
                continue
            if found.questions:
                sets[f"{matrix.name}/{benchmark.name}"] = found
            missing += video_problems(found, answered=bool(matrix.models))
            notes += _available_note(found) if matrix.available_only else []
            # Only models ask the task's documents; samplers do with the annotations.
            missing += documents_problems(found) if matrix.models and benchmark.annotations else []
    specs = [spec for matrix, _ in matrices for spec in selection_specs(matrix)]
    for encoder in _distinct(item for matrix, _ in matrices for item in all_encoders(matrix)):
        missing += encoder_problems(encoder)
    for sampler in {spec.sampler.options.get("llm"): spec.sampler for spec in specs if spec.sampler.needs_llm}.values():
        missing += llm_problems(sampler)
    for model in _distinct(item for matrix, _ in matrices for item in matrix.models):
        missing += _of_model(model, [matrix for matrix, _ in matrices if model in matrix.models], engine, notes)
    missing += _disk(matrices, sets, missing, store)
    return Preflight(tuple(_distinct(missing)), tuple(_distinct(notes)), sets)


def _of_model(model: ModelConfig, matrices: list[MatrixConfig], engine: str, notes: list[str]) -> Iterator[Missing]:
    frames = max(max(matrix.k, default=model.frames) for matrix in matrices)
    # Checked first, so that the constructor's own complaint about them is no second line.
    weights = list(weights_problems(model))
    yield from weights
    keys = list(key_problems(model, notes))
    yield from keys
    if importlib.util.find_spec("lmms_eval") is not None:
        yield from argument_problems(model, frames, without_weights=bool(weights), without_key=bool(keys))
    # A cluster's GPUs are not those of this machine.
    if engine == "local" and not weights:
        yield from memory_problems(model, notes)


def _packages(matrices: list[MatrixConfig], engine: str) -> Iterator[Missing]:
    needed = [("lmms_eval", "lmms", any(matrix.models for matrix in matrices))]
    needed += [("torch", "encoders", any(matrix.encoders for matrix in matrices)), ("ray", "ray", engine == "ray")]
    for package, extra, is_needed in needed:
        if is_needed and importlib.util.find_spec(package) is None:
            yield Missing(f"the package {package.replace('_', '-')}", install_command(extra))


def _of_folder(folder: Path, option: str) -> Iterator[Missing]:
    there = _existing(folder)
    if not os.access(there, os.W_OK):
        yield Missing(f"{there}: cannot be written", f"name another folder with {option}, or change its permissions")


def _disk(
    matrices: Sequence[tuple[MatrixConfig, Path]],
    sets: dict[str, QuestionSet],
    missing: Sequence[Missing],
    store: Path | None,
) -> Iterator[Missing]:
    """Compare the bytes to write and to fetch with the free space."""
    needed: list[tuple[Path, float]] = []
    for matrix, folder in matrices:
        where = store or folder.parent / "store.sqlite"
        estimate = disk_estimate(matrix, sets, folder, store=where)
        needed += [(folder, estimate.rows / 1e9), (where, estimate.store / 1e9)]
    to_fetch = sum(item.gigabytes for item in _distinct(missing))
    if to_fetch:
        needed.append((Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser(), to_fetch))
    # Summed by disk: several runs, the store, and what is fetched, may share one.
    disks: dict[int, tuple[Path, float]] = {}
    for path, gigabytes in needed:
        there = _existing(path)
        first, so_far = disks.get(there.stat().st_dev, (there, 0.0))
        disks[there.stat().st_dev] = (first, so_far + gigabytes)
    for there, gigabytes in disks.values():
        free = shutil.disk_usage(there).free / 1e9
        if gigabytes > free:
            yield Missing(
                f"disk: {gigabytes:.3g} GB needed, {free:.3g} GB free on {there}",
                "free some, or name another disk: --out and --store for what is written, HF_HOME for what is fetched",
            )


def _existing(folder: Path) -> Path:
    # A run's folder need not exist yet: the first folder above it that does tells disk and permissions.
    return next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())


def _distinct(entries: Iterable[EntryT]) -> list[EntryT]:
    kept: list[EntryT] = []
    for entry in entries:
        # A list, since configurations hold lists and dicts and cannot be put into a set.
        if entry not in kept:
            kept.append(entry)
    return kept
