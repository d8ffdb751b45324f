"""Finds the questions of a matrix on this machine, the lengths of their videos and the requests of their tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import yaml

from focus_eval.bench.benchmarks.question import Benchmark
from focus_eval.bench.benchmarks.registry import VideoRate, questions_of, read_annotations, read_documents, read_rates
from focus_eval.bench.lmms.patches import import_evaluate_late
from focus_eval.bench.lmms.tasks import DEFAULT, leave_subtitles_out, task_values
from focus_eval.bench.matrix.config import BenchmarkConfig, MatrixConfig, load_yaml
from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError, unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.core.types import Question, VideoInfo
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.manifest import known_info as manifest_info

if TYPE_CHECKING:
    from lmms_eval.api.instance import Instance
    from lmms_eval.api.task import ConfigurableTask

    from focus_eval.bench.answering.wrapper import Wrapper

# Documents are looked for in this order: the config's `dataset` (a local folder); the hub's cache, filled by `hf
# download DATASET --repo-type dataset`; the cache of the `datasets` library, filled by an earlier run of lmms-eval.

_SUFFIXES = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".arrow": "arrow"}


class MissingDocuments(FocusEvalError):
    """Documents that are not on this machine.

    Args:
        problem: names the missing documents.
        fix: the command that fetches them.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}: {fix}")
        self.problem, self.fix = problem, fix


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """The source of an lmms-eval task's documents.

    Args:
        repository: data set on the hub, or a local folder.
        subset: the data set's configuration; "" for the only one.
        split: e.g. "validation".
        video_folder: folder of its videos below HF_HOME; "" if the task names none.
        files: documents that the task names itself (`dataset_path: json` with `data_files`); else ().
    """

    repository: str
    subset: str
    split: str
    video_folder: str = ""
    files: tuple[str, ...] = ()

    @property
    def fetch_command(self) -> str:
        """The command that downloads the documents, without the videos, into the hub's cache."""
        patterns = " ".join(f'--include "{pattern}"' for pattern in ("*.parquet", "*.json", "*.md"))
        return f"hf download {self.repository} --repo-type dataset {patterns}"


@dataclass(frozen=True)
class DocumentFiles:
    """Files with all documents of a split, in order, and their format ("parquet", "json" or "arrow")."""

    format: str
    files: tuple[Path, ...]


def find_documents(config: BenchmarkConfig) -> DocumentFiles:
    """Return the files with the documents of `config.task`.

    Raises:
        MissingDocuments: they are not on this machine; says how to fetch them.
        InvalidInput: a task whose file is not found, or a `dataset` folder without documents of the split.
    """
    source = task_source(config.task, config.include_path)
    if config.dataset:
        # Search only the stated folder: a cache could hold another version of the questions.
        documents = documents_in(Path(config.dataset), source)
        if documents is None:
            raise InvalidInput(
                f"dataset {config.dataset} of {config.name}: no documents of split {source.split!r} "
                f"({source.split}-*.parquet, .jsonl or .json) in this folder"
            )
        return documents
    if source.files:
        return _named_documents(source, config)
    folder = dataset_snapshot(source.repository)
    documents = documents_in(folder, source) if folder is not None else None
    documents = documents or _prepared(source)
    if documents is None:
        is_gated = " (gated: accept its terms on its page, then `hf auth login`)" if config.gated else ""
        state = "are not complete in the hub's cache" if folder is not None else "are not on this machine"
        problem = f"documents of {config.name} ({source.repository}, split {source.split}) {state}"
        raise MissingDocuments(problem, source.fetch_command + is_gated)
    return documents


def _named_documents(source: TaskSource, config: BenchmarkConfig) -> DocumentFiles:
    """The files that a task names; relative ones are in the working directory, as for lmms-eval."""
    files = tuple(Path(name) for name in source.files)
    for file in files:
        if not file.is_file():
            raise InvalidInput(f"task {config.task!r}: data_files names {file}, which is no file ({Path.cwd()})")
    suffixes = {_SUFFIXES.get(file.suffix, "") for file in files}
    if len(suffixes) > 1 or "" in suffixes:
        raise InvalidInput(f"task {config.task!r}: data_files must be of one kind of {', '.join(_SUFFIXES)}")
    return DocumentFiles(suffixes.pop(), files)


