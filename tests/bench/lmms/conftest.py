"""Models and data sets made on the spot, and runs of lmms-eval on them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Those that are not used here are used through `tools`.
from tests.support.bench.lmms_data import (  # noqa: F401
    CLIPS,
    QUESTIONS,
    decode_all,
    longvideobench_rows,
    read_record,
    write_home,
    write_parquet,
)
from tests.support.bench.warm_process import WarmProcess
from tests.support.keyframes.tiny_transformers import save_llava_onevision, save_qwen2_vl

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FORCE_QWENVL_VIDEO_READER", "decord")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models are slower on several threads, most of all where several tests run at once."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory) -> Path:
    return save_qwen2_vl(tmp_path_factory.mktemp("tiny") / "qwen2_vl")


@pytest.fixture(scope="session")
def tiny_llava(tmp_path_factory) -> Path:
    return save_llava_onevision(tmp_path_factory.mktemp("tiny") / "llava_onevision")


@pytest.fixture(scope="session")
def qwen(tiny_qwen, tmp_path_factory):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    record = tmp_path_factory.mktemp("record")
    return FocusQwen2VL(
        pretrained=str(tiny_qwen), device="cpu", sampler="random", frames=64, record=str(record), max_pixels=50000
    )


@pytest.fixture(scope="session")
def llava(tiny_llava, tmp_path_factory):
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    record = tmp_path_factory.mktemp("record")
    return FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="random", frames=64, record=str(record)
    )


@pytest.fixture(scope="session")
def home(tmp_path_factory, task_index):
    """Documents and clips of the four benchmarks in the official layout; lmms-eval looks for videos there."""
    home_folder = write_home(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(home_folder.hf))
        patch.setenv("LMMS_EVAL_DATASETS_CACHE", str(home_folder.root / "datasets_cache"))
        import lmms_eval.tasks.mlvu.utils as mlvu
        import lmms_eval.tasks.videomme.utils as videomme
        import lmms_eval.tasks.vsibench.utils as vsibench

        # These read $HF_HOME once, when they are imported; another test may have imported them before.
        for module in (videomme, vsibench):
            patch.setattr(module, "base_cache_dir", str(home_folder.hf))
        patch.setattr(mlvu, "cache_dir_dev", str(home_folder.hf / "mlvu"))
        yield home_folder


@pytest.fixture(scope="session")
def warm_lmms_eval(home, task_index, tmp_path_factory):
    """A process that runs lmms-eval's command line in `home`, each time in a fork that need not import it again."""
    environment = {**home.environment(), "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("warm")
    imports = ["lmms_eval.__main__", "lmms_eval.evaluator", "focus_eval.bench.lmms.models.qwen_vl"]
    with WarmProcess(imports, folder=folder, task_index=task_index, cwd=home.root, env=environment) as process:
        yield process


class Tap:
    """Stands before a processor and keeps what goes in."""

    def __init__(self, processor) -> None:
        self.processor = processor
        self.calls: list[dict] = []

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def __call__(self, *args, **inputs):
        assert not args
        self.calls.append(inputs)
        return self.processor(**inputs)

    def by_text(self) -> list[tuple[str, object]]:
        """(prompt, video) per question, batches taken apart."""
        pairs = []
        for call in self.calls:
            texts = call["text"] if isinstance(call["text"], list) else [call["text"]]
            pairs += list(zip(texts, call["videos"], strict=True))
        return pairs


@pytest.fixture
def evaluate(home, tmp_path, monkeypatch):
    """Run tasks through lmms-eval's `simple_evaluate`, on a loaded model."""

    def run(model, tasks, *, max_new_tokens: int = 2, data: Path | None = None, official=False, **evaluator_options):
        from lmms_eval.evaluator import simple_evaluate
        from lmms_eval.tasks import TaskManager

        from focus_eval.core.resources import resource_path

        folder = resource_path("tasks")
        if data is not None:  # the same task files on other documents
            folder = tmp_path / "tasks"
            folder.mkdir(exist_ok=True)
            for task in tasks:
                lines = (resource_path("tasks") / f"{task}.yaml").read_text().splitlines()
                lines = [f"dataset_path: {data}" if line.startswith("dataset_path:") else line for line in lines]
                (folder / f"{task}.yaml").write_text("\n".join(lines))
        monkeypatch.chdir(home.root)
        monkeypatch.setenv("HF_HOME", str(home.hf))  # whatever another test left behind
        return simple_evaluate(
            model=model,
            tasks=list(tasks),
            # Indexing every task of lmms-eval takes seconds; the official ones are asked for by the command line tests.
            task_manager=TaskManager(
                "ERROR", include_path=str(folder), include_defaults=official, model_name=model.model_id
            ),
            gen_kwargs=f"max_new_tokens={max_new_tokens}",
            datetime_str="now",
            bootstrap_iters=0,
            **evaluator_options,
        )

    return run


@pytest.fixture(scope="session")
def tools():
    """Helpers that are not fixtures, for the tests beside this file."""
    return sys.modules[__name__]


def lost_frame_errors(model, evaluate, folder, monkeypatch, *, n_frames: int = 6) -> set[str]:
    """Answer where two of the fed frames are lost on their way into the wrapper; return the errors of the rows."""
    from dataclasses import replace

    from focus_eval.bench.answering.choosing import SamplerChooser
    from focus_eval.bench.answering.session import WrapperSession
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    view_document = WrapperSession._view_document

    def shown_without_the_last_two(session, framed, prompt):
        frame_batch = framed.frame_batch
        encoded = frame_batch.encoded[:-2] if frame_batch.encoded is not None else None
        cut = replace(
            frame_batch,
            frames=frame_batch.frames[:-2],
            times_seconds=frame_batch.times_seconds[:-2],
            pixels=frame_batch.take()[:-2],
            encoded=encoded,
        )
        return view_document(session, replace(framed, frame_batch=cut), prompt)

    uniform = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=n_frames))
    options = replace(model.adapter_options, record=str(folder), max_error_share=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(WrapperSession, "_view_document", shown_without_the_last_two)
        model.show(uniform, frames=n_frames, options=options)
        evaluate(model, ["focus_videomme"], limit=1)
    return {str(row["error"]).partition(": ")[2] for row in read_record(folder, "answers")}


LOST_FRAMES = {"6 frames were fed, but 4 reached the model"}
