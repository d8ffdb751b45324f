"""Samplers that get at more than their request: it changes nothing, is counted, or fails the check."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest

from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput, SamplerError
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.ledger import Ledger
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab import subprocess_sampler
from focus_eval.lab.contract import Case, check_sampler, fingerprint, select
from focus_eval.lab.simulation import SimulationConfig, run_simulation, with_fresh_seed
from focus_eval.lab.subprocess_sampler import make_apart, make_in_subprocess

pytestmark = pytest.mark.slow

FILE = Path(__file__).with_name("cheats.py")
# Drawn once: with other videos a sampler that sees much of a video may find everything in all of twelve questions.
SEED = 3
CONFIG = SimulationConfig(videos=6, minutes=(1, 4), worlds=["calibrated"], k=[4, 8], samplers=["uniform"])
# The promises that the check sees broken, and the honest sampler whose frames the trick does not improve on.
CHEATS = {
    "ReadsFrames": ({"process"}, "even"),
    "ReadsObjects": ({"process"}, "even"),
    "RemembersTheSeed": (set(), ""),
    "PullsByTheClosure": ({"ledger"}, "best"),
    "RemembersPulls": ({"determinism"}, "best"),
    "RemembersOnDisk": ({"determinism"}, ""),
    "PullsByThePipe": ({"runs"}, ""),
    "PatchesTheLedger": ({"ledger", "determinism"}, ""),
    "Tiny": (set(), ""),
}


def of(kind):
    return f"{FILE}:{kind}"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Selections of every cheat in a simulation, by sampler."""
    folder = tmp_path_factory.mktemp("cheats") / "out"
    config = CONFIG.model_copy(update={"samplers": [of(kind) for kind in (*CHEATS, "Even", "Best")], "seed": SEED})
    run_simulation(config, folder, n_workers=1)
    run = load_run(folder)
    frame, keyframes = run.selection_frame, {(*row.key, row.k): row.keyframes for row in run.selections}
    assert len(frame) == 12 * (len(CHEATS) + 2)
    keys = zip(frame["benchmark"], frame["question_id"], frame["selection_id"], frame["k"], strict=True)
    return dict([*frame.assign(keyframes=[keyframes[key] for key in keys]).groupby("sampler")])


def name_of(kind):
    return make_apart(of(kind)).name


def test_every_cheat_is_tried():
    kinds = {node.name for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.ClassDef)}
    assert kinds == {*CHEATS, "Even", "Best"}


@pytest.mark.parametrize(("kind", "honest"), [(kind, honest) for kind, (_, honest) in CHEATS.items() if honest])
def test_a_cheat_chooses_what_it_would_without_its_trick_or_fails(rows, kind, honest):
    cheat_rows, honest_rows = rows[name_of(kind)], rows[honest]
    assert cheat_rows["error"].isna().all()
    assert cheat_rows["keyframes"].tolist() == honest_rows["keyframes"].tolist()
    assert cheat_rows["n_pulls"].tolist() == honest_rows["n_pulls"].tolist()


@pytest.mark.parametrize("kind", ["PullsByThePipe", "PatchesTheLedger"])
def test_what_is_pulled_beside_a_ledger_of_its_own_is_counted_here(rows, kind):
    honest, cheat_rows = rows["best"], rows[name_of(kind)]
    assert (cheat_rows["n_pulls"] > 5 * honest["n_pulls"].to_numpy()).all()
    assert cheat_rows["recall@2"].mean() < 1


def test_the_seed_of_the_public_code_is_worth_nothing_on_videos_of_another(rows, tmp_path):
    config = SimulationConfig(**{**CONFIG.model_dump(), "samplers": [of("RemembersTheSeed")], "seed": 0})
    run_simulation(with_fresh_seed(config, tmp_path), tmp_path, n_workers=1)
    assert load_run(tmp_path).selection_frame["recall@2"].mean() == 1
    assert rows["remembers_the_seed"]["recall@2"].mean() < rows["even"]["recall@2"].mean() + 0.2


def test_many_small_frames_find_no_more_than_few_large_ones(rows):
    assert rows["tiny"]["recall@2 any size"].mean() > 0.9
    assert rows["tiny"]["recall@2"].mean() < rows["even"]["recall@2"].mean() + 0.2


@pytest.mark.parametrize(("kind", "broken"), [(kind, broken) for kind, (broken, _) in CHEATS.items()])
def test_the_check_says_what_it_can_see(kind, broken):
    assert {item.promise for item in check_sampler(of(kind)).broken} == broken


def test_another_process_chooses_what_this_one_does():
    for kind in ("Even", "Best"):
        in_subprocess, in_process = make_in_subprocess(of(kind)), make_sampler(of(kind))
        assert (type(in_subprocess).__name__, in_subprocess.options) == (kind, in_process.options)
        for case in (Case(1, 1), Case(40, 8), Case(7201, 64, 29.97)):
            assert fingerprint(select(in_subprocess, case)) == fingerprint(select(in_process, case))


