"""Checks before a run that packages, weights, data, keys, devices and disk are there; lists all that is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from focus_eval.bench.matrix.cells import SelectionSpec, all_encoders, selection_specs
from focus_eval.bench.matrix.config import BenchmarkConfig, EncoderConfig, MatrixConfig, ModelConfig
from focus_eval.bench.matrix.machine import best_device, gpu_gigabytes, host_gigabytes
from focus_eval.bench.matrix.questions import (
    MissingDocuments,
    QuestionSet,
    data_home,
    find_documents,
    load_questions,
    read_questions,
    task_source,
)
from focus_eval.core.errors import FocusEvalError, MissingWeights, unknown_name
from focus_eval.core.extras import install_command
from focus_eval.core.resources import resource_path
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.base import FrameSampler


@dataclass(frozen=True)
class Missing:
    """One missing requirement, and how to fix it.

    Args:
        gigabytes: size of the download that fixes it; 0 for none.
    """

    problem: str
    fix: str
    gigabytes: float = 0.0


# Disk space that rows and store of a few questions take.
TRY_GIGABYTES = 1.0


def questions_or_problems(
    config: BenchmarkConfig, limit: int | None, *, available_only: bool = False, only: Sequence[str] = ()
) -> tuple[QuestionSet | None, list[Missing]]:
    """Return the questions of a benchmark, or the problems of reading them or their rates."""
    try:
        questions = load_questions(config, limit=limit, available_only=available_only, only=only)
        # Read the rates now, so that a damaged file is found before the run.
        _ = questions.rates
    except MissingDocuments as error:
        return None, [_with_token_hint(config, error)]
    except FocusEvalError as error:
        is_made_here = config.source.startswith("focus-eval ") and not Path(config.annotations).exists()
        return None, [Missing(f"questions of {config.name}", _fetch_videos(config) if is_made_here else str(error))]
    return questions, []


def documents_problems(questions: QuestionSet) -> list[Missing]:
    """Return a problem if questions of an annotation file are not among the task's own documents; [] if none."""
    config = questions.config
    try:
        find_documents(config)
        # Ignore `annotations`: read the documents that the task asks.
        documents, location = read_questions(config.model_copy(update={"annotations": ""}))
    except MissingDocuments as error:
        return [_with_token_hint(config, error)]
    except FocusEvalError as error:
        of_task = f"task {config.task} of " if config.task else ""
        return [Missing(f"documents of {of_task}{config.name}", str(error))]
    # Compare ids, not counts, since another version of the data set may have as many questions.
    known_ids = {question.id for question in documents}
    absent = [question.id for question in questions.questions if question.id not in known_ids]
    if not absent:
        return []
    problem = (
        f"{len(absent)} of {len(questions.questions)} questions of {config.name} in the task's documents ({location})"
    )
    return [Missing(problem, f"the first is {absent[0]!r}: another split or version? Leave `annotations` out")]


def place_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield a problem if task and samplers look for videos in different folders."""
    # Folders can disagree only if both are stated.
    if not (config.videos and config.task):
        return
    try:
        folder = task_source(config.task, config.include_path).video_folder
    except FocusEvalError:
        return  # the check of questions reports this
    # Samplers read `videos` and the task reads HF_HOME, so two copies of a video could differ unnoticed.
    task_folder = data_home(config) / folder
    config_folder = Path(config.videos).expanduser()
    videos = config_folder.resolve()
    # Follow links: one folder may have two names.
    is_one_place = (
        task_folder.resolve() in (videos, *videos.parents) or (task_folder / config_folder.name).resolve() == videos
    )
    if folder and not is_one_place:
        yield Missing(
            f"one place for the videos of {config.name}: its task looks below {task_folder}, the config says {videos}",
            f"set data_home so that {folder} lies below it, or link {task_folder} to the videos",
        )


def folder_problems(config: BenchmarkConfig) -> Iterator[Missing]:
    """Yield a problem if the config's folder of videos does not exist; for a benchmark with unreadable questions."""
    if config.videos and not Path(config.videos).expanduser().is_dir():
        size = f" (about {config.disk_gigabytes:g} GB, {_to_fetch(config):g} GB with archives)"
        problem = f"all videos of {config.name}{size if config.disk_gigabytes else ''}: no folder {config.videos}"
        yield Missing(problem, _fetch_videos(config), gigabytes=_to_fetch(config))


