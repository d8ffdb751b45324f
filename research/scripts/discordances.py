"""Derive configs/public/discordance.yaml from public logs: `discordances.py FOLDER [--write]`.

FOLDER is that of research/scripts/field.py. For each K of a benchmark: the variance over questions of AKS's score less
uniform's, and the correlation of two such differences of one video that explains the clustered standard error of their
mean, 0 if it is negative. The file has the largest of both over K, rounded to two digits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from focus_eval_research.field_data import answers, public_pair

from focus_eval.bench.report.statistics import standard_error
from focus_eval.core.resources import resource_path

FILE = resource_path("configs") / "public" / "discordance.yaml"
HEADER = """\
# How much the answers of two samplers differ, for `plan`: `share` is the variance of the difference of their scores
# (about the share of questions that one alone has right), `video_correlation` that of the differences of two questions
# about one video (0 if negative); the largest over K. Written by research/scripts/discordances.py from the logs of
# research/docs/field.md.
"""
# Benchmark of a matrix -> its title, the model, and the K of its logs.
LOGS = {
    "longvideobench": ("LongVideoBench", "Qwen2.5-VL-7B", (32,)),
    "minerva": ("MINERVA", "Qwen2.5-VL-7B", (8, 16, 32)),
    "video_holmes": ("Video-Holmes", "Qwen2.5-VL-7B", (16, 32)),
    "mlvu": ("MLVU test", "LLaVA-OneVision-7B", (32,)),
}


def pair(folder: Path, benchmark: str, k: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers from uniform and from AKS frames to the same questions, in one order."""
    if benchmark == "longvideobench":
        lines = answers(folder)
        uniform, aks = (lines[lines["run"] == run].set_index("question_id") for run in ("qwen2_5_vl", "qwen2_5_vl_AKS"))
        return uniform, aks.loc[uniform.index]
    if benchmark == "mlvu":
        return public_pair(folder, f"mlvu_test_llava_ov_nframes_{k}", f"mlvu_test_llava_ov_nframes_{k}_AKS")
    stem = benchmark.replace("_", "")
    return public_pair(folder, f"{stem}_nframes_{k}", f"{stem}_aks_nframes_{k}")


def discordance(uniform: pd.DataFrame, aks: pd.DataFrame) -> tuple[float, float]:
    """Return the variance of AKS's score less uniform's, and the correlation of the differences within a video."""
    differences, videos = aks["score"].to_numpy() - uniform["score"].to_numpy(), uniform["video"].tolist()
    share = float(differences.var())
    sizes = np.unique(videos, return_counts=True)[1]
    weighted_size = float((sizes**2).sum() / sizes.sum())
    effect = standard_error(differences, videos) ** 2 * differences.size / share
    return share, max(0.0, (effect - 1) / (weighted_size - 1))


def line(folder: Path, benchmark: str) -> str:
    """Return the line of a benchmark in the file."""
    title, model, counts = LOGS[benchmark]
    shares, correlations = zip(*(discordance(*pair(folder, benchmark, k)) for k in counts), strict=True)
    frames = {1: "{}", 2: "{} and {}"}.get(len(counts), "{} to {}").format(*dict.fromkeys((counts[0], counts[-1])))
    source = f"uniform and AKS, {model}, {title}, {frames} frames"
    figures = f"share: {max(shares):.2f}, video_correlation: {max(correlations):.2f}"
    return f'{benchmark}: {{{figures}, source: "{source}"}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the file instead of printing it")
    arguments = parser.parse_args()
    text = HEADER + "".join(line(arguments.folder, benchmark) for benchmark in LOGS)
    if arguments.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