def documents_in(folder: Path, source: TaskSource) -> DocumentFiles | None:
    """Return the document files of `source` in a data set's folder; None if they are absent or incomplete.

    File patterns in the data set's card come first, then the usual names of shards.
    """
    card_patterns = _stated_patterns(folder / "README.md", source)
    usual = [
        f"{place}{source.split}{name}"
        for place in ("", "data/", *([f"{source.subset}/"] if source.subset else []))
        for name in ("-*.parquet", ".parquet", ".jsonl", ".json")
    ]
    # A split may be stated as several files (VSI-Bench's is): all of them are its documents, in the card's order.
    for patterns in [card_patterns, *([item] for item in (*usual, f"*/{source.split}-*.parquet"))]:
        matches = [sorted(folder.glob(pattern)) for pattern in patterns]
        # Some files that the card names are missing: the split is incomplete.
        if patterns is card_patterns and any(matches) and not all(matches):
            return None
        files = tuple(dict.fromkeys(file for match in matches for file in match))
        in_one_place = len({file.parent for file in files}) == 1
        if in_one_place and all(file.suffix in _SUFFIXES and file.is_file() for file in files):
            return DocumentFiles(_SUFFIXES[files[0].suffix], files) if _is_whole(files) else None
    return None


def dataset_snapshot(repository: str) -> Path | None:
    """Return the folder of a data set in the hub's cache (or the local folder itself); None if there is none."""
    if Path(repository).is_dir():
        return Path(repository)
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    # Do not use snapshot_download, which refuses a snapshot of which only the documents were fetched.
    repository_folder = Path(constants.HF_HUB_CACHE) / f"datasets--{repository.replace('/', '--')}"
    # A cache may hold several snapshots; this is the one that a load without a revision takes.
    reference = repository_folder / "refs" / "main"
    if not reference.is_file():
        return None
    folder = repository_folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
    return folder if folder.is_dir() else None


@cache
def task_source(task: str, include_path: str = "") -> TaskSource:
    """Return the source of the documents of the lmms-eval task `task`, read from its YAML file.

    Raises:
        InvalidInput: no file of that task, in ours, in lmms-eval's or in the folder `include_path`.
    """
    values = task_values(task, include_path)
    stated_kwargs = values.get("dataset_kwargs")
    kwargs = stated_kwargs if isinstance(stated_kwargs, Mapping) else {}
    # Take the same split as lmms-eval: the test split if there is one, else the validation split.
    split = values.get("test_split") or values.get("validation_split") or values.get("training_split")
    if not values.get("dataset_path") or not split:
        raise InvalidInput(f"task {task!r}: its file names no dataset_path or no split")
    # `data_files` is one file, a list of files, or a mapping from splits to either.
    files = kwargs.get("data_files")
    files = files.get(str(split)) if isinstance(files, Mapping) else files
    return TaskSource(
        repository=str(values["dataset_path"]),
        subset=str(values.get("dataset_name") or ""),
        split=str(split),
        video_folder=str(kwargs.get("cache_dir") or ""),
        files=(files,) if isinstance(files, str) else tuple(map(str, files or ())),
    )


def _stated_patterns(card: Path, source: TaskSource) -> list[str]:
    """The file patterns that the card states for the subset and split of `source`; [] if it states none."""
    if not card.is_file():
        return []
    head, *_ = card.read_text(encoding="utf-8").removeprefix("---").partition("\n---")
    try:
        configs = (yaml.safe_load(head) or {}).get("configs") or []
    except (yaml.YAMLError, AttributeError, ValueError, TypeError):
        return []
    matching = [config for config in configs if not source.subset or config.get("config_name") == source.subset]
    # A task without a subset means the first configuration of the card.
    return _patterns_of(matching[0].get("data_files"), source.split) if matching else []


def _patterns_of(data_files: object, split: str) -> list[str]:
    """The file patterns of `split` in a card's `data_files`; one text holds for every split."""
    if isinstance(data_files, str):
        return [data_files]
    entries = data_files if isinstance(data_files, list) else []
    patterns: list[str] = []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("split") == split:
            path = entry.get("path")
            patterns += path if isinstance(path, list) else [str(path)]
    return patterns


def _is_whole(files: tuple[Path, ...]) -> bool:
    """False if `files` are shards named "..-00000-of-00003" and some are absent."""
    # An interrupted download must not pass for a short data set.
    ends = files[0].stem.rsplit("-of-", 1)
    return len(ends) == 1 or not ends[1].isdigit() or len(files) == int(ends[1])