def video_problems(questions: QuestionSet, *, answered: bool) -> list[Missing]:
    """Return problems of the videos of `questions`: no folder configured, absent files, empty files.

    Args:
        answered: True if a model answers, which needs frames.
    """
    config = questions.config
    if not config.videos:
        if answered:
            return [Missing(f"the videos of {config.name}", "set videos in its config: models are shown frames")]
        return []
    if not questions.questions:
        return [Missing(f"every video of {config.name}", _fetch_videos(config), gigabytes=_to_fetch(config))]
    files = {video: questions.video_path(video) for video in questions.by_video}
    absent = [video for video, file in files.items() if not file.is_file()]
    # Interrupted downloads leave empty files, which would fail one question at a time.
    empty = [video for video, file in files.items() if file.is_file() and file.stat().st_size == 0]
    missing = []
    if absent:
        present = sum(file.stat().st_size for file in files.values() if file.is_file()) / 1e9
        size = f"; {present:.3g} GB of about {config.disk_gigabytes:g} GB are here" if config.disk_gigabytes else ""
        problem = f"{len(absent)} of {len(files)} videos of {config.name} ({_first_names(absent)}){size}"
        # Estimate the size by the number of videos, since sizes are unknown before the download.
        share = _to_fetch(config) * len(absent) / len(files)
        fix = _fetch_videos(config)
        fix += "; or ask only the questions whose video is here: --available-only" if len(absent) < len(files) else ""
        missing.append(Missing(problem, fix, gigabytes=share))
    if empty:
        problem = f"{len(empty)} of {len(files)} videos of {config.name} are empty files ({_first_names(empty)})"
        missing.append(Missing(problem, f"delete them, then {_fetch_videos(config)}"))
    return missing


def _verification_note(questions: QuestionSet) -> list[str]:
    """A line that counts the verified videos among those that are here; [] if none is."""
    from focus_eval.keyframes.video.manifest import count_verified

    config = questions.config
    files = [path for video in questions.by_video if config.videos and (path := questions.video_path(video)).is_file()]
    return [f"{config.name}: {count_verified(files)}"] if files else []


def _available_note(questions: QuestionSet, limit: int | None) -> list[str]:
    """A line with the number of questions whose video is here, among all, or with the `limit` that leaves some out."""
    n_requested, n_questions = len(questions.questions), len(questions.all_ids)
    which = "the first whose" if n_requested == limit else "those whose"
    remark = "every figure of this run is partial" if n_requested < n_questions else "all of them"
    return [
        f"{questions.config.name}: {n_requested:,} of {n_questions:,} questions are asked, {which} video is here: "
        f"{remark}"
    ]


def _empty_field_notes(questions: QuestionSet) -> list[str]:
    """Return a line for each declared field of which no asked question has a value, and one for hidden answers.

    Without this note, a misspelt field would look like a field that these documents do not have.
    """
    asked, declared, grouped = questions.questions, questions.benchmark.fields, questions.benchmark.facts.group_score
    has_value = {
        "answer": (declared.answer, [question.answer is not None for question in asked]),
        "options": (declared.options, [bool(question.options) for question in asked]),
        "category": (declared.category, [bool(question.category) for question in asked]),
        "evidence": (
            declared.evidence,
            [
                bool(
                    each.evidence_seconds or each.evidence_intervals or each.n_evidence_dropped or each.evidence_unread
                )
                for each in asked
            ],
        ),
        "group_score": (
            grouped and f"{grouped.type}, {grouped.structure}",
            [bool(question.group) for question in asked],
        ),
    }
    name = questions.config.name
    notes = [
        f"{name}: none of the {len(asked):,} questions to be asked has a value in {field!r} ({role}): misspelt, or "
        "missing in this copy?"
        for role, (field, found) in has_value.items()
        if field and asked and not any(found)
    ]
    n_hidden = len(asked) - sum(has_value["answer"][1])
    if 0 < n_hidden < len(asked):
        notes.append(f"{name}: {n_hidden:,} of {len(asked):,} questions state no answer and will have no score")
    return notes