EVERY_PULL = """
from dataclasses import dataclass
import numpy as np
from focus_eval.keyframes.samplers.base import Choice
from focus_eval.keyframes.samplers.scanning import ScanningSampler

PULLS = {
    "relevance": {}, "logits": {}, "embeddings": {}, "relevance_and_embeddings": {}, "relevance_and_logits": {},
    "scan": {}, "look": {"size": 8},
}

@dataclass(frozen=True, kw_only=True)
class Everything(ScanningSampler):
    name, source, needs_logits, needs_embeddings, needs_texts = "everything", "test", True, True, True

    def choose(self, request):
        answers = {"other text": request.ledger.relevance(np.arange(4), "another text")}
        for at, (method, keywords) in enumerate(PULLS.items()):
            answers[method] = getattr(request.ledger, method)(np.arange(4 * at, 4 * at + 4), **keywords)
        facts = {}
        for name, answer in answers.items():
            parts = answer if isinstance(answer, (tuple, list)) else [answer]
            facts[name] = [np.asarray(part).tolist() for part in parts]
        own = [request.ledger.n_pulls, request.ledger.frames.tolist(), request.ledger.scanned_frames.tolist()]
        return Choice(keyframes=np.arange(request.n_wanted), facts={**facts, "own": own})
"""


def test_every_way_to_pull_gives_the_same_in_a_process_of_its_own(tmp_path):
    file = tmp_path / "every.py"
    file.write_text(EVERY_PULL)
    takes_frames = {name for name, method in vars(Ledger).items()
                    if callable(method) and "frames" in getattr(method, "__annotations__", {})
                    and not name.startswith("_")}  # fmt: skip
    values = {}
    exec(EVERY_PULL, values)
    # These read what was pulled.
    assert set(values["PULLS"]) == takes_frames - {"is_pulled", "known_embeddings"}
    spec = f"{file}:Everything"
    samplers = make_sampler(spec, scan_encoder="x"), make_in_subprocess(spec, {"scan_encoder": "x"})
    here, there = (select(sampler, Case(40, 8)) for sampler in samplers)
    assert fingerprint(here) == fingerprint(there)
    assert dict(here.facts) == dict(there.facts)


def test_a_sampler_that_kills_its_process_fails_its_question_alone(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        FILE.read_text().replace(
            "        evidence_times = self.evidence(request)\n", "        __import__('os')._exit(0)\n"
        )
    )
    with pytest.raises(SamplerError, match="the process of the sampler ended before it answered"):
        select(make_apart(f"{file}:Even"), Case(40, 8))
    assert len(select(make_apart(f"{file}:Best"), Case(40, 8)).keyframes) == 8


def test_an_error_of_the_encoder_is_the_same_error_behind_the_pipe():
    def fails(frames):
        raise InvalidInput("clip.mp4: damaged")

    with pytest.raises(InvalidInput, match=r"^clip\.mp4: damaged$") as raised:
        make_apart(of("Best")).select(VideoInfo(100, 25.0), k=4, pull=fails, rng=np.random.default_rng(0))
    assert any(place.name == "fails" for place in raised.traceback)


def test_a_seed_is_drawn_for_each_state_of_the_file_and_kept_with_it(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE.read_text())
    config = CONFIG.model_copy(update={"samplers": [f"{file}:Even"], "videos": 5, "k": [4]})
    drawn = with_fresh_seed(config, tmp_path / "out")
    assert drawn.seed > 0
    assert with_fresh_seed(config, tmp_path / "other").seed != drawn.seed
    run_simulation(drawn, tmp_path / "out", n_workers=1)
    assert with_fresh_seed(config, tmp_path / "out").seed == drawn.seed
    seeded_config = SimulationConfig(**{**config.model_dump(), "seed": 7})
    assert with_fresh_seed(seeded_config, tmp_path / "out").seed == 7
    document = json.loads((tmp_path / "out" / "run.json").read_text())
    assert document["simulation"]["seed"] == drawn.seed
    file.write_text(FILE.read_text() + "\n")
    subprocess_sampler.end_processes()
    with pytest.raises(InvalidInput, match="its seed was drawn before the sampler's file was changed"):
        with_fresh_seed(config, tmp_path / "out")


def test_samplers_that_are_installed_keep_the_seed_of_the_file(tmp_path):
    assert with_fresh_seed(CONFIG, tmp_path).seed == 0


def test_the_time_of_choosing_is_the_processor_time_of_the_sampler_s_own_process(tmp_path):
    file = tmp_path / "mine.py"
    line = "        evidence_times = self.evidence(request)\n"
    slow = "        end = time.process_time() + 0.05\n        while time.process_time() < end:\n            pass\n"
    file.write_text(FILE.read_text().replace("import sys\n", "import sys\nimport time\n").replace(line, slow + line))
    config = CONFIG.model_copy(update={"samplers": [f"{file}:Even"], "videos": 5, "k": [4], "seed": 3})
    run_simulation(config, tmp_path / "out", n_workers=1)
    assert all(row.seconds["select"] > 0.05 for row in load_run(tmp_path / "out").selections)


def test_a_process_that_does_not_end_in_time_is_killed(monkeypatch):
    select(make_apart(of("Even")), Case(7, 3))
    processes = [process for _, process in subprocess_sampler._processes.values() if process]
    monkeypatch.setattr(subprocess_sampler, "_SECONDS_TO_END", 0)
    subprocess_sampler.end_processes()
    assert processes
    assert all(process.returncode is not None for process in processes)
