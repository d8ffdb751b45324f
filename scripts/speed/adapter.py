"""How many seconds does the adapter add to a question, beyond decoding the frames and what the wrapper itself does?

A tiny LLaVA-OneVision answers the same questions about the same frames through the stock wrapper and through ours,
in alternation, in one run. Prints the medians per question in wall clock and in processor time, and the ratio.
Arguments: questions and turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

N_QUESTIONS, N_TURNS = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (40, 5)
N_FRAMES = 8


def main() -> None:
    import torch
    from lmms_eval.api.instance import Instance
    from lmms_eval.models.simple.llava_hf import LlavaHf

    from focus_eval.bench.answering.choosing import GivenRows
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.keyframes.rows.records import SelectionRow
    from tests.support.bench.lmms_data import longvideobench_rows, read_record
    from tests.support.keyframes.synthetic import write_numbered_clip
    from tests.support.keyframes.tiny_transformers import save_llava_onevision

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        weights = save_llava_onevision(Path(folder) / "tiny")
        clip = write_numbered_clip(Path(folder) / "clip.mp4", 300, width=320, height=240, fps=30)
        options = {"pretrained": str(weights), "device": "cpu", "device_map": "cpu"}
        stock = LlavaHf(**options, max_frames_num=N_FRAMES)
        plugin_model = FocusLlavaOnevision(**options, sampler="uniform", frames=N_FRAMES, record=f"{folder}/record")
        documents = {
            "focus_longvideobench": {
                "test": [
                    {**row, "video_path": clip.name, "id": f"q{at}", "duration": 10.0}
                    for at, row in enumerate(longvideobench_rows(["landscape"], ["?"]) * N_QUESTIONS)
                ]
            }
        }

        task = "focus_longvideobench"

        def requests() -> list[Instance]:
            """Return a request of lmms-eval for each question, all on the same clip."""
            metadata = {"task": task, "repeats": 1, "split": "test"}
            return [
                Instance(
                    request_type="generate_until",
                    arguments=(
                        f"{at}?", {"max_new_tokens": 1}, lambda document: [str(clip)], at, task, "test"
                    ),
                    idx=0,
                    metadata={**metadata, "doc_id": at},
                )
                for at in range(N_QUESTIONS)
            ]  # fmt: skip

        stock.task_dict = plugin_model.task_dict = documents
        plugin_model.generate_until(requests())
        rows = [SelectionRow(**row) for row in read_record(Path(folder) / "record", "selections")]
        # No selection in what follows.
        given_rows = GivenRows({row.question_id: row for row in rows})
        plugin_model.context = replace(plugin_model.context, chooser=given_rows)
        seconds: dict[str, list[float]] = {"stock": [], "ours": [], "added": [], "stock cpu": [], "ours cpu": []}
        for _ in range(N_TURNS):
            for name, model in (("stock", stock), ("ours", plugin_model)):
                started, worked = time.perf_counter(), time.process_time()
                model.generate_until(requests())
                seconds[name].append((time.perf_counter() - started) / N_QUESTIONS)
                seconds[f"{name} cpu"].append((time.process_time() - worked) / N_QUESTIONS)
            files = sorted((Path(folder) / "record").glob("*/answers/*.jsonl"), key=lambda file: file.stat().st_mtime)
            answers = [json.loads(line) for line in files[-1].read_text().splitlines()[-N_QUESTIONS:]]
            used = sum(row["seconds"][stage] for row in answers for stage in ("idle", "preprocess", "generate"))
            seconds["added"].append(seconds["ours"][-1] - used / N_QUESTIONS)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{N_QUESTIONS} questions x {N_TURNS} turns, {N_FRAMES} frames of 320 x 240, one CPU thread", file=sys.stderr)
    print(f"stock wrapper            {1e3 * median['stock']:8.2f} ms per question")
    print(f"through the adapter         {1e3 * median['ours']:8.2f} ms per question, rows included")
    for name in ("stock", "ours"):
        print(f"{name + ', processor time':<24} {1e3 * median[name + ' cpu']:8.2f} ms per question, all threads")
    print(f"ratio                    {median['ours'] / median['stock']:8.2f}")
    print(f"of it the adapter's own     {1e3 * median['added']:8.2f} ms per question (no decode, wrapper, model)")


if __name__ == "__main__":
    main()