def _to_fetch(config: BenchmarkConfig) -> float:
    """The gigabytes on disk that fetching a benchmark's videos takes, with archives."""
    return config.disk_copies * config.disk_gigabytes


def _fetch_videos(config: BenchmarkConfig) -> str:
    """An instruction, as text, for fetching the videos: through lmms-eval if it has the config's task."""
    if config.source.startswith("focus-eval "):
        return f"`{config.source}` makes them"
    if not config.task or config.include_path:
        if "/" not in config.source:
            return f"put the videos into {config.videos}"
        unpack = f"join the parts of an archive (cat NAME.tar.part.* > NAME.tar) and unpack it into {config.videos}"
        return f"`hf download {config.source} --repo-type dataset`, {unpack}"
    # Prefer lmms-eval's own task, which needs no include_path.
    task = next((name for name in (*config.tasks, config.task) if not name.startswith("focus_")), config.task)
    include = f", include_path='{resource_path('tasks')}'" if task.startswith("focus_") else ""
    command = (
        f'python -c "from lmms_eval.tasks import TaskManager, get_task_dict; '
        f"get_task_dict(['{task}'], TaskManager('ERROR', model_name='default'{include}), 'simple')\""
    )
    if not Path(config.videos).expanduser().exists():
        return f"let lmms-eval fetch and unpack them: `{command}`"
    return f"put them into {config.videos}, or remove that folder and let lmms-eval fetch and unpack all: `{command}`"


def _with_token_hint(config: BenchmarkConfig, error: MissingDocuments) -> Missing:
    """The missing documents as a requirement; for a gated data set it says whether a token is set."""
    if not config.gated:
        return Missing(error.problem, error.fix)
    # Report whether there is a token, never the token.
    from huggingface_hub import get_token

    has_token = "a token is set" if get_token() else "no token is set on this machine"
    return Missing(f"{error.problem}; the data set is gated, {has_token}", error.fix)


def _first_names(videos: list[str]) -> str:
    """The first three names, joined by commas, with ".." for more."""
    return ", ".join(videos[:3]) + (", .." if len(videos) > 3 else "")


_TOKENIZERS = (
    ("tokenizer.json",),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("tokenizer.model",),
)
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
# Checkpoint types without a processor: the original LLaVA-Video takes the image rules of the vision tower that it
# names.
_WITHOUT_PROCESSOR = ("llava_qwen",)
_SINGLE = "model.safetensors"
# Timeout of a request for the list of models, which is free: a service that does not answer in time is unreachable.
_API_SECONDS = 10


def name_problems(model: ModelConfig, *, loads_wrappers: bool = True) -> Iterator[Missing]:
    """Yield a model that neither this package nor lmms-eval knows.

    Args:
        loads_wrappers: False leaves out names that only lmms-eval could know.
    """
    from focus_eval.bench.lmms.manifests import known_models

    our_names = known_models()
    if model.model in our_names:
        return
    if not model.model.startswith("focus_"):
        if not loads_wrappers or importlib.util.find_spec("lmms_eval") is None:
            return  # the check of packages reports the missing package
        from lmms_eval.models import list_available_models

        if model.model in list_available_models(include_aliases=True):
            return
    # Suggest only names of ours, since lmms-eval has about two hundred.
    fix = unknown_name("lmms-eval model", model.model, our_names)
    yield Missing(f"model {model.name}", f"{fix} focus_huggingface runs other checkpoints of transformers")