def _prepared(source: TaskSource) -> DocumentFiles | None:
    """The documents of `source` that the `datasets` library prepared on this machine; None if there are none."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    places = [os.environ.get("LMMS_EVAL_DATASETS_CACHE"), os.environ.get("HF_DATASETS_CACHE"), str(home / "datasets")]
    folder_name = source.repository.replace("/", "___")
    # Search each distinct place once, that of the most specific variable first.
    for place in dict.fromkeys(item for item in places if item):
        for folder in sorted(Path(place).expanduser().glob(f"{folder_name}/{source.subset or 'default'}/*/*")):
            files = tuple(sorted(folder.glob(f"*-{source.split}*.arrow")))
            # The library writes dataset_info.json last: without this file the documents are incomplete.
            if files and _is_whole(files) and (folder / "dataset_info.json").is_file():
                return DocumentFiles("arrow", files)
    return None


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one benchmark, in the annotation's order, with their videos.

    Args:
        config: states where questions and videos are.
        questions: the questions to ask, after `limit` and `available_only`.
        all_ids: ids of all questions of the benchmark.
    """

    config: BenchmarkConfig
    questions: tuple[Question, ...]
    all_ids: list[str]

    @cached_property
    def benchmark(self) -> Benchmark:
        """The benchmark, with the config's length edges."""
        return self.config.make()

    @cached_property
    def by_video(self) -> dict[str, list[Question]]:
        """Questions by video, in the order in which the videos first appear."""
        groups: dict[str, list[Question]] = {}
        for question in self.questions:
            groups.setdefault(question.video, []).append(question)
        return groups

    @cached_property
    def rates(self) -> dict[str, VideoRate]:
        """Length and rate by question id from the config's file of rates; {} if it names none."""
        return read_rates(self.config.rates) if self.config.rates else {}

    def video_path(self, video: str) -> Path:
        """Return the path of a video in the config's folder, whether or not it is there."""
        return Path(self.config.videos) / video

    def known_info(self, question: Question) -> VideoInfo | None:
        """Return length and rate from the file of rates, else from the videos' manifest; None if neither has it."""
        # The file of rates comes first, since the config names it; the manifest merely lies with the videos.
        rate = self.rates.get(question.id)
        if rate is not None:
            return rate.info
        return manifest_info(self.video_path(question.video)) if self.config.videos else None

    def info(self, question: Question) -> VideoInfo:
        """Return length and rate from the file of rates or the manifest, else from the video itself.

        Raises:
            VideoError: no rates, and a video that cannot be read.
        """
        if known_info := self.known_info(question):
            return known_info
        with open_video(self.video_path(question.video)) as reader:
            return reader.info

    def infos(self) -> Iterator[list[tuple[int, Question, VideoInfo | FocusEvalError]]]:
        """Yield one list per video of (question's index, question, its video's length and rate, or the error)."""
        # Yield the annotation's number too: videos are visited in another order.
        numbers = {question.id: number for number, question in enumerate(self.questions)}
        for questions in self.by_video.values():
            yield [(numbers[question.id], question, info) for question, info in self._infos_of(questions)]

    def _infos_of(self, questions: list[Question]) -> Iterator[tuple[Question, VideoInfo | FocusEvalError]]:
        """Yield each question of one video with length and rate, or the error; opens the video at most once."""
        probed: VideoInfo | FocusEvalError | None = None
        for question in questions:
            known_info = self.known_info(question)
            # Cache errors too, so that a damaged file is opened once, not once per question.
            if known_info is None and probed is None:
                try:
                    probed = self.info(question)
                except FocusEvalError as error:
                    probed = error
            info = known_info or probed
            assert info is not None
            yield question, info


def video_paths(sets: Iterable[QuestionSet]) -> Iterator[Path]:
    """Yield the paths of all videos, whether or not they are there; none of a benchmark without a folder of videos."""
    for questions in sets:
        if questions.config.videos:
            yield from map(questions.video_path, questions.by_video)


