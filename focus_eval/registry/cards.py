"""Reads the registry's cards: a sampler's authors, its needs, and the published files.

card = read_registry()["focus"]
selection = card.make_sampler().select(video, k=8, pull=relevance_of_frames, rng=rng)
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from focus_eval.bench.benchmarks.registry import make_benchmark
from focus_eval.bench.matrix.config import check, load_yaml
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.resources import open_unpacked, resource_path
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_class

# The sources of figures; every figure of the registry states one of these.
DERIVED = "derived from rows here"
REPLAYED = "replayed from published frames"
COMPUTED = "computed from published answers"
CARD_FILE = "card.yaml"
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,39}")


class _CardPart(BaseModel):
    """A part of a card that refuses unknown fields and changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PublishedFile(_CardPart):
    """A published file: the frames chosen for a benchmark's questions, a model's answers, or both.

    Args:
        name: name of its rows; by default the card's title. Unique with benchmark and K.
        format: format for `load_selections`, with its options; "lmms" for a log of answers alone.
        file: in the sampler's own folder, or in the reader's folder or below it; it may be gzipped.
        sha256: of the file, not gzipped; "" if not known: the file then gives no figures.
        model: the model that answered; "" if the file holds frames alone.
        settings: of the method, where files of one name were made in different ways; tables say it.
        source, path, commit: repository, path in it and commit; "" if not recorded.
        variant: True for a further setting of a listed method: measured and recorded, but left out of the page.
    """

    name: str = ""
    benchmark: str
    k: int = Field(ge=1)
    format: str = "auto"
    file: str = Field(min_length=1)
    sha256: str = ""
    model: str = ""
    source: str = ""
    path: str = ""
    commit: str = ""
    settings: str = ""
    variant: bool = False

    @model_validator(mode="after")
    def _fits(self) -> PublishedFile:
        """Refuse an unknown benchmark, or a path that leaves the folder."""
        make_benchmark(self.benchmark)
        if self.file.startswith("/") or ".." in self.file.split("/"):
            raise ValueError(f"file {self.file!r}: a path below the sampler's own folder, or below --files")
        return self


class Card(_CardPart):
    """The card of one sampler in the registry.

    Args:
        title: name in tables.
        paper: its key in `registry/references.yaml`, or an address; "" if there is none.
        licence: of its code, or of its files if it has no code here.
        sampler: a registered name, or `FILE.py:Class` in the card's folder; "" if only files are known.
        options: of the published setting, if they are not the defaults.
        needs: requirements that the sampler's class cannot declare: a language model, a GPU, features of another
            network.
        version: of the published files; a sampler's class states its own.
        folder: the card's folder.
    """

    title: str = Field(pattern=r"^[^\x00-\x1f$<>]{1,60}$")  # it is drawn in figures, where $ begins a formula
    authors: str = Field(min_length=1)
    paper: str = ""
    licence: str = Field(min_length=1)
    sampler: str = ""
    options: dict[str, Any] = {}
    needs: tuple[str, ...] = Field(default=(), strict=False)
    version: int = Field(default=1, ge=1)
    selections: tuple[PublishedFile, ...] = Field(default=(), strict=False)
    answers: tuple[PublishedFile, ...] = Field(default=(), strict=False)
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="after")
    def _has_figures(self) -> Card:
        """Refuse a card without anything to measure, two selections of one name, or answers without a model."""
        if not (self.sampler or self.selections or self.answers):
            raise ValueError("names neither a sampler nor a file of selections or answers")
        rows = [(self.label(item), item.benchmark, item.k) for item in self.selections]
        if len(set(rows)) < len(rows):
            raise ValueError("two selections have one name, benchmark and K; give the second a `name`")
        nameless = next((item.file for item in self.answers if not item.model), None)
        if nameless is not None:
            raise ValueError(f"{nameless}: answers need `model`, whose they are")
        return self

    @property
    def name(self) -> str:
        """Name of the card's folder, which identifies the sampler in the registry."""
        return self.folder.name

    @property
    def sampler_text(self) -> str:
        """The sampler's name for `make_sampler`: a file with the card's folder before it, or a registered name."""
        return str(self.folder / self.sampler) if ".py:" in self.sampler else self.sampler

    def label(self, item: PublishedFile) -> str:
        """Return the row name of `item`, one of the card's files."""
        return item.name or self.title

    def make_sampler(self) -> FrameSampler:
        """Return the sampler at the published setting. Raises as `make_sampler`."""
        return make_sampler(self.sampler_text, **self.options)

    @property
    def needs_text(self) -> str:
        """Needs as text, e.g. "embeddings, encoder": those that the sampler's class declares, then the card's."""
        kind = sampler_class(self.sampler_text) if self.sampler else None
        declared = [
            name.removeprefix("needs_") for name in dir(kind) if name.startswith("needs_") and getattr(kind, name)
        ]
        return ", ".join([*declared, *self.needs]) or ("nothing" if kind is not None else "not stated")

    @property
    def role(self) -> str:
        """Role of the sampler ("sampler", "control", ..) as its class declares it.

        "sampler" for a card with files alone.
        """
        return sampler_class(self.sampler_text).role if self.sampler else "sampler"