def argument_problems(model: ModelConfig, frames: int) -> Iterator[Missing]:
    """Yield arguments that the model's constructor refuses; runs its own checks and loads no weights.

    Args:
        frames: largest number of frames per question.
    """
    from lmms_eval.models import get_model

    from focus_eval.bench.matrix.answering import load_arguments

    try:
        arguments = load_arguments(model, device=best_device())
        wrapper = get_model(model.model)
        # Only our wrappers have this check.
        if hasattr(wrapper, "check_arguments"):
            wrapper.check_arguments(arguments, frames=frames)
            wrapper.subtitle_options(model.subtitles, model.subtitle_layout)
    except MissingWeights as error:
        yield Missing(f"weights of model {model.name}", str(error))
    except FocusEvalError as error:
        yield Missing(f"arguments of model {model.name} ({model.model})", str(error))
    except (ImportError, ValueError, TypeError, OSError) as error:
        yield Missing(f"model {model.name} ({model.model})", f"lmms-eval cannot make it: {error}")


def weights_problems(model: ModelConfig) -> Iterator[Missing]:
    """Yield problems of a model's checkpoint: absent, incomplete, of another architecture, without tokenizer."""
    from focus_eval.keyframes.encoders.weights import is_path, weights_folder

    pretrained, revision = str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main")
    if not pretrained:
        return
    fetch = f"hf download {pretrained}" + (f" --revision {revision}" if revision != "main" else "")
    folder = weights_folder(pretrained, revision)
    size = f", {model.disk_gigabytes:g} GB" if model.disk_gigabytes else ""
    problem_start = f"weights of model {model.name} ({pretrained}{size})"
    if folder is None and is_path(pretrained):
        yield Missing(f"weights of model {model.name}: no folder {pretrained}", "correct the path")
        return
    if folder is None:
        yield Missing(f"{problem_start} are not on this machine", fetch, gigabytes=model.disk_gigabytes)
        return
    is_local = Path(pretrained).expanduser().is_dir()
    for problem in checkpoint_problems(folder, model.model):
        fix = f"put the whole checkpoint into {folder}" if is_local else f"{fetch} (fetches only what is not there)"
        yield Missing(f"{problem_start}: {problem}", fix)