def load_questions(
    config: BenchmarkConfig, *, limit: int | None = None, available_only: bool = False, only: Sequence[str] = ()
) -> QuestionSet:
    """Return the first `limit` questions of the benchmark (all by default).

    Args:
        available_only: keep only questions whose video is a file on this machine that is not empty.
        only: ids of the questions to keep; () keeps all.

    Raises:
        UnknownName: the benchmark has no question of such an id.
        MissingDocuments: the task's documents are not on this machine.
        InvalidInput: the annotations are missing or damaged, or their number differs from the config's.
    """
    questions, location = read_questions(config)
    if config.questions is not None and len(questions) != config.questions:
        raise InvalidInput(
            f"{location}: {len(questions)} questions, {config.name} has {config.questions}; "
            "is this another split or version?"
        )
    # All ids, also under a limit: finished rows are sorted in the benchmark's order.
    ids = [question.id for question in questions]
    if only:
        for name in only:
            if name not in ids:
                raise unknown_name(f"question of {config.name}:", name, ids)
        questions = [question for question in questions if question.id in only]
    if available_only and config.videos:
        files = {question.video: Path(config.videos) / question.video for question in questions}
        present_videos = {video for video, file in files.items() if file.is_file() and file.stat().st_size > 0}
        questions = [question for question in questions if question.video in present_videos]
    return QuestionSet(config, tuple(questions[:limit]), ids)


class StatedLengths(QuestionSet):
    """Placeholder questions; their videos have the lengths and the rate that public annotations state, and no files."""

    def known_info(self, question: Question) -> VideoInfo:
        """Return the stated length of the question's video."""
        assert question.duration_seconds is not None
        assert question.fps is not None
        return VideoInfo(max(1, round(question.duration_seconds * question.fps)), question.fps)


def stated_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return placeholder questions by benchmark name, for the benchmarks of `matrix` whose lengths are shipped."""
    lengths, sets = public_facts("lengths"), dict[str, QuestionSet]()
    if matrix.only_questions:  # stated lengths have no question ids, so none can be picked
        return sets
    for config in matrix.benchmarks:
        if config.name in lengths:
            questions = tuple(_placeholder_questions(config.benchmark, lengths[config.name]))
            sets[config.name] = StatedLengths(config, questions[: matrix.limit], [each.id for each in questions])
    return sets


def stated_source(benchmark: str) -> str:
    """Return where the stated lengths of a benchmark are from."""
    return str(public_facts("lengths")[benchmark]["source"])


class _Lengths(TypedDict):
    """A benchmark's videos: groups (seconds, questions per video, number of videos), and the rate of all videos."""

    videos: list[tuple[float, int, int]]
    fps: float


def _placeholder_questions(benchmark: str, lengths: _Lengths) -> Iterator[Question]:
    """Yield placeholder questions, with which `plan` works without the data set."""
    for group, (seconds, n_questions, n_videos) in enumerate(lengths["videos"]):
        for number in range(n_videos * n_questions):
            video = f"{group}-{number // n_questions}"
            yield Question(
                benchmark=benchmark,
                id=f"{video}-{number % n_questions}",
                query="What happens in the video?",
                options=("first", "second", "third", "fourth"),
                video=video,
                answer="A",
                duration_seconds=float(seconds),
                fps=float(lengths["fps"]),
            )


def public_facts(name: str) -> dict[str, Any]:
    """Return the shipped public facts called `name`: "lengths" of benchmarks or sizes of "models"."""
    return load_yaml(Path(str(resource_path("configs"))) / "public" / f"{name}.yaml")


def read_questions(config: BenchmarkConfig) -> tuple[list[Question], str]:
    """Return all questions of a benchmark, and the file or folder they were read from.

    The source is `annotations` if the config names it, else the documents of its task.

    Raises:
        MissingDocuments: the task's documents are not on this machine.
        InvalidInput: a file is damaged; the message names it.
    """
    if config.annotations:
        return read_annotations(config.make(), config.annotations), config.annotations
    task_documents = find_documents(config)
    documents = [document for file in task_documents.files for document in read_documents(file)]
    location = str(task_documents.files[0] if len(task_documents.files) == 1 else task_documents.files[0].parent)
    return questions_of(config.make(), _with_evidence(documents, config), location=location), location


def _with_evidence(documents: list[Mapping[str, object]], config: BenchmarkConfig) -> list[Mapping[str, object]]:
    """The documents with the evidence that the data set keeps in another file (`evidence_file`)."""
    benchmark = config.make()
    name = benchmark.facts.evidence_file
    if not name:
        return documents
    key, field = benchmark.fields.id, benchmark.fields.evidence
    if field in documents[0]:
        return documents
    repository = task_source(config.task, config.include_path).repository
    folder = Path(config.dataset) if config.dataset else dataset_snapshot(repository)
    # Some copies of the data set lack this file; only evidence measures need it.
    if folder is None or not (folder / name).is_file():
        return documents
    annotated = {row.get(key): row.get(field) for row in read_documents(folder / name)}
    return [{**document, field: annotated.get(document.get(key))} for document in documents]


