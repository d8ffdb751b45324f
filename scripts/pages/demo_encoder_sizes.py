"""How small may the demo's encoder see its pictures? Measures sizes of the input on the demo's questions.

    focus-eval demo
    python -m scripts.pages.demo_encoder_sizes --out FOLDER --csv results/published/demo_encoder_sizes.csv

For each size: the area under the ROC curve of relevance (frames in a scene of the evidence against all others, one
frame a second, mean over questions), recall of `topk` at K = 8, and accuracy of the answerer on the frames at the
evidence.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np
from scipy.stats import mannwhitneyu

from focus_eval.bench.demo.photo_events import aspects, build_photo_events
from focus_eval.bench.demo.storyboard import storyboards
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.engines import LocalEngine
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.run import Run, load_run
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.encoders.cost import efficientnet_lite0_gmacs
from focus_eval.keyframes.encoders.offline import FULL_SIZE

SIZES = (224, 160, 128, 96)


def main() -> None:
    """Run the matrix at every size, print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("results/demo"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    os.environ["FOCUS_EVAL_DEMO"] = str(arguments.data.resolve())
    build_photo_events(arguments.data)
    rows = [size_row(size, arguments.out) for size in arguments.sizes]
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def size_row(size: int, out: Path) -> dict[str, object]:
    """Return the table's row of one size; its run is kept in `out`."""
    encoder = f"offline:size={size}"
    matrix = load_matrix(
        resource_path("configs") / "demo.yaml",
        overrides={"name": f"demo_{size}", "encoders": [encoder], "samplers": ["topk", "oracle"], "k": [8]},
    )
    models = [model.model_copy(update={"args": {"answer_encoder": encoder}}) for model in matrix.models]
    engine = LocalEngine(store=out / f"store_{size}.sqlite")
    complete_run(matrix.model_copy(update={"models": models}), out=out / str(size), engine=engine)
    run = load_run(out / str(size))
    accuracy = run.answer_frame[run.answer_frame["sampler"] == "oracle"]["score"].mean()
    recall = run.selection_frame[run.selection_frame["sampler"] == "topk"]["recall@2"].mean()
    return {
        "size": size,
        "work": round(efficientnet_lite0_gmacs(size)["image"] / efficientnet_lite0_gmacs(FULL_SIZE)["image"], 3),
        "auc": round(mean_auc(run), 4),
        "topk_recall": round(100 * recall, 2),
        "oracle_accuracy": round(100 * accuracy, 2),
    }


def mean_auc(run: Run) -> float:
    """Return how often a frame in a scene of the evidence is more relevant than another, mean over questions."""
    scenes = {
        f"{board.video_id}_{number}": question.scenes
        for board in storyboards(aspects())
        for number, question in enumerate(board.questions)
    }
    areas = []
    for row in run.selections:
        if row.sampler == "topk":
            frames, relevance = np.array(row.pulled_frames), np.array(row.pulled_relevance, dtype=float)
            is_evidence = np.any(
                [(start <= frames) & (frames < stop) for start, stop in scenes[row.question_id]], axis=0
            )
            n_pairs = is_evidence.sum() * (~is_evidence).sum()
            areas.append(mannwhitneyu(relevance[is_evidence], relevance[~is_evidence]).statistic / n_pairs)
    return float(np.mean(areas))


if __name__ == "__main__":
    main()
