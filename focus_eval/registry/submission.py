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

from focus_eval.bench.benchmarks.registry import frame_rates
from focus_eval.bench.matrix.config import check, load_yaml
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import parse_named
from focus_eval.external.imports.loading import load_selections
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_name
from focus_eval.registry.cards import CARD_FILE, Card, PublishedFile, file_digest, read_card
from focus_eval.registry.replayed import Material


@contextmanager
def submission(
    card_file: Path, sampler: str, out: Path, material: Material, registered_cards: Mapping[str, Card]
) -> Iterator[Card]:
    """Make the folder of a submission; it appears below `out` only if the block ends without an error.

    Selections are checked against the benchmark's questions, if its annotation is given. The card gets the SHA-256 of
    all files.

    Args:
        card_file: the author's card; files that it names lie in its folder.
        sampler: `FILE.py:Class` or a registered name, with options; "" for that of the card, if any.
        registered_cards: the cards of the registry.

    Yields:
        The card in the unfinished folder.

    Raises:
        InvalidInput: a card or a file that does not fit, an existing folder, or a name that is taken.
    """
    card = check(Card, _with_sampler(load_yaml(card_file), sampler), card_file)
    code = _sampler_text(card, card_file.parent, sampler)
    name = _folder_name(sampler_name(code) if code else card.title)
    if (out / name).exists():
        raise InvalidInput(f"{out / name}: is there already; name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{name}.", dir=out) as unfinished:
        folder = Path(unfinished) / name
        folder.mkdir()
        document = card.model_dump(mode="json", exclude_defaults=True)
        if code:
            document["sampler"] = _copy_code(code, folder)
        for key in ("selections", "answers"):
            if items := getattr(card, key):
                document[key] = [_stored_file(item, key, card_file.parent, folder, material) for item in items]
        (folder / CARD_FILE).write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        finished = read_card(folder / CARD_FILE)
        _refuse_taken(finished, registered_cards)
        yield finished
        folder.rename(out / name)


def _with_sampler(document: dict[str, Any], sampler: str) -> dict[str, Any]:
    """Return the card with the sampler, and options, that the caller named; unchanged if it named none."""
    if not sampler:
        return document
    name, options = parse_named(sampler)
    return {**document, "sampler": name, "options": {**document.get("options", {}), **options}}


def _sampler_text(card: Card, card_folder: Path, sampler: str) -> str:
    """Return the sampler's name for `make_sampler`; a file that the card names is looked up in the card's folder."""
    is_beside = ".py:" in card.sampler and not sampler
    return str(card_folder / card.sampler) if is_beside else card.sampler


def _folder_name(text: str) -> str:
    """Return `text` as a folder's name: lower-case letters, digits and "_", at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].rstrip("_")


def _copy_code(code: str, folder: Path) -> str:
    """Copy a sampler's file into the folder; return the sampler's name in the new card."""
    file, separator, kind = code.rpartition(".py:")
    if not separator:
        make_sampler(code)
        return code
    source = Path(f"{file}.py")
    if not source.is_file():
        raise InvalidInput(f"{source}: no such file; a sampler is FILE.py:Class")
    shutil.copyfile(source, folder / "sampler.py")
    return f"sampler.py:{kind}"


def _stored_file(item: PublishedFile, kind: str, card_folder: Path, folder: Path, material: Material) -> dict[str, Any]:
    """Write one file into the folder; return its entry in the new card."""
    source = card_folder / item.file
    if source.is_symlink() or not source.is_file():
        raise InvalidInput(f"{source}: no such file; the card names plain files below its own folder")
    if item.sha256 and file_digest(source) != item.sha256:
        raise InvalidInput(f"{source}: sha256 is {file_digest(source)}, the card has {item.sha256!r}")
    target = folder / kind / source.name
    if target.exists():
        raise InvalidInput(f"{target.name}: two files of the card would have this name; rename one")
    if kind == "selections" and item.benchmark in material.annotations:
        questions, rate_of, _ = material.ground(item.benchmark)
        loaded = load_selections(source, format=item.format, questions=questions, fps=frame_rates(rate_of))
        most_keyframes = max(len(entry.shown) for entry in loaded.values())
        if most_keyframes > item.k:
            raise InvalidInput(f"{source}: a question has {most_keyframes} frames, the card says K = {item.k}")
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    changed = {"file": target.relative_to(folder).as_posix(), "sha256": file_digest(target)}
    return {**item.model_dump(mode="json", exclude_defaults=True), **changed}


def _refuse_taken(card: Card, registered_cards: Mapping[str, Card]) -> None:
    """Raise InvalidInput for a name in the registry, unless this is a newer version of the same method."""
    registered = registered_cards.get(card.name)
    titles = {item.title: name for name, item in registered_cards.items() if name != card.name}
    if card.title in titles:
        raise InvalidInput(f"{card.title!r}: the registry has this title, of {titles[card.title]}; choose another one")
    if registered is None:
        return
    new_version, old_version = _version_of(card), _version_of(registered)
    if card.authors != registered.authors or new_version <= old_version:
        raise InvalidInput(
            f"{card.name}: taken in the registry, by {registered.authors} with version {old_version}; choose another "
            "name, or raise `version` if this is your newer one"
        )


def _version_of(card: Card) -> int:
    """Return the version of a card's sampler; of a card without code, its own."""
    return card.make_sampler().version if card.sampler else card.version
