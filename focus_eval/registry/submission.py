"""Makes a sampler's folder for the registry from a card, a sampler's file and files of selections."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from focus_eval.benchmarks.registry import read_rates, stated_rates
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import parse_named
from focus_eval.matrix.config import check, load_yaml
from focus_eval.registry.cards import CARD_FILE, Card, PublishedFile, file_digest, read_card
from focus_eval.registry.replayed import Material
from focus_eval.report.audit import audit
from focus_eval.report.audit_reading import AuditSource, position_fps_of, read_paths
from focus_eval.samplers.registry import make_sampler, sampler_name
from focus_eval.selections import load_selections
from focus_eval.selections.rows import write_parquet


@contextmanager
def submission(
    card_file: Path, sampler: str, out: Path, material: Material, taken: Mapping[str, Card]
) -> Iterator[Card]:
    """Make the folder of a submission; it appears below `out` when the block ends well, else nothing is left.

    Selections are checked against the benchmark's questions, where its annotation is given, and written as Parquet; all
    files get their SHA-256.

    Args:
        card_file: the author's card; files that it names lie beside it.
        sampler: `FILE.py:Class` or a registered name, with options; "" for that of the card, if any.
        taken: the cards of the registry.

    Yields:
        The card in the unfinished folder.

    Raises:
        InvalidInput: a card or a file that does not fit, a folder that is there, a name that is taken.
    """
    card = check(Card, _with_sampler(load_yaml(card_file), sampler), card_file)
    code = _code_of(card, card_file.parent, sampler)
    name = _folder_name(sampler_name(code) if code else card.title)
    if (out / name).exists():
        raise InvalidInput(f"{out / name}: is there already; name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{name}.", dir=out) as unfinished:
        made = Path(unfinished) / name
        made.mkdir()
        document = card.model_dump(mode="json", exclude_defaults=True)
        if code:
            document["sampler"] = _copied_code(code, made)
        for key in ("selections", "answers"):
            if items := getattr(card, key):
                document[key] = [_kept(item, key, card_file.parent, made, material) for item in items]
        (made / CARD_FILE).write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        finished = read_card(made / CARD_FILE)
        _refuse_taken(finished, taken)
        yield finished
        made.rename(out / name)


def findings_of(card: Card, material: Material) -> list[str]:
    """Return what `audit` finds in the card's selections, a line each."""
    lines = []
    for item in card.selections:
        source = AuditSource()
        if item.benchmark in material.annotations:
            questions = material.questions(item.benchmark)
            rates = stated_rates(questions) or (read_rates(material.rates) if material.rates else {})
            source = AuditSource(questions=questions, rates=rates, position_fps=position_fps_of(item.benchmark))
        lines += [str(finding) for finding in audit(read_paths([card.folder / item.file], source).runs)]
    return lines


def _with_sampler(document: dict[str, Any], sampler: str) -> dict[str, Any]:
    if not sampler:
        return document
    name, options = parse_named(sampler)
    return {**document, "sampler": name, "options": {**document.get("options", {}), **options}}


def _code_of(card: Card, beside: Path, sampler: str) -> str:
    """Return what `make_sampler` takes: a file that the card names lies beside it, one of the command line here."""
    is_beside = ".py:" in card.sampler and not sampler
    return str(beside / card.sampler) if is_beside else card.sampler


def _folder_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].rstrip("_")


def _copied_code(code: str, made: Path) -> str:
    """Copy a sampler's file into the folder; return how the card names it there."""
    file, separator, kind = code.rpartition(".py:")
    if not separator:
        make_sampler(code)
        return code
    source = Path(f"{file}.py")
    if not source.is_file():
        raise InvalidInput(f"{source}: no such file; a sampler is FILE.py:Class")
    shutil.copyfile(source, made / "sampler.py")
    return f"sampler.py:{kind}"


def _kept(item: PublishedFile, kind: str, beside: Path, made: Path, material: Material) -> dict[str, Any]:
    """Write one file into the folder, and return what the card says of it there."""
    source = beside / item.file
    if not source.is_file():
        raise InvalidInput(f"{source}: no such file; the card names it below its own folder")
    if item.sha256 and file_digest(source) != item.sha256:
        raise InvalidInput(f"{source}: sha256 is {file_digest(source)}, the card has {item.sha256!r}")
    target = made / kind / source.name.removesuffix(".gz")
    target.parent.mkdir(exist_ok=True)
    changed: dict[str, Any] = {}
    if kind == "selections" and not item.model:
        # Without the annotation nothing is known of the questions; the registry checks them when it measures.
        is_annotated = item.benchmark in material.annotations
        questions, fps, _ = material.ground(item.benchmark) if is_annotated else (None, None, None)
        loaded = load_selections(source, format=item.format, questions=questions, fps=fps)
        most = max(chosen.n_keyframes for chosen in loaded.values())
        if most > item.k:
            raise InvalidInput(f"{source}: a question has {most} frames, the card says K = {item.k}")
        target = target.with_suffix(".parquet")
        _refuse_second(target)
        write_parquet(loaded, target)
        changed["format"] = "auto"
    else:  # with answers: kept as it is
        target = target.with_name(source.name)
        _refuse_second(target)
        shutil.copyfile(source, target)
    changed |= {"file": target.relative_to(made).as_posix(), "sha256": file_digest(target)}
    return {**item.model_dump(mode="json", exclude_defaults=True), **changed}


def _refuse_second(target: Path) -> None:
    if target.exists():
        raise InvalidInput(f"{target.name}: two files of the card would have this name; rename one")


def _refuse_taken(card: Card, taken: Mapping[str, Card]) -> None:
    """Refuse a name that the registry has, unless this is a newer version of the same method."""
    other = taken.get(card.name)
    titles = {item.title: name for name, item in taken.items() if name != card.name}
    if card.title in titles:
        raise InvalidInput(f"{card.title!r}: the registry has this title, of {titles[card.title]}; choose another one")
    if other is None:
        return
    mine, theirs = (item.made().version if item.sampler else item.version for item in (card, other))
    if card.authors != other.authors or mine <= theirs:
        raise InvalidInput(
            f"{card.name}: taken in the registry, by {other.authors} with version {theirs}; choose another name, or "
            "raise `version` if this is your newer one"
        )
