"""With native frames a model of ours is asked and answers what the stock wrapper does, on tasks with its own prompts.

The real lmms-eval, its own tasks and a tiny Qwen3-VL; every prompt is compared by `test_prompts.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

TASKS = ("videomme", "videomme_v2", "neptune_full_v")
CLIPS = ("landscape", "portrait")


@pytest.fixture(scope="module")
def documents(home, tools):
    """Documents and videos of the tasks beside Video-MME's, where lmms-eval looks for them."""
    import lmms_eval.tasks.neptune.utils as neptune
    import lmms_eval.tasks.videomme_v2.utils as videomme_v2

    options = [f"{letter}. {text}" for letter, text in zip("ABCDEFGH", ["red", "blue"] * 4, strict=True)]
    second = [
        {"video_id": clip, "question_id": f"{clip}-0", "question": f"What is in {clip}?", "options": "\n".join(options),
         "answer": "B", "group_type": "relevance", "group_structure": "[1, 2, 3, 4]", "level": "1"}
        for clip in CLIPS
    ]  # fmt: skip
    choices = {f"answer_choice_{at}": text for at, text in enumerate(["red", "blue", "green", "grey", "none"])}
    full = [
        {"video_path": f"{clip}.mp4", "key": clip, "question": f"Who is in {clip}?", "answer_id": 1, **choices}
        for clip in CLIPS
    ]
    tools.write_parquet(home.root / "MME-Benchmarks/Video-MME-v2", "test", second)
    tools.write_parquet(home.root / "lmms-eval/GoogleDeepMind-NEPTUNE/full", "test", full)
    card = "---\nconfigs:\n- config_name: full\n  data_files:\n  - split: test\n    path: full/test-*\n---\n"
    (home.root / "lmms-eval/GoogleDeepMind-NEPTUNE/README.md").write_text(card)
    for name in ("videomme_v2", "neptune"):
        (home.hf / name).symlink_to(home.videos["videomme"])
    with pytest.MonkeyPatch.context() as patch:
        # They read $HF_HOME once, when they are imported.
        patch.setattr(videomme_v2, "base_cache_dir", str(home.hf))
        patch.setattr(neptune, "CACHE_DIR", str(home.hf / "neptune"))
        yield


def answers_of(model):
    """Return what `model` answered to each document of each task."""
    import lmms_eval
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    root = Path(lmms_eval.__file__).parent / "tasks"
    folders = [str(root / task.removesuffix("_full_v")) for task in TASKS]
    # All tasks at once: lmms-eval takes the stock wrapper's network away at the end of a run.
    results = simple_evaluate(
        model=model, tasks=list(TASKS), gen_kwargs="max_new_tokens=6", datetime_str="now", bootstrap_iters=0,
        task_manager=TaskManager("ERROR", include_path=folders, include_defaults=False, model_name=model.model_id),
        predict_only=True,
    )  # fmt: skip
    return {
        (task, sample["doc_id"]): sample["resps"][0][0].strip() for task in TASKS for sample in results["samples"][task]
    }


@pytest.mark.slow
def test_native_is_the_stock_wrapper_on_tasks_with_prompts_of_its_own(
    documents, home, tools, tmp_path_factory, monkeypatch
):
    from lmms_eval.models.chat.qwen3_vl import Qwen3_VL

    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen3VLChat
    from tests.support.keyframes.tiny_transformers import save_qwen_successor

    monkeypatch.chdir(home.root)
    monkeypatch.setenv("HF_HOME", str(home.hf))
    folder = save_qwen_successor(tmp_path_factory.mktemp("tiny") / "qwen3", "qwen3")
    options = {"pretrained": str(folder), "device": "cpu", "device_map": "cpu"}
    stock = Qwen3_VL(**options, max_num_frames=4)
    stock.model_id = "qwen3_vl"
    record = tmp_path_factory.mktemp("record")
    adapter_model = FocusQwen3VLChat(**options, sampler="native", frames=4, record=str(record))
    wrapper_inputs, answers = [], []
    for model in (stock, adapter_model):
        tap = tools.Tap(model.processor)
        monkeypatch.setattr(model, "processor", tap)
        answers.append(answers_of(model))
        # Each wrapper asks in an order of its own.
        wrapper_inputs.append(sorted(tap.calls, key=lambda call: call["text"]))
    texts = [[call["text"] for call in calls] for calls in wrapper_inputs]
    assert texts[1] == texts[0]
    assert all("Question: " in str(text) for text in texts[0]), "the prompt that the tasks have for qwen3_vl alone"
    for stock_inputs, adapter_inputs in zip(*wrapper_inputs, strict=True):
        assert torch.equal(torch.stack(list(adapter_inputs["videos"])), torch.stack(list(stock_inputs["videos"])))
    assert answers[1] == answers[0]
    assert len(answers[0]) == len(texts[0]) == 4 + 2 + 2
    assert len(set(answers[0].values())) > 1
