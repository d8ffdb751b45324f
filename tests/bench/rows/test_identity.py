"""Whatever can change a selection or an answer changes its identity; what cannot, does not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec
from focus_eval.bench.matrix.config import BenchmarkConfig, EncoderConfig, ModelConfig, load_matrix
from focus_eval.core import resources
from focus_eval.keyframes.encoders.registry import ENCODERS, encoder_revision, make_encoder
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.rows import identity
from focus_eval.keyframes.rows.identity import answer_identity, identity_hash, selection_identity, task_digest
from focus_eval.keyframes.samplers.registry import make_sampler
from tests.bench.matrix.conftest import write_simulation
from tests.support.bench.matrix_rows import run_matrix

SAMPLER_FILE = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from focus_eval import Choice, FrameSampler

@dataclass(frozen=True, kw_only=True)
class Fixed(FrameSampler):
    name: ClassVar[str] = "fixed_{start}"
    source: ClassVar[str] = "a test"

    def choose(self, request):
        return Choice(keyframes=np.arange({start}, {start} + request.n_wanted))
"""


def spec(sampler="topk", *, encoder=None, k=8, seed=0, **changes):
    instance = make_sampler(sampler, **changes)
    benchmark = BenchmarkConfig(name="lvb", benchmark="longvideobench", task="focus_longvideobench")
    return SelectionSpec(benchmark=benchmark, sampler=instance, encoder=encoder, k=k, seed=seed, coarse_seed="question")


def recorded(path):
    return EncoderConfig(name="trace", encoder="recorded", options={"path": str(path)})


@pytest.fixture
def trace(tmp_path):
    np.save(tmp_path / "trace.npy", np.linspace(0, 1, 50))
    return tmp_path / "trace.npy"


def test_a_recorded_file_that_is_rewritten_is_another_selection(trace):
    name_before = spec(encoder=recorded(trace)).name
    np.save(trace, np.linspace(1, 0, 50))
    assert spec(encoder=recorded(trace)).name != name_before


def test_a_run_over_a_rewritten_trace_chooses_again(tmp_path):
    matrix = write_simulation(tmp_path / "simulation", samplers=("topk",))
    trace = tmp_path / "simulation" / "trace.npy"
    first = run_matrix(load_matrix(matrix), out=tmp_path / "run")
    np.save(trace, 1 - np.load(trace))
    second_run = run_matrix(load_matrix(matrix), out=tmp_path / "run")
    elsewhere = run_matrix(load_matrix(matrix), out=tmp_path / "other" / "run")
    for frame in (second_run, elsewhere):
        assert set(frame["encoder_revision"]) == {make_encoder("recorded", path=str(trace)).revision}
        assert (frame["keyframes"].map(tuple) != first["keyframes"].map(tuple)).all()