class TaskRequests:
    """The requests of one lmms-eval task, found by question id.

    The task itself builds the requests once, with its prompt and generation arguments. The benchmark's own code reads
    the question id from each document, as it does for annotations.

    Raises:
        RunError: lmms-eval does not know the task, or the task lacks a document for one of the questions.
    """

    def __init__(self, questions: QuestionSet, *, kind: str, prompts: str = DEFAULT) -> None:
        """Args:
        kind: "simple" or "chat".
        prompts: the name under which the task's prompts are looked up; see `prompts_for`.
        """
        self._home = data_home(questions.config)
        with _home_of_tasks(self._home):
            self._task = _load_task(questions.config, kind, prompts)
            # Build the requests of all documents in one process, since this class picks the asked ones by question id.
            self._task.build_all_requests(limit=None, rank=0, world_size=1)
        # lmms-eval chooses the split in the same way when it builds the requests.
        split = self._task.config.test_split if self._task.has_test_docs() else self._task.config.validation_split
        documents = self._task.dataset[split]
        self._by_question: dict[str, Instance] = {}
        for request in self._task.instances:
            # Find requests by question id, not by position, since the task's documents may be in another order.
            question = questions.benchmark.question(documents[request.doc_id])
            self._by_question[question.id] = request
        missing = [question.id for question in questions.questions if question.id not in self._by_question]
        if missing:
            raise RunError(
                f"task {questions.config.task!r} has no document for {len(missing)} of {len(questions.questions)} "
                f"questions, the first is {missing[0]!r}: are the annotations of another split or version?"
            )

    @contextmanager
    def served(self, model: Wrapper) -> Iterator[TaskRequests]:
        """Attach this task's documents and videos to `model` inside the block."""
        # Do this for every job, since the model may be new and the earlier job may be of a benchmark with other
        # folders.
        model.task_dict[self._task.config.task] = self._task.dataset
        with _home_of_tasks(self._home):
            yield self

    def of(self, question_ids: tuple[str, ...]) -> list[Instance]:
        """Return the requests of these questions, in this order."""
        return [self._by_question[question_id] for question_id in question_ids]


def data_home(config: BenchmarkConfig) -> Path:
    """Return the folder below which the task looks for its videos: `data_home`, else HF_HOME or its default."""
    return Path(config.data_home or os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser().resolve()


@contextmanager
def _home_of_tasks(folder: Path) -> Iterator[None]:
    """Set HF_HOME inside the block: tasks look for their videos below it."""
    earlier_home = os.environ.get("HF_HOME")
    os.environ["HF_HOME"] = str(folder)
    try:
        yield
    finally:
        if earlier_home is None:
            del os.environ["HF_HOME"]
        else:
            os.environ["HF_HOME"] = earlier_home


def _load_task(config: BenchmarkConfig, kind: str, prompts: str) -> ConfigurableTask:
    """Return the lmms-eval task of `config`; `kind` is "simple" or "chat". The task needs no network.

    Raises:
        MissingDocuments: the task's documents are not on this machine.
        RunError: lmms-eval cannot load the task.
    """
    name = config.task
    import_evaluate_late()
    from lmms_eval.tasks import TaskManager

    folder = resource_path("tasks")
    # Reading lmms-eval's thousands of task files takes seconds; a task of ours needs none of them.
    is_ours = (folder / f"{name}.yaml").exists()
    folders = [str(folder), *([config.include_path] if config.include_path else [])]
    manager = TaskManager(include_path=folders, include_defaults=not is_ours, model_name=prompts)
    try:
        documents, split = find_documents(config), task_source(name, config.include_path).split
        files = [str(file.resolve()) for file in documents.files]
        settings = {
            "task": name,
            "dataset_path": documents.format,
            "dataset_name": None,
            "dataset_kwargs": {"data_files": {split: files}},
        }
        # Not lmms-eval's get_task_dict: given the documents, it drops `kind` and builds simple requests for all models.
        task = manager.load_task_or_group([settings], kind)[name]
    except (KeyError, ValueError, FileNotFoundError) as error:
        raise RunError(f"lmms-eval cannot load task {name!r}: {error}") from error
    leave_subtitles_out(task)
    return task
