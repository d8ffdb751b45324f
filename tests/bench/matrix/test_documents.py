"""The questions of a matrix are the documents its task reads, wherever the hub's tools have left them."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from focus_eval.bench.matrix.config import BenchmarkConfig, load_matrix
from focus_eval.bench.matrix.questions import MissingDocuments, find_documents, load_questions, task_source
from focus_eval.core.errors import InvalidInput

from .conftest import lvb_question

REPOSITORY = "longvideobench/LongVideoBench"
COMMIT = "0" * 40


def documents(n=4):
    """Documents in the schema of the hub's data set."""
    rows = []
    for number in range(n):
        row = lvb_question(number, f"v{number // 2}", 60, answer=number % 2)
        first, second = row.pop("candidates")
        rows.append({**row, "option0": first, "option1": second, "option2": "N/A", "option3": "N/A", "option4": "N/A"})
    return rows


def benchmark(**changes):
    return BenchmarkConfig(name="lvb", benchmark="longvideobench", task="focus_longvideobench", **changes)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and nothing in the cache of the datasets library."""
    import huggingface_hub.constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("LMMS_EVAL_DATASETS_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return cache


def snapshot(hub, repository=REPOSITORY):
    folder = hub / f"datasets--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
    return folder / "snapshots" / COMMIT


def shards(folder, rows, n=2, split="validation"):
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // n)
    for at in range(n):
        part = rows[at * size : (at + 1) * size]
        pd.DataFrame(part).to_parquet(folder / f"{split}-{at:05d}-of-{n:05d}.parquet")


def ids(config):
    return [question.id for question in load_questions(config).questions]


def test_the_hubs_snapshot_is_read_in_the_order_of_its_shards(hub):
    shards(snapshot(hub), documents())
    shards(snapshot(hub), documents(2), n=1, split="test")
    assert ids(benchmark()) == ["q0", "q1", "q2", "q3"]


def test_the_card_of_a_data_set_says_which_files_a_subset_has(hub):
    folder = snapshot(hub, "nyu-visionx/VSI-Bench")
    row = {
        "id": 7, "dataset": "arkitscenes", "scene_name": "s", "question": "How many chairs?",
        "question_type": "object_counting", "options": None, "ground_truth": "4",
    }  # fmt: skip
    pd.DataFrame([row]).to_parquet(folder / "test-00000-of-00001.parquet")
    pd.DataFrame([{**row, "id": 8}]).to_parquet(folder / "test_pruned.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: pruned\n  data_files:\n  - {split: test, path: test_pruned.parquet}\n"
        "- config_name: full\n  data_files:\n  - {split: test, path: test-*.parquet}\n---\n# VSI-Bench\n"
    )
    config = BenchmarkConfig(name="vsi", benchmark="vsibench", task="focus_vsibench")
    assert ids(config) == ["7"]


def test_what_the_datasets_library_has_prepared_is_read_too(hub, tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "datasets" / "longvideobench___LongVideoBench" / "default" / "0.0.0" / "hash"
    dataset = datasets.Dataset.from_list(documents())
    dataset.save_to_disk(tmp_path / "saved")
    folder.mkdir(parents=True)
    (tmp_path / "saved" / "data-00000-of-00001.arrow").rename(folder / "long_video_bench-validation.arrow")
    (folder / "dataset_info.json").write_text("{}")
    assert find_documents(benchmark()).format == "arrow"
    assert ids(benchmark()) == ["q0", "q1", "q2", "q3"]


@pytest.mark.parametrize("name", ["validation.json", "validation.jsonl"])
def test_a_local_folder_of_json_is_read(hub, tmp_path, name):
    rows = documents()
    text = json.dumps(rows) if name.endswith(".json") else "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text(text)
    assert len(ids(benchmark(dataset=str(tmp_path / "mine")))) == 4


def test_documents_that_are_not_there_are_named_with_the_command_that_fetches_them(hub):
    with pytest.raises(MissingDocuments) as error:
        load_questions(benchmark(gated=True))
    assert error.value.problem == f"documents of lvb ({REPOSITORY}, split validation) are not on this machine"
    assert error.value.fix.startswith(f'hf download {REPOSITORY} --repo-type dataset --include "*.parquet"')
    assert "gated" in error.value.fix
    assert "hf auth login" in error.value.fix


def test_a_missing_shard_of_documents_is_not_taken_for_the_whole(hub):
    shards(snapshot(hub), documents())
    (snapshot(hub) / "validation-00001-of-00002.parquet").unlink()
    with pytest.raises(MissingDocuments, match="are not complete in the hub's cache"):
        load_questions(benchmark())


def test_a_folder_without_the_split_is_refused(hub, tmp_path):
    shards(tmp_path / "mine", documents(), split="train")
    with pytest.raises(InvalidInput, match="no documents of split 'validation'"):
        load_questions(benchmark(dataset=str(tmp_path / "mine")))


def test_a_corrupt_parquet_is_named(hub):
    shards(snapshot(hub), documents())
    broken = snapshot(hub) / "validation-00000-of-00002.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(InvalidInput, match=r"validation-00000-of-00002.parquet: cannot be read as annotations"):
        load_questions(benchmark())


def test_the_source_of_a_shipped_benchmark_is_the_data_set_its_task_reads():
    matrix = load_matrix("main_results")
    more_benchmarks = load_matrix("more_benchmarks")
    for config in (*matrix.benchmarks, *more_benchmarks.benchmarks):
        source = task_source(config.task)
        assert config.source == source.repository
        assert not config.annotations, "a second file nobody documents how to find"
        assert source.video_folder in config.videos


def test_a_task_of_lmms_eval_is_found_without_loading_it():
    assert task_source("longvideobench_val_v").split == "validation"
    with pytest.raises(InvalidInput, match="task 'no_such_task' is known neither"):
        task_source("no_such_task")


def test_the_task_asks_the_very_documents_the_questions_are_from(hub, monkeypatch):
    from focus_eval.bench.matrix.questions import TaskRequests

    shards(snapshot(hub), documents())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    requests = TaskRequests(load_questions(benchmark(), limit=3), kind="simple")
    (request,) = requests.of(("q2",))
    assert "What happens in scene 2?" in request.args[0]


def test_a_split_of_several_files_is_all_of_them_in_the_cards_order(hub):
    folder = snapshot(hub)
    paths = "    path:\n    - b.parquet\n    - a.parquet\n"
    card = f"configs:\n- config_name: all\n  data_files:\n  - split: validation\n{paths}"
    (folder / "README.md").write_text(f"---\n{card}---\n")
    pd.DataFrame(documents()[2:]).to_parquet(folder / "b.parquet")
    pd.DataFrame(documents()[:2]).to_parquet(folder / "a.parquet")
    assert ids(benchmark()) == [item["id"] for item in [*documents()[2:], *documents()[:2]]]
    (folder / "a.parquet").unlink()
    with pytest.raises(MissingDocuments, match="not complete"):
        load_questions(benchmark())


def test_evidence_comes_from_the_annotation_beside_documents_without_it(hub):
    folder = snapshot(hub)
    bare = [{key: value for key, value in row.items() if key != "position"} for row in documents()]
    shards(folder, bare)
    assert [question.evidence_seconds for question in load_questions(benchmark()).questions] == [()] * 4
    (folder / "lvb_val.json").write_text(json.dumps([{"id": row["id"], "position": [48]} for row in bare[:3]]))
    questions = load_questions(benchmark()).questions
    assert [match.evidence_seconds for match in questions] == [(2.0,), (2.0,), (2.0,), ()]


@pytest.mark.usefixtures("task_index")
def test_a_matrix_asks_with_the_prompts_a_task_has_for_the_wrapper_behind_the_model(tmp_path, monkeypatch):
    from focus_eval.bench.matrix.questions import TaskRequests
    from tests.support.bench.lmms_data import _videomme_rows, write_parquet

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [{**row, "video_id": row["videoID"]} for row in _videomme_rows()]
    config = BenchmarkConfig(
        name="videomme", benchmark="videomme", task="videomme", dataset=str(write_parquet(tmp_path, "test", rows))
    )
    prompts_by_model = {}
    for model in ("focus_qwen3_vl", "focus_llava_video", "focus_gpt4o"):
        cell = _cell(config, model)
        requests = TaskRequests(load_questions(config, limit=1), kind="simple", prompts=cell.prompts)
        prompts_by_model[cell.prompts] = requests.of((rows[0]["question_id"],))[0].args[0]
        assert cell.identity.get("prompts", "default") == cell.prompts
    assert sorted(prompts_by_model) == ["default", "llava_vid", "qwen3_vl"]
    assert prompts_by_model["llava_vid"].endswith("The best answer is:")
    assert len(set(prompts_by_model.values())) == 3
    our_cell = _cell(config.model_copy(update={"task": "focus_videomme"}), "focus_qwen3_vl")
    assert (our_cell.prompts, "prompts" in our_cell.identity) == ("default", False)


def _cell(config, model):
    from focus_eval.bench.matrix.cells import cells
    from focus_eval.bench.matrix.config import MatrixConfig, ModelConfig, SamplerConfig

    matrix = MatrixConfig(
        name="one", benchmarks=[config], samplers=[SamplerConfig(sampler="uniform")], k=[4],
        models=[ModelConfig(name="m", model=model, frames=4)],
    )  # fmt: skip
    return cells(matrix)[0]