def test_a_plugin_of_another_revision_is_another_selection(monkeypatch, tmp_path, install_plugins):
    def plugin(revision):
        (tmp_path / f"toy_{revision}.py").write_text(
            "from focus_eval.keyframes.encoders.base import Encoder\n"
            "class Toy(Encoder):\n    name = 'toy'\n    stores_embeddings = False\n"
            f"    def __init__(self, *, scale: float = 1.0):\n        self.revision = f'{revision} scale={{scale:g}}'\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        install_plugins(ENCODERS, toy=f"toy_{revision}:Toy")
        return spec(encoder=EncoderConfig(name="toy", encoder="toy", options={"scale": 2.0})).identity

    first, second = plugin("one"), plugin("two")
    assert first["encoder_revision"] == "one scale=2"
    assert identity_hash(first) != identity_hash(second)


@pytest.mark.parametrize("encoder", ["clip", "blip"])
def test_a_revision_is_known_before_weights_load_and_changes_with_them(encoder, tmp_path):
    pytest.importorskip("transformers")
    from tests.support.keyframes.random_weights import write_tiny_blip, write_tiny_clip

    folder = {"clip": write_tiny_clip, "blip": write_tiny_blip}[encoder](tmp_path / "tiny")
    options = {"checkpoint": str(folder), "precision": "fp32"}
    instance = make_encoder(encoder, **options, device="cpu")
    assert encoder_revision(encoder, options) == instance.revision
    assert encoder_revision(encoder, {**options, "precision": "bf16"}) != instance.revision
    assert encoder_revision(encoder, {**options, "device": "cpu", "batch_size": 4}) == instance.revision
    rules = folder / "preprocessor_config.json"
    rules.write_text(json.dumps({**json.loads(rules.read_text()), "image_mean": [0.1, 0.2, 0.3]}))
    assert encoder_revision(encoder, options) != instance.revision


def test_what_could_not_be_made_has_an_identity_that_no_run_starts_from(tmp_path):
    assert encoder_revision("recorded", {"path": str(tmp_path / "none.npy")}).startswith("not here")
    assert encoder_revision("clip", {"checkpoint": "nobody/has-this"}).split(" ")[1:3] == ["not", "here"]


def test_every_argument_of_a_selection_changes_it(trace):
    parts = {"k": 8, "seed": 0, "coarse_seed": "question", "encoder": "recorded", "encoder_revision": "a"}
    plain = selection_identity(make_sampler("focus"), **parts)
    changes = [{"k": 4}, {"seed": 1}, {"coarse_seed": "video"}, {"encoder": "blip"}, {"encoder_revision": "b"}]
    changes += [{"query": "question_and_options"}, {"inexact_backend": "torchcodec"}]
    identities = [selection_identity(make_sampler("focus"), **{**parts, **change}) for change in changes]
    identities += [selection_identity(make_sampler("focus", alpha=0.1), **parts)]
    identities += [selection_identity(make_sampler("topk"), **parts)]
    assert len({identity_hash(identity) for identity in [plain, *identities]}) == len(identities) + 1


def test_an_edited_sampler_file_is_another_selection(tmp_path):
    ids = set()
    for start in (0, 5):
        path = tmp_path / str(start) / "fixed.py"
        path.parent.mkdir()
        path.write_text(SAMPLER_FILE.replace("fixed_{start}", "fixed").replace("{start}", str(start)))
        ids.add(identity_hash(spec(f"{path}:Fixed").identity))
    assert len(ids) == 2


def test_one_question_and_a_matrix_say_the_same_of_a_selection(trace):
    selection = spec(encoder=recorded(trace))
    selector = Selector(sampler=selection.sampler, encoder=make_encoder("recorded", path=str(trace)), k=8)
    matrix_adds = {"benchmark", "questions"}
    assert {name: value for name, value in selection.identity.items() if name not in matrix_adds} == selector.identity


def answer(**changes):
    parts = {"model": "focus_gpt4o", "arguments": {"model_version": "a"}, "weights": "w", "selection": "s"}
    parts |= {"task": "focus_mlvu", "frames": 8, "frame_policy": "exact", "answer_parsing": "strict"}
    return identity_hash(answer_identity(**{**parts, **changes}))


def test_every_argument_of_an_answer_changes_it_but_those_without_effect():
    changes = [{"model": "focus_vllm"}, {"arguments": {"model_version": "b"}}, {"weights": "v"}, {"selection": "t"}]
    changes += [{"task": "focus_videomme"}, {"frames": 4}, {"frame_policy": "aks"}, {"answer_parsing": "lmms_eval"}]
    changes += [{"split": "test"}]
    assert len({answer(), *(answer(**change) for change in changes)}) == len(changes) + 1
    assert answer(arguments={"model_version": "a", "timeout": 9, "device": "cuda:1"}) == answer()


@pytest.mark.parametrize("edited", ["focus_photo_events.yaml", "focus_longvideobench.yaml"])
def test_an_edited_prompt_is_another_answer(edited, monkeypatch, tmp_path):
    tasks = resources.resource_path("tasks")
    for file in tasks.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.setattr("focus_eval.keyframes.rows.identity.resource_path", lambda name: tmp_path)
    digests_before = task_digest("focus_photo_events"), answer(task="focus_photo_events")
    (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n# Answer with the letter only, please.\n")
    assert task_digest("focus_photo_events") != digests_before[0]
    assert answer(task="focus_photo_events") != digests_before[1]
    assert task_digest("videomme") == ""  # lmms-eval's version stands for its own


def test_another_answering_encoder_is_another_answer():
    def cell(args):
        model = ModelConfig(name="zero", model="focus_zero_shot", args=args, frames=4)
        return AnswerSpec(selection=spec("uniform"), model=model, frame_policy="exact", answer_parsing="strict").id

    assert cell({"answer_encoder": "offline"}) != cell({"answer_encoder": "recorded"})


def test_installed_packages_are_looked_at_once_however_many_questions_ask(monkeypatch):
    # A look costs about 10 ms, and the cell of a question is named eight times.
    packages = []
    monkeypatch.setattr(identity, "version", lambda package: packages.append(package) or "1.0")
    identity.installed_version.cache_clear()
    try:
        assert identity.versions() == identity.versions()
    finally:
        identity.installed_version.cache_clear()
    assert packages == list(identity.PACKAGES)