def read_card(path: Path) -> Card:
    """Return the card in the file `path`.

    Raises:
        InvalidInput: a file that cannot be read, keys that are missing, unknown or of another kind, as `file:line`; a
            folder whose name is not a sampler's.
    """
    card = check(Card, load_yaml(path), path).model_copy(update={"folder": path.parent})
    if not _NAME.fullmatch(path.resolve().parent.name):
        raise InvalidInput(f"{path.parent}: a folder's name is lower-case letters, digits and _, at most 40")
    return card


def read_registry(folder: Path | None = None) -> dict[str, Card]:
    """Return all cards by their folder's name, ascending; those of the package by default.

    Raises:
        InvalidInput: as `read_card`; a sampler or a published row that two folders claim.
    """
    place = folder or resource_path("registry")
    files = sorted((place / "samplers").glob(f"*/{CARD_FILE}"))
    if not files:
        raise InvalidInput(f"{place}: no registry here, no samplers/NAME/{CARD_FILE}")
    cards = {file.parent.name: read_card(file) for file in files}
    owners: dict[tuple[object, ...], str] = {}
    for name, card in cards.items():
        names: list[tuple[object, ...]] = [("the title", card.title)]
        if card.sampler and ".py" not in card.sampler:
            names.append(("the sampler", card.sampler, str(card.options)))
        names += [("the rows of", card.label(item), item.benchmark, item.k) for item in card.selections]
        for subject in names:
            if (owner := owners.setdefault(subject, name)) != name:
                place = card.folder / CARD_FILE
                raise InvalidInput(f"{place}: {subject[0]} {subject[1]!r} is taken by {owner}; change one of them")
    return cards


def card_named(cards: dict[str, Card], name: str) -> Card:
    """Return the card called `name`.

    Raises:
        UnknownName: with the nearest name.
    """
    if name not in cards:
        raise unknown_name("sampler of the registry", name, cards)
    return cards[name]


def find_file(item: PublishedFile, *folders: Path) -> Path | None:
    """Return the path of `item` in one of `folders` or below it, gzipped or not; None if it is not there."""
    names = (item.file, f"{item.file}.gz")
    for folder in folders:
        nested = (path for name in names for path in sorted(folder.rglob(name)))
        for path in (*(folder / name for name in names), *nested):
            if path.is_file():
                return path
    return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, not gzipped."""
    with open_unpacked(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def check_file(item: PublishedFile, path: Path) -> None:
    """Raise InvalidInput if the SHA-256 of the file at `path` is not the one on its card, or the card has none."""
    digest = file_digest(path)
    if digest != item.sha256:
        raise InvalidInput(f"{path}: sha256 is {digest}, the card (K = {item.k}) has {item.sha256!r}")