def checkpoint_problems(folder: Path, model: str) -> list[str]:
    """Return the problems of a checkpoint's folder for the lmms-eval model `model`, one line each.

    The check covers the architecture, every shard that the index names, tokenizer and processor. In the hub's cache it
    also covers the content of each file, elsewhere only the headers of the shards. A good folder gives [].
    """
    from focus_eval.bench.lmms.manifests import CHAT_SUFFIX, MODELS
    from focus_eval.keyframes.encoders.weights import damage_lines

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        model_type = str(config["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return ["no readable config.json"]
    model_name = next((name for name in (model, f"{model}{CHAT_SUFFIX}") if name in MODELS), None)
    # Models without declared types accept any architecture.
    expected = (MODELS.fact(model_name, "checkpoint_types", ()) if model_name else ()) or (model_type,)
    problems = []
    if model_type not in expected:
        problems.append(f"holds a {model_type!r} model, {model} needs {' or '.join(map(repr, expected))}")
    problems += _shard_problems(folder)
    if not _has_tokenizer(folder):
        problems.append("no tokenizer (tokenizer.json, or vocab.json and merges.txt)")
    if model_type not in _WITHOUT_PROCESSOR and not any((folder / name).is_file() for name in _PROCESSORS):
        problems.append("no preprocessor_config.json")
    return problems + damage_lines(folder)


def weights_gigabytes(folder: Path) -> float:
    """Return the size of the safetensors files in `folder`, in 10^9 bytes."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors") if file.is_file()) / 1e9


def _shard_problems(folder: Path) -> list[str]:
    """A line for each missing or unreadable shard of a checkpoint's folder; [] if all are whole."""
    from focus_eval.keyframes.encoders.weights import SHARDS, check_readable

    if (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        try:
            names = sorted(set(json.loads((folder / SHARDS).read_text(encoding="utf-8"))["weight_map"].values()))
        except OSError:
            return [f"neither {_SINGLE} nor {SHARDS}"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [f"{SHARDS} is not an index of shards"]
    missing = [name for name in names if not (folder / name).is_file()]
    problems = [f"{len(missing)} of {len(names)} shards are missing: {', '.join(missing)}"] if missing else []
    for name in (name for name in names if name not in missing):
        try:
            check_readable(folder / name)
        except FocusEvalError as error:
            problems.append(str(error))
    return problems


def key_problems(model: ModelConfig) -> Iterator[Missing | str]:
    """Yield problems of a model's API: no key, a refused key, an unknown model, an unreachable service.

    A service that lists no models gives only a note.
    """
    if not model.api_key:
        return
    if not os.environ.get(model.api_key):
        yield Missing(f"the API key of model {model.name}", f"export {model.api_key}=...")
        return
    try:
        import openai

        from focus_eval.keyframes.llms.chat import open_client, served_models
    except ImportError:
        return  # reported as a missing package
    base_url = str(model.args.get("base_url") or os.environ.get("OPENAI_API_BASE") or "") or None
    try:
        # No retries: report a service that is down at once.
        client = open_client(base_url, key_name=model.api_key, seconds=_API_SECONDS)
    except FocusEvalError as error:
        yield Missing(f"the API of model {model.name}", str(error))
        return
    name = str(model.args.get("model_version") or model.args.get("model") or "")
    service = str(client.base_url).rstrip("/")
    try:
        model_names = served_models(client)
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        yield Missing(
            f"an API key of model {model.name} that {service} accepts (it says {error.status_code})",
            f"export {model.api_key}=... with a key of that service",
        )
    except openai.APIConnectionError:
        yield Missing(f"the API of model {model.name}: {service} cannot be reached", "check the network and base_url")
    except openai.APIStatusError as error:
        yield f"{model.name}: {service} lists no models ({error.status_code}): its key could not be checked"
    else:
        # An empty list does not tell what is served.
        if model_names and name and name not in model_names:
            names = ", ".join(sorted(model_names)[:5])
            yield Missing(f"model {name} at {service}", f"set model_version to one it serves: {names}")


def llm_problems(sampler: FrameSampler) -> Iterator[Missing]:
    """Yield problems of the model that a sampler asks: no key, a service that is down."""
    from focus_eval.keyframes.llms.registry import ready_llm

    try:
        ready_llm(sampler)
    except FocusEvalError as error:
        yield Missing(f"the model that {sampler.name} asks", str(error))


def encoder_problems(encoder: EncoderConfig) -> Iterator[Missing]:
    """Yield problems of an encoder: missing packages, weights, tokenizer or files, and wrong options."""
    from focus_eval.keyframes.encoders.registry import read_encoder
    from focus_eval.keyframes.encoders.weights import encoder_checkpoint

    try:
        checkpoint = encoder_checkpoint(encoder.encoder, encoder.options)
    except FocusEvalError as error:
        # Count the size only if the weights must be downloaded.
        gigabytes = encoder.disk_gigabytes if isinstance(error, MissingWeights) else 0.0
        size = f" ({encoder.disk_gigabytes:g} GB)" if encoder.disk_gigabytes else ""
        yield Missing(f"weights of encoder {encoder.name}{size}", str(error), gigabytes=gigabytes)
        return
    # open_clip brings its own tokenizer, and says itself where a checkpoint must hold another.
    if checkpoint and checkpoint.layout.has_tokenizer and not _has_tokenizer(checkpoint.folder):
        yield Missing(f"the tokenizer of encoder {encoder.name} in {checkpoint.folder}", "fetch the checkpoint again")
    try:
        read_encoder(encoder.encoder, encoder.options)
    except FocusEvalError as error:
        yield Missing(f"encoder {encoder.name}", str(error))
        return
    # Recorded relevance is read from a file, which is checked like weights.
    path = encoder.options.get("path")
    if isinstance(path, str) and not Path(path).expanduser().exists():
        yield Missing(f"the file {path} of encoder {encoder.name}", "record it, or correct the option path")


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in names) for names in _TOKENIZERS)


def memory_problems(model: ModelConfig) -> Iterator[Missing | str]:
    """Yield a lack of GPUs or of memory for a model's weights; running on the CPU gives only a note."""
    from focus_eval.keyframes.encoders.weights import weights_folder

    pretrained = model.args.get("pretrained")
    folder = weights_folder(str(pretrained), str(model.args.get("revision") or "main")) if pretrained else None
    if not model.needs_gpu or folder is None:
        return
    weight_gigabytes, gpu_sizes, n_gpus = weights_gigabytes(folder), gpu_gigabytes(), int(model.gpus or 1)
    if not gpu_sizes:
        yield f"{model.name} will run on the CPU: torch finds no GPU"
        # A lower bound (weights without activations): a model that fails here cannot run.
        memory = host_gigabytes()
        if memory is not None and weight_gigabytes > memory:
            yield Missing(
                f"memory for model {model.name}: {weight_gigabytes:.0f} GB of weights, {memory:.0f} GB here",
                "use a GPU",
            )
    elif len(gpu_sizes) < n_gpus:
        yield Missing(f"GPUs for model {model.name}: it takes {n_gpus}, {len(gpu_sizes)} are here", "use a larger node")
    elif weight_gigabytes > sum(gpu_sizes[:n_gpus]):
        yield Missing(
            f"memory for model {model.name}: {weight_gigabytes:.0f} GB of weights, {sum(gpu_sizes[:n_gpus]):.0f} GB on "
            f"{n_gpus} GPUs",
            "set gpus in the model's config, and device_map: auto",
        )


def infeasible_problems(matrix: MatrixConfig, sets: dict[str, QuestionSet]) -> Iterator[Missing | str]:
    """Yield selections that may end without frames for more questions than `max_error_share` allows; else notes.

    Args:
        sets: questions by "matrix/benchmark"; benchmarks without an entry are left out.
    """
    n_rows = n_infeasible = 0
    lines: dict[str, None] = {}
    for spec in selection_specs(matrix):
        if (questions := sets.get(f"{matrix.name}/{spec.benchmark.name}")) is None:
            continue
        n_rows += len(questions.questions)
        infeasible = _infeasible_questions(spec, questions)
        if infeasible:
            n_infeasible += len(infeasible)
            first, seconds, reason = infeasible[0]
            share = f"{len(infeasible)} of {len(questions.questions)} questions"
            line = (
                f"{spec.label}, K {spec.k}: {share} (first: {first}, {seconds:.1f} s) may end without frames: {reason}"
            )
            lines.setdefault(line)
    is_allowed = n_infeasible <= matrix.max_error_share * n_rows
    for line in lines:
        if is_allowed:
            yield f"{line}; such errors count, as max_error_share = {matrix.max_error_share:.0%} allows"
        else:
            yield Missing(f"frames of {line}", "or leave that part out with --only, or raise max_error_share")


def _infeasible_questions(spec: SelectionSpec, questions: QuestionSet) -> list[tuple[str, float, str]]:
    """(question id, video seconds, reason) of questions whose sampler may find no frame; opens no video."""
    infeasible = []
    for question in questions.questions:
        video = questions.known_info(question)
        if video is None and question.duration_seconds:
            # Any frame rate will do, since grids of samplers are in seconds.
            video = VideoInfo(n_frames=max(1, round(30 * question.duration_seconds)), fps=30.0)
        if video is not None and (reason := spec.sampler.infeasible_reason(video, k=spec.k)) is not None:
            infeasible.append((question.id, video.duration_seconds, reason))
    return infeasible


EntryT = TypeVar("EntryT")


@dataclass(frozen=True)
class Preflight:
    """Result of the checks.

    Args:
        missing: requirements without which a run would stop or record errors.
        notes: remarks that stop nothing.
        sets: the questions by "matrix/benchmark", as far as they are on this machine.
    """

    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    sets: dict[str, QuestionSet]


def check_all(
    matrices: Sequence[tuple[MatrixConfig, Path]],
    *,
    engine: str = "local",
    store: Path | None = None,
    loads_wrappers: bool = True,
) -> Preflight:
    """Check the matrices that are to be run, each with its folder: packages, arguments, weights, questions, videos,
    keys, devices and disk. Fetches nothing, loads no weights, writes nothing.

    Args:
        store: file of embeddings; None for `store.sqlite` beside each run's folder.
        loads_wrappers: check arguments of models by lmms-eval's wrappers, whose import takes 20 seconds and a gigabyte.
    """
    # Plain texts are notes and do not stop the run.
    missing: list[Missing | str] = [*package_problems([matrix for matrix, _ in matrices], engine)]
    sets: dict[str, QuestionSet] = {}
    missing += write_problems(store.parent, "--store") if store else []
    for matrix, folder in matrices:
        missing += write_problems(folder, "--out")
        for benchmark in matrix.benchmarks:
            missing += place_problems(benchmark)
            questions, problems = questions_or_problems(
                benchmark, matrix.limit, available_only=matrix.available_only, only=matrix.only_questions
            )
            missing += problems
            if questions is None:
                # Without questions it is not known which videos are needed, but the folder can be checked.
                missing += folder_problems(benchmark)
                continue
            if questions.questions:
                sets[f"{matrix.name}/{benchmark.name}"] = questions
            missing += video_problems(questions, answered=bool(matrix.models))
            missing += _verification_note(questions)
            missing += _available_note(questions, matrix.limit) if matrix.available_only else []
            missing += _empty_field_notes(questions)
            # Only models need the task's documents; samplers use the annotations.
            missing += documents_problems(questions) if matrix.models and benchmark.annotations else []
        missing += infeasible_problems(matrix, sets)
    specs = [spec for matrix, _ in matrices for spec in selection_specs(matrix)]
    for encoder in _unique(item for matrix, _ in matrices for item in all_encoders(matrix)):
        missing += encoder_problems(encoder)
    for sampler in {spec.sampler.options.get("llm"): spec.sampler for spec in specs if spec.sampler.needs_llm}.values():
        missing += llm_problems(sampler)
    for model in _unique(item for matrix, _ in matrices for item in matrix.models):
        of_model = [matrix for matrix, _ in matrices if model in matrix.models]
        missing += model_problems(model, of_model, engine, loads_wrappers=loads_wrappers)
    stopping, notes = split_notes(missing)
    stopping += disk_problems(matrices, stopping, store)
    return Preflight(tuple(_unique(stopping)), tuple(_unique(notes)), sets)


def split_notes(problems: Iterable[Missing | str]) -> tuple[list[Missing], list[str]]:
    """Return what is missing, and the notes, which stop nothing."""
    entries = list(problems)
    missing = [entry for entry in entries if isinstance(entry, Missing)]
    return missing, [entry for entry in entries if isinstance(entry, str)]


def model_problems(
    model: ModelConfig, matrices: list[MatrixConfig], engine: str, *, loads_wrappers: bool
) -> Iterator[Missing | str]:
    """Yield problems of a model; its arguments are checked, with lmms-eval, only if weights and keys are there."""
    if unknown := list(name_problems(model, loads_wrappers=loads_wrappers)):
        yield from unknown
        return
    weights, keys = list(weights_problems(model)), list(key_problems(model))
    yield from (*weights, *keys)
    if (
        loads_wrappers
        and not weights
        and not split_notes(keys)[0]
        and importlib.util.find_spec("lmms_eval") is not None
    ):
        frames = max(max(matrix.k, default=model.frames) for matrix in matrices)
        yield from argument_problems(model, frames)
    # Check memory only for the local engine, since a cluster's GPUs are not in this machine.
    if engine == "local" and not weights:
        yield from memory_problems(model)


def package_problems(matrices: list[MatrixConfig], engine: str = "local") -> Iterator[Missing]:
    """Yield the packages that the matrices need and that are not installed."""
    encoders = [encoder for matrix in matrices for encoder in matrix.encoders]
    requirements = [
        ("lmms_eval", "lmms", any(matrix.models for matrix in matrices)),
        ("torch", "encoders", any(map(_has_checkpoint, encoders))),
        ("ray", "ray", engine == "ray"),
    ]
    for package, extra, is_needed in requirements:
        if is_needed and importlib.util.find_spec(package) is None:
            yield Missing(f"the package {package.replace('_', '-')}", install_command(extra))


def _has_checkpoint(encoder: EncoderConfig) -> bool:
    """True if the encoder loads a checkpoint with torch."""
    from focus_eval.keyframes.encoders.registry import ENCODERS

    return encoder.encoder in ENCODERS and bool(ENCODERS.fact(encoder.encoder, "model_type", ""))


def write_problems(folder: Path, option: str) -> Iterator[Missing]:
    """Yield a problem if `folder`, or its nearest existing parent, cannot be written; `option` would name another."""
    existing = _nearest_existing(folder)
    if not os.access(existing, os.W_OK):
        yield Missing(f"{existing}: cannot be written", f"name another folder with {option}, or change its permissions")


def disk_problems(
    matrices: Sequence[tuple[MatrixConfig, Path]], missing: Sequence[Missing], store: Path | None
) -> Iterator[Missing]:
    """Yield disks with less free space than the matrices write and the downloads need."""
    demands: list[tuple[Path, float]] = []
    for matrix, folder in matrices:
        file = store or folder.parent / "store.sqlite"
        stored = file.stat().st_size / 1e9 if file.is_file() else 0.0
        # The stated size is of the whole table; a try with a limit takes less than the default.
        size = matrix.store_gigabytes if matrix.limit is None else min(matrix.store_gigabytes, TRY_GIGABYTES)
        demands.append((file, max(0.0, size - stored)))
    to_fetch = sum(item.gigabytes for item in _unique(missing))
    if to_fetch:
        demands.append((Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser(), to_fetch))
    # Sum the demands by disk, since several runs, the store and downloads may share one.
    disks: dict[int, tuple[Path, float]] = {}
    for path, gigabytes in demands:
        existing = _nearest_existing(path)
        first, so_far = disks.get(existing.stat().st_dev, (existing, 0.0))
        disks[existing.stat().st_dev] = (first, so_far + gigabytes)
    for existing, gigabytes in disks.values():
        free = shutil.disk_usage(existing).free / 1e9
        if gigabytes > free:
            yield Missing(
                f"disk: {gigabytes:.3g} GB needed, {free:.3g} GB free on {existing}",
                "free some, or name another disk: --out and --store for what is written, HF_HOME for what is fetched",
            )


def _nearest_existing(folder: Path) -> Path:
    """`folder`, or its nearest parent that exists."""
    # A run's folder need not exist yet: the first folder above it that does tells disk and permissions.
    return next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())


def _unique(entries: Iterable[EntryT]) -> list[EntryT]:
    distinct: list[EntryT] = []
    for entry in entries:
        # A list, since configurations hold lists and dicts and cannot be put into a set.
        if entry not in distinct:
            distinct.append(entry)
    return distinct
