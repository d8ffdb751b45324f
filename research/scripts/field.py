"""Derive every figure of docs/field.md from public files: `field.py FOLDER [--page docs/field.md] [--section NAME]`.

FOLDER holds `lvb_val.json`, `lvb_val_fps.csv` and `field/` (logs and annotations of others; the page names their
repositories and commits). Prints a section per table or sentence; `--page` puts them between the page's marks,
`--csv results/published` writes the tables that the page has only a part or a sentence of, to `field_NAME.csv`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from focus_eval_research.field_data import (
    TOOLMERGE,
    answers,
    log_lines,
    longvideobench,
    public_pair,
    toolmerge_answers,
    videomme,
)
from focus_eval_research.policy import scores_of_best
from focus_eval_research.predict import prediction_errors

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.report.power import t_quantile
from focus_eval.bench.report.recall import recall_within, scene_distances, scenes_of, shares_within
from focus_eval.bench.report.statistics import Estimate, compare_paired, detectable_difference, standard_error
from focus_eval.external.audit import audit, series_of
from focus_eval.external.clustered import Coefficient
from focus_eval.external.imports.lmms_logs import find_logs
from focus_eval.external.imports.loading import load_selections
from focus_eval.external.reading import ReadingOptions, read_runs
from focus_eval.external.within import measure_effects

ROOT = Path(__file__).resolve().parents[2]
LONG_SECONDS = 180
SHORT_SECONDS = 65
Rows = list[tuple[str, ...]]  # of a table, its heads first
MEASURES = ("recall@1", "recall@2", "recall@5", "nearness", "near_frames", "spread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the public files")
    parser.add_argument("--page", type=Path, help="Markdown page to put the tables into")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="folder for the whole tables")
    parser.add_argument("--section", choices=SECTIONS, action="append", help="one section only; repeatable")
    arguments = parser.parse_args()
    tables = {}
    for name in arguments.section or SECTIONS:
        start = time.perf_counter()
        tables[name] = SECTIONS[name](arguments.folder)
        print(f"\n## {name} ({time.perf_counter() - start:.0f} s)\n\n{tables[name]}", flush=True)
    if arguments.page:
        text = arguments.page.read_text(encoding="utf-8")
        for name, table in tables.items():
            text = put_between(text, name, table)
        arguments.page.write_text(text, encoding="utf-8")
    for name in ROWS if arguments.csv else ():
        with (arguments.csv / f"field_{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(ROWS[name](arguments.folder))


def put_between(page: str, name: str, table: str) -> str:
    """Return `page` with `table` between the marks of `name`."""
    start, end = f"<!-- field: {name} -->\n", "<!-- end -->"
    head, marker, remainder = page.partition(start)
    _, closed, tail = remainder.partition(end)
    if not marker or not closed:
        raise SystemExit(f"the page has no marks for {name}: {start.strip()} .. {end}")
    return f"{head}{start}{table}\n{end}{tail}"


def logs(folder: Path) -> str:
    """Return a sentence on the accuracy of each log beside the stated one; fails if one differs."""
    _, *rows = log_rows(folder)
    assert all(row[1] == row[2] for row in rows)
    texts = " and ".join(f"`{row[0]}` {row[1]}" for row in rows).replace(" and ", ", ", len(rows) - 2)
    return folded(f"The rows give the accuracy that each log states: {texts}.")


def log_rows(folder: Path) -> Rows:
    """Return the table of logs: accuracy beside the stated one, and recall of the frames that were fed."""
    rows: Rows = [("log", "rows give", "log states", *(f"recall within {d} s (%)" for d in (1, 2, 5)))]
    for log in find_logs(folder / "field/lmms_logs"):
        if log.task != "longvideobench_val_v":
            continue
        lines = log_lines(folder, log, "indices")
        recalls = (f"{100 * lines[f'recall@{d}'].mean():.1f}" for d in (1, 2, 5))
        rows.append((log.run, f"{lines['score'].mean():.5f}", f"{log.scores['lvb_acc']:.5f}", *recalls))
    return rows


def within(folder: Path) -> str:
    """Return the effect of each measure within questions: for all runs, then for uniform and AKS alone."""
    lines = long_answers(folder)
    parts = (lines, lines[lines["distinct"] >= ENOUGH_FRAMES], lines[lines["family"] != "scenes"])
    effects = [measure_effects(part, MEASURES, joint_measures=()) for part in parts]
    rows = [(of[0].measure, *(points(effect.separate) for effect in of)) for of in zip(*effects, strict=True)]
    counts = np.rint(np.expm1(lines["near_frames"].to_numpy(dtype=np.float64)))
    near = lines.assign(first=(counts >= 1).astype(float), second=(counts >= 2).astype(float))
    first, second = (points(effect.joint) for effect in measure_effects(near, ("first", "second")))
    return (
        table(
            (
                "measure",
                "22 runs",
                f"of these, answers with {ENOUGH_FRAMES} or more frames",
                "uniform and the authors' AKS-32 alone",
            ),
            rows,
        )
        + f"\n{basis(lines)} A first frame within 5 s of a moment is worth {first}, a second one {second} more.\n\n"
        + fed_frames(folder)
    )


# Of 32: a few may fall together in a short scene.
ENOUGH_FRAMES = 28


def fed_frames(folder: Path) -> str:
    """Return a sentence on the answers of the 20 variants that were given one frame."""
    lines = answers(folder).query("family == 'scenes'")
    counts = []
    for part in (lines, lines[lines["seconds"] >= LONG_SECONDS]):
        by_run = part[part["distinct"] == 1].groupby("run")["question_id"].nunique()
        (n_one_frame,) = set(by_run)  # the same number in every variant
        assert len(by_run) == lines["run"].nunique()
        counts.append(f"{n_one_frame} of {part['question_id'].nunique():,}")
    return (
        f"Not all were fed 32 frames: each of the {lines['run'].nunique()} variants got a single frame in {counts[0]} "
        f"questions ({counts[1]} from {LONG_SECONDS} s)."
    )


def ranks(folder: Path) -> str:
    """Return the rank correlation over runs between accuracy and recall on long videos."""
    run_means = long_answers(folder).groupby("run")[["score", "recall@2"]].mean()
    rank = run_means["score"].corr(run_means["recall@2"], method="spearman")
    return (
        f"Over the {len(run_means)} runs, accuracy and recall within 2 s on videos of 180 s and more have a rank "
        f"correlation of {rank:.2f}."
    )


def prediction(folder: Path) -> str:
    """Return the error of the expected accuracy on long videos, with families or runs left out."""
    lines = long_answers(folder)
    rows = []
    for error in prediction_errors(lines):
        by_family = [f"{100 * value:.1f}" for value in error.by_family.values()]
        rows.append((error.name, *by_family, f"{100 * error.mean:.1f}"))
    families = list(dict.fromkeys(lines["family"]))
    return table(("measures", *(f"without {name}" for name in families), "mean"), rows)


def lengths(folder: Path) -> str:
    """Return the paired difference of AKS less uniform, by video length."""
    a, b = paired(answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    rows = []
    for name, inside in by_length(a["seconds"]):
        difference = compare_paired(a["score"][inside], b["score"][inside], a["video"][inside].tolist())
        rows.append(
            (name, str(int(inside.sum())), f"{b['distinct'][inside].mean():.1f}", interval(difference.difference))
        )
    return table(("videos", "questions", "AKS's distinct frames", "authors' AKS-32 less uniform"), rows)


def oracle(folder: Path) -> str:
    """Return the table of the "oracle" log by native rate: it fed annotated positions as native frame numbers."""
    oracle_log = next(log for log in find_logs(folder / "field/lmms_logs/lvb_oracle"))
    lines = log_lines(folder, oracle_log, "indices").set_index("question_id")
    uniform = answers(folder).query("run == 'qwen2_5_vl'").set_index("question_id")["score"]
    lines = lines[lines["seconds"] >= LONG_SECONDS].assign(uniform=uniform)
    rows = []
    for name, low, high in (("23.976 and 24", 23.9, 24.1), ("25", 24.9, 25.1), ("29.97 and 30", 29.9, 30.1)):
        part = lines[(lines["fps"] > low) & (lines["fps"] < high)]
        rows.append((name, str(len(part)), *(f"{100 * part[name].mean():.1f}" for name in ("score", "uniform"))))
    return table(("frames a second", "questions", "LLaVA-OneVision, positions", "Qwen2.5-VL, uniform"), rows)


def arrival(folder: Path) -> str:
    """Return a sentence on equal answers between runs: of two logs with different selections, and of other pairs."""
    lines = answers(folder).pivot(index="question_id", columns="run", values=["text", "score"])
    pairs = list(itertools.combinations(lines["text"].columns, 2))
    share_by_pair = {pair: float((lines["text"][pair[0]] == lines["text"][pair[1]]).mean()) for pair in pairs}
    uniform_and_aks = ("qwen2_5_vl", "qwen2_5_vl_AKS")
    differ = float((lines["score"][uniform_and_aks[0]] != lines["score"][uniform_and_aks[1]]).mean())
    videomme_logs = sorted((folder / "field/lmms_logs").glob("videomme_*"))
    findings = audit(series_of(read_runs(videomme_logs, ReadingOptions())[0]))
    finding = next(item for item in findings if "pairs of runs with the same answers" in item.check)
    videomme_text = re.search(r"\((.*?) %\)", finding.worst)[1]
    same_text = f"{100 * min(share_by_pair.values()):.0f} to {100 * max(share_by_pair.values()):.0f} %"
    return folded(
        f"Two Video-MME logs of one model with different selections have the same answer to "
        f"{videomme_text} % of the questions. In {len(pairs)} pairs of 22 LongVideoBench "
        f"logs it is {same_text}; of uniform and the authors' AKS-32 {100 * share_by_pair[uniform_and_aks]:.1f} % "
        f"({100 * differ:.1f} % differ in being right)."
    )


def power(folder: Path) -> str:
    """Return the discordance of other runs with uniform and with AKS, and the least detectable difference."""
    lines = answers(folder)
    rows = []
    for base in ("qwen2_5_vl", "qwen2_5_vl_AKS"):
        shares, detectable = [], []
        for run in sorted(set(lines["run"]) - {base}):
            a, b = paired(lines, base, run)
            differences = (b["score"] - a["score"]).to_numpy()
            shares.append(100 * differences.var())
            detectable.append(100 * detectable_difference(differences, a["video"].tolist()))
        texts = (f"{min(shares):.0f} to {max(shares):.0f} %", f"{min(detectable):.1f} to {max(detectable):.1f}")
        rows.append((f"{FAMILY_OF[base]} and another run", *texts))
    return table(("comparison", "questions that one alone has right", "least difference, 80 % power"), rows)


FAMILY_OF = {"qwen2_5_vl": "uniform", "qwen2_5_vl_AKS": "the authors' AKS-32"}


def evidence(folder: Path) -> str:
    """Return the lengths of annotated evidence, and where LongVideoBench's moments lie."""
    rows = []
    for name, file in (
        ("cgbench", "cgbench_mini.json.gz"),
        ("lvbench", "lvbench_video_info.meta.jsonl.gz"),
        ("vue_tr_v2", "vue_tr_v2_ground_truth.json.gz"),
        ("nextgqa", "nextgqa/val.csv"),
    ):
        questions = read_annotations(name, folder / "field/evidence" / file)
        lasting = [stop - start for question in questions if question.duration_seconds
                   for start, stop in question.evidence_intervals]  # fmt: skip
        quantiles = " / ".join(f"{value:.0f}" for value in np.quantile(lasting, [0.1, 0.5, 0.9]))
        rows.append((name, f"{len(questions):,}", f"{len(lasting):,}", quantiles))
    return (
        table(("benchmark", "questions", "intervals", "seconds at 10 / 50 / 90 %"), rows) + "\n" + moment_spans(folder)
    )


def moment_spans(folder: Path) -> str:
    """Return how far apart the moments of a LongVideoBench question lie, and how far they would lie by chance."""
    rows = []
    questions = [question for question in longvideobench(folder)[0].values() if len(question.evidence_seconds) > 1]
    seconds = pd.Series([question.duration_seconds for question in questions])
    for name, inside in by_length(seconds)[1:]:
        part = [question for question, is_in in zip(questions, inside, strict=True) if is_in]
        spans = np.array([max(q.evidence_seconds) - min(q.evidence_seconds) for q in part])
        chance = [(len(q.evidence_seconds) - 1) / (len(q.evidence_seconds) + 1) * q.duration_seconds for q in part]
        texts = (f"{np.median(spans):.0f}", f"{np.median(chance):.0f}", f"{100 * (spans < 60).mean():.0f} %")
        rows.append((name, str(len(part)), *texts))
    return table(
        ("LongVideoBench", "questions of several moments", "median span (s)", "if independent", "under 60 s"), rows
    )


# Benchmark -> frames K of the logs with uniform and with AKS frames below public/lmms_logs.
PUBLIC_LOGS = {"MINERVA": ("minerva", (8, 16, 32)), "VideoEval-Pro": ("videoevalpro", (8, 16, 32)),
               "Video-Holmes": ("videoholmes", (16, 32))}  # fmt: skip


def benchmarks(folder: Path) -> str:
    """Return AKS less uniform on each benchmark, without the questions that AKS reached alone but for the pooled ones.

    What is pooled at K = 8 is in the sentences of `first`.
    """
    heads, *rows = benchmark_rows(folder)
    return table(heads, [row for row in rows if not row[0].endswith("where AKS arrived") or row[:2] in POOLED_ON_PAGE])


def benchmark_rows(folder: Path) -> Rows:
    """Return AKS less uniform on each benchmark, paired by content, with the least detectable difference."""
    a, b = paired(long_answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    rows = [_difference_row("LongVideoBench, 180 s and more (authors' AKS-32)", "32", a, b)]
    pairs_by_k: dict[int, list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    for name, (stem, counts) in PUBLIC_LOGS.items():
        for k in counts:
            pair = public_pair(folder, f"{stem}_nframes_{k}", f"{stem}_aks_nframes_{k}")
            rows.append(_difference_row(name, str(k), *pair))
            if not pair[1]["is_recorded"].all():
                rows.append(_difference_row(f"{name}, where AKS arrived", str(k), *_arrived(pair)))
            pairs_by_k.setdefault(k, []).append(_arrived(pair))
    pair = public_pair(folder, "mlvu_test_llava_ov_nframes_32", "mlvu_test_llava_ov_nframes_32_AKS")
    rows.append(_difference_row("MLVU test (LLaVA-OneVision-7B)", "32", *pair))
    for k, pairs in pairs_by_k.items():
        rows.append(_difference_row(POOLED_LOGS, str(k), *_pooled(pairs)))
    return [("benchmark", "K", "questions", "AKS less uniform", "least difference, 80 % power"), *rows]


POOLED_LOGS = "pooled, where AKS arrived"
POOLED_ON_PAGE = {(POOLED_LOGS, "16"), (POOLED_LOGS, "32")}


def _arrived(pair: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers of both logs to the questions for which the second records its frames."""
    is_recorded = pair[1]["is_recorded"].to_numpy()
    return pair[0][is_recorded], pair[1][is_recorded]


def first(folder: Path) -> str:
    """Return sentences on samplers in general: eight frames and 32, gains by K, and the best of several variants."""
    stems = {name: stem for name, (stem, counts) in PUBLIC_LOGS.items() if 8 in counts}
    gains = []
    for k in (8, 16, 32):
        pairs = [
            _arrived(public_pair(folder, f"{stem}_nframes_{k}", f"{stem}_aks_nframes_{k}")) for stem in stems.values()
        ]
        gains.append(f"{_difference_row('', '', *_pooled(pairs))[3]} at {k}")
    eight = _pooled(
        [_arrived(public_pair(folder, f"{stem}_nframes_32", f"{stem}_aks_nframes_8")) for stem in stems.values()]
    )
    texts = _difference_row("", "", *eight)
    where = f"{' and '.join(stems)}, where AKS arrived, {texts[2]} questions, {eight[0]['video'].nunique():,} videos"
    variants = answers(folder).query("family == 'scenes'")
    accuracy_by_run = variants.groupby("run")["score"].mean()
    of_question = variants.groupby("question_id")["score"].mean()
    best, videos, by_assignment = best_of_other_videos(variants)
    kept_lead = compare_paired(of_question.loc[best.index].to_numpy(), best.to_numpy(), videos.tolist()).difference
    lead = accuracy_by_run.max() - accuracy_by_run.mean()
    assert 1 / 3 < kept_lead.value / lead < 2 / 3, "the sentence says about half"
    by_split = 100 * (by_assignment - of_question.mean())
    return (
        f"- **Eight chosen frames do about as well as 32 even ones**: {texts[3]} points ({where}).\n"
        f"- **Selection pays most with eight frames**: AKS less uniform is {', '.join(gains)} (the same questions).\n"
        f"- **The best of several variants keeps about half of its lead**: the best of {len(accuracy_by_run)} variants "
        f"of LVU's scenes is {100 * lead:.1f} points above their mean on LongVideoBench; chosen on four fifths of the "
        f"videos, {interval(kept_lead)} on the others (mean of {len(by_split)} random splits, {by_split.min():.1f} to "
        f"{by_split.max():.1f}).\n"
    )


def fewer_frames(folder: Path) -> str:
    """Return a sentence on AKS with 8 frames less uniform with 32, by benchmark."""
    _, minerva, video_eval, arrived, _ = fewer_frames_rows(folder)
    return folded(
        f"Eight AKS frames less 32 uniform ones: {minerva[3]} points on MINERVA and {video_eval[3]} on VideoEval-Pro, "
        f"{arrived[3]} where AKS arrived."
    )


def fewer_frames_rows(folder: Path) -> Rows:
    """Return the differences of AKS with 8 frames less uniform with 32."""
    pairs = {name: public_pair(folder, f"{stem}_nframes_32", f"{stem}_aks_nframes_8")
             for name, (stem, counts) in PUBLIC_LOGS.items() if 8 in counts}  # fmt: skip
    rows = [_difference_row(name, "8 and 32", *pair)[:4] for name, pair in pairs.items()]
    arrived_pairs = [*map(_arrived, pairs.values())]
    rows.append(_difference_row("VideoEval-Pro, where AKS arrived", "8 and 32", *arrived_pairs[1])[:4])
    rows.append(_difference_row("both, where AKS arrived", "8 and 32", *_pooled(arrived_pairs))[:4])
    return [("benchmark", "K", "questions", "8 AKS frames less 32 uniform ones"), *rows]


def variants(folder: Path) -> str:
    """Return how far each AKS behind the page's figures splits its videos, told from its frames at K = 32."""
    questions = [*longvideobench(folder)[0].values()]
    frames_by_source = {
        f"LongVideoBench, {name}": [
            entry.selection.keyframes or ()
            for entry in load_selections(folder / "field/selections" / file, format="aks", questions=questions).values()
        ]
        for name, file in AKS_FILES.items()
    }
    for name, stem in {name: f"{stem}_aks_nframes_32" for name, (stem, _) in PUBLIC_LOGS.items()}.items():
        frames_by_source[f"{name}, LVU's log"] = log_frames(folder, stem)
    frames_by_source["MLVU test, LVU's log"] = log_frames(folder, "mlvu_test_llava_ov_nframes_32_AKS")
    rows = []
    for name, selections in frames_by_source.items():
        shares = [is_split for frames in selections if (is_split := is_fully_split(frames, 32)) is not None]
        rows.append((name, f"{len(shares):,}", f"{100 * np.mean(shares):.0f} %"))
    log = find_logs(folder / "field/lmms_logs/lvb_aks")[0]
    frames_by_id = {str((record.doc or {})["id"]): record.frames("indices") for record in log.records()}
    published = load_selections(
        folder / "field/selections" / AKS_FILES["the authors' file"], format="aks", questions=questions
    )
    published_by_id = {key: entry.selection.keyframes or () for key, entry in published.items()}
    n_equal = sum(sorted(frames or ()) == sorted(published_by_id[key]) for key, frames in frames_by_id.items())
    equal_text = f"{n_equal:,} of {len(frames_by_id):,} questions"
    sentence = f"\nThe LongVideoBench log was fed the frames of the authors' file: {equal_text}.\n"
    return table(("AKS with 32 frames", "questions", "split to the end"), rows) + sentence


# AKS selections of LongVideoBench with 32 frames: who made them -> file below field/selections.
AKS_FILES = {"the authors' file": "aks_lvb_32.json.gz", "a third party's, BLIP": "aks_lvb_blip_32_yunseok.json.gz"}


def is_fully_split(frames: Sequence[float], k: int) -> bool | None:
    """Return True if no three of K frames lie within 1/K of the video, as where AKS splits it into K parts.

    The last frame stands for the video's end. None for other than K frames, or for fewer than 2 K candidates.
    """
    positions = np.unique(np.asarray(frames, dtype=np.int64))
    if positions.size != k:
        return None
    positions //= np.gcd.reduce(positions)
    n_candidates = int(positions[-1]) + 1
    return None if n_candidates < 2 * k else bool((positions[2:] - positions[:-2]).min() > n_candidates / k - 1)


def log_frames(folder: Path, name: str) -> list[tuple[float, ...]]:
    """Return the frames that the lines of a log below `public/lmms_logs` record."""
    records = find_logs(folder / "public/lmms_logs" / name)[0].records()
    return [frames for record in records if (frames := record.frames("indices"))]


def gains(folder: Path) -> str:
    """Return a sentence on how many of the gains that FOCUS's paper states on LongVideoBench are significant."""
    _, *rows = gain_rows(folder)
    (least_gain,) = {row[3] for row in rows}
    texts = []
    for sampler, title in (("focus", "FOCUS"), ("aks", "AKS"), ("qframe", "Q-Frame")):
        values = [row[2] for row in rows if row[0] == sampler]
        n_larger = sum(row[4] == "yes" for row in rows if row[0] == sampler)
        texts.append(f"{n_larger} of {len(values)} of {title} ({values[-1]} to {values[0]})")
    return folded(f"A gain is significant from {least_gain} points: {texts[0]} are larger, {texts[1]} and {texts[2]}.")


def gain_rows(folder: Path) -> Rows:
    """Return the gains over uniform that the paper of FOCUS states on LongVideoBench, beside what is significant."""
    a, b = paired(answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    error = standard_error((b["score"] - a["score"]).to_numpy(), a["video"].tolist())
    # An observed gain is judged by the t test's bound; that of 80 % power is larger and is for plans.
    least_gain = 100 * error * t_quantile(0.975, a["video"].nunique() - 1)
    stated_accuracy = pd.read_csv(ROOT / "results/paper/main_results.csv").pivot(
        index=["model", "frames"], columns="sampler", values="longvideobench"
    )
    rows = []
    for sampler in ("focus", "aks", "qframe"):
        for (model, k), gain in (stated_accuracy[sampler] - stated_accuracy["uniform"]).dropna().items():
            verdict = "yes" if gain > least_gain else "no"
            rows.append((sampler, f"{model}, K = {k}", f"{gain:+.1f}", f"{least_gain:.1f}", verdict))
    heads = ("sampler", "model", "gain over uniform as published", "significant from", "larger")
    return [heads, *sorted(rows, key=lambda row: -float(row[2]))]


def reached(folder: Path) -> str:
    """Return how many answers of uniform and AKS on VideoEval-Pro agree, by whether AKS's frames are recorded."""
    same_counts, sizes = [], []
    for k in (8, 16, 32):
        a, b = public_pair(folder, f"videoevalpro_nframes_{k}", f"videoevalpro_aks_nframes_{k}")
        is_recorded = b["is_recorded"].to_numpy()
        is_same = a["text"].to_numpy() == b["text"].to_numpy()
        same_counts.append([int(is_same[part].sum()) for part in (~is_recorded, is_recorded)])
        sizes.append([int(part.sum()) for part in (~is_recorded, is_recorded)])
    (size_missing,), (size_recorded,) = map(set, zip(*sizes, strict=True))
    assert {same_missing for same_missing, _ in same_counts} == {size_missing}
    eight, sixteen, last = (same_recorded for _, same_recorded in same_counts)
    return folded(
        f"With 8, 16 and 32 frames the answers are those of uniform in all {size_missing} questions without frames, "
        f"and in {eight}, {sixteen} and {last} of {size_recorded} with them."
    )


def candidates(folder: Path) -> str:
    """Return a sentence on AKS less uniform on videos below 65 s, by the number of distinct frames that AKS chose."""
    _, fewest, _, _, complete, evidence_shown = candidate_rows(folder)
    lines = answers(folder).query("run == 'qwen2_5_vl_AKS'")
    short_lines = lines[(lines["seconds"] < SHORT_SECONDS) & (lines["distinct"] < 32)]
    correlation = short_lines["distinct"].corr(short_lines["seconds"])
    return folded(
        f"Below {SHORT_SECONDS} s the authors' AKS-32 less uniform is {fewest[2]} points where it has {fewest[0]} "
        f"distinct frames, {complete[2]} where it has {complete[0]}, and {evidence_shown[2]} where all evidence lies "
        f"within 1 s of its frames. Below 32 frames, their number and the seconds of the video have a correlation of "
        f"{correlation:.3f}: candidates and length cannot be told apart here."
    )


def candidate_rows(folder: Path) -> Rows:
    """Return AKS less uniform on videos below 65 s, by the number of distinct frames that AKS chose."""
    a, b = paired(answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    rows = []
    for name, low, high in (("at most 11", 0, 11), ("12 to 15", 12, 15), ("16 to 31", 16, 31), ("all 32", 32, 32)):
        inside = ((a["seconds"] < SHORT_SECONDS) & b["distinct"].between(low, high)).to_numpy()
        cells = _difference_row(name, "32", a[inside], b[inside])
        rows.append((cells[0], cells[2], cells[3]))
    is_short = (a["seconds"] < SHORT_SECONDS).to_numpy()
    has_all = is_short & (b["recall@1"] == 1).to_numpy()
    cells = _difference_row("below 65 s, all evidence within 1 s of AKS's frames", "32", a[has_all], b[has_all])
    heads = ("AKS's distinct frames", "questions", "authors' AKS-32 less uniform")
    return [heads, *rows, (cells[0], *cells[2:4])]


def filling(folder: Path) -> str:
    """Return sentences on uniform frames in place of AKS where AKS ran out of candidates, from logged answers."""
    a, b = paired(answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    best, _, by_assignment = best_of_other_videos(answers(folder))
    scores = (
        a["score"].where(a["seconds"] < SHORT_SECONDS, b["score"]),
        a["score"].where(b["distinct"] < 32, b["score"]),
        best.loc[b.index],
    )
    filled_short, filled_few, best_run = (
        f"{100 * score.mean():.2f} ({_difference_row('', '', b, b.assign(score=score))[3]})" for score in scores
    )
    ceiling = np.maximum(a["score"], b["score"]).mean()
    return folded(
        f"AKS-32 has {100 * b['score'].mean():.2f} percent of all questions right. With uniform frames below "
        f"{SHORT_SECONDS} s it would be {filled_short}, with uniform wherever AKS-32 has fewer than 32 frames "
        f"{filled_few}. The best of 22 runs, chosen on the other four fifths of the videos, has {best_run}, the mean "
        f"of {len(by_assignment)} random splits ({100 * by_assignment.min():.2f} to {100 * by_assignment.max():.2f}); "
        f"the better of uniform and AKS-32 in each question, a ceiling, {100 * ceiling:.2f}."
    )


def best_of_other_videos(lines: pd.DataFrame) -> tuple[pd.Series, np.ndarray, np.ndarray]:
    """Return each question's score by the run with the most right answers about the other four fifths of the videos.

    The score is the mean over assignments of videos to fifths.

    Returns:
        Scores by question id, the videos in their order, and the mean over questions by assignment, `(assignments,)`.
    """
    by_run = lines.pivot(index="run", columns="question_id", values="score")
    videos = lines.drop_duplicates("question_id").set_index("question_id")["video"].loc[by_run.columns]
    scores, _ = scores_of_best(by_run.to_numpy(dtype=np.float64), videos.tolist(), folds=5)
    return pd.Series(scores.mean(axis=0), index=by_run.columns), videos.to_numpy(), scores.mean(axis=1)


def mixtures(folder: Path) -> str:
    """Return the recall gained on long videos by replacing half of AKS's 32 frames with the 16 of WFS-SB."""
    questions, rates = longvideobench(folder)
    judged_questions = [question for question in questions.values() if (question.duration_seconds or 0) >= LONG_SECONDS]
    wfs_selections = load_selections(folder / "wfs_longvideobench_16.json", questions=[*questions.values()])
    rows = []
    for name, file in (
        ("the authors' AKS-32, t1 .37, depth 5", "aks_lvb_32.json.gz"),
        ("a third party's AKS-32, BLIP, t1 .8, depth 5", "aks_lvb_blip_32_yunseok.json.gz"),
    ):
        aks_selections = load_selections(
            folder / "field/selections" / file, format="aks", questions=[*questions.values()]
        )
        recalls = []
        for question in judged_questions:
            fps = float(rates[question.id].fps)
            frames = aks_selections[question.id].selection.keyframes or ()
            mixed = sorted({*frames[::2], *(wfs_selections[question.id].selection.keyframes or ())})
            evidence = np.asarray(question.evidence_seconds)
            recalls.append([recall_within(evidence, np.array(part) / fps, (1, 2, 5)) for part in (frames, mixed)])
        values, videos = np.array(recalls), [question.video for question in judged_questions]
        gains = (compare_paired(values[:, 0, at], values[:, 1, at], videos).difference for at in range(3))
        rows.append((f"LongVideoBench, {name}", "", *map(interval, gains)))
    rows += [videomme_mixture(folder, encoder) for encoder in ("BLIP", "CLIP")]
    return table(("AKS", "gain inside", *(f"gain within {d} s" for d in (1, 2, 5))), rows)


def videomme_mixture(folder: Path, encoder: str) -> tuple[str, ...]:
    """Return the row of `mixtures` for Video-MME, whose evidence is scenes."""
    questions, rates = videomme(folder)
    selections = folder / "public/selections"
    file = selections / f"aks_videomme_{encoder.lower()}_32_yunseok.json.gz"
    aks_selections, wfs_selections = (
        load_selections(path, questions=questions) for path in (file, selections / "wfs_videomme_16.json.gz")
    )
    judged_questions = [q for q in questions if q.evidence_intervals and (q.duration_seconds or 0) >= LONG_SECONDS]
    shares = []
    for question in judged_questions:
        fps, scenes = float(rates[question.id].fps), scenes_of(question)
        frames = aks_selections[question.id].selection.keyframes or ()
        mixed = sorted({*frames[::2], *(wfs_selections[question.id].selection.keyframes or ())})
        gaps = (scene_distances(scenes, np.array(part) / fps) for part in (frames, mixed))
        shares.append([shares_within(gap, (0, 1, 2, 5)) for gap in gaps])
    values, videos = np.array(shares), [question.video for question in judged_questions]
    gains = (compare_paired(values[:, 0, at], values[:, 1, at], videos).difference for at in range(4))
    return f"Video-MME, a third party's AKS-32, {encoder}, t1 .8, depth 5", *map(interval, gains)


def value(folder: Path) -> str:
    """Return what a unit of recall adds to the same question with ToolMerge's frames; for scenes also inside."""
    parts = []
    for model, file_by_benchmark in TOOLMERGE.items():
        for benchmark in file_by_benchmark:
            title = {"longvideobench": "LongVideoBench", "videomme": "Video-MME"}[benchmark]
            parts.append((title, model, toolmerge_answers(folder, model, benchmark)))
    rows = []
    measures = ("hit", "recall@1", "recall@2", "recall@5")
    for benchmark, model, lines in sorted(parts, key=lambda part: part[0]):
        measured = [name for name in measures if name in lines and lines[name].notna().all()]
        effects = measure_effects(lines, measured, joint_measures=())
        points_by_measure = {effect.measure: points(effect.separate) for effect in effects}
        cells = (points_by_measure.get(name, "") for name in measures)
        rows.append((benchmark, model, f"{lines['question_id'].nunique():,}", *cells))
    heads = ("benchmark", "model", "questions", "inside", *(f"within {d} s" for d in (1, 2, 5)))
    return table(heads, rows)


def _pooled(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Join both sides' answers over benchmarks, with video names made distinct between benchmarks."""
    sides = [
        pd.concat([lines.assign(video=lines["benchmark"] + lines["video"]) for lines in side])
        for side in zip(*pairs, strict=True)
    ]
    return sides[0], sides[1]


def _difference_row(name: str, k: str, a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, ...]:
    """Return the cells of a table of differences: name, K, questions, `b` less `a`, least difference.

    As in `compare`, the difference is of the means over task types where the benchmark reports these.
    """
    types = a["type"].tolist() if "type" in a and a["benchmark"].nunique() == 1 else []
    strata = types if types and all(types) else None
    compared = compare_paired(a["score"].to_numpy(), b["score"].to_numpy(), a["video"].tolist(), strata=strata)
    return name, k, f"{len(a):,}", interval(compared.difference), f"{100 * (compared.detectable() or 0):.1f}"


SECTIONS: dict[str, Callable[[Path], str]] = {
    "first": first,
    "logs": logs,
    "variants": variants,
    "within": within,
    "value": value,
    "ranks": ranks,
    "prediction": prediction,
    "benchmarks": benchmarks,
    "fewer_frames": fewer_frames,
    "lengths": lengths,
    "candidates": candidates,
    "filling": filling,
    "reached": reached,
    "arrival": arrival,
    "oracle": oracle,
    "power": power,
    "gains": gains,
    "evidence": evidence,
    "mixtures": mixtures,
}


# Tables that the page has only a part or a sentence of: results/published/field_NAME.csv.
ROWS: dict[str, Callable[[Path], Rows]] = {
    "logs": log_rows,
    "gains": gain_rows,
    "fewer_frames": fewer_frames_rows,
    "candidates": candidate_rows,
    "benchmarks": benchmark_rows,
}


def long_answers(folder: Path) -> pd.DataFrame:
    """Return the answers about videos of 180 s and longer."""
    lines = answers(folder)
    return lines[lines["seconds"] >= LONG_SECONDS]


def paired(lines: pd.DataFrame, a: str, b: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the lines of two runs in the same order of questions."""
    first, second = (lines[lines["run"] == run].set_index("question_id") for run in (a, b))
    return first, second.loc[first.index]


def by_length(seconds: pd.Series) -> list[tuple[str, np.ndarray]]:
    """Return the three length groups of LongVideoBench, each with the mask of its questions."""
    values = seconds.to_numpy()
    return [
        ("below 180 s", values < 180),
        ("180 to 1200 s", (values >= 180) & (values <= 1200)),
        ("above 1200 s", values > 1200),
    ]


def basis(lines: pd.DataFrame) -> str:
    """Return a sentence with the numbers of answers, questions and videos behind the fits."""
    return f"{len(lines):,} answers, {lines['question_id'].nunique()} questions, {lines['video'].nunique()} videos."


def points(coefficient: Coefficient | None) -> str:
    """Return a coefficient in points with its interval, such as "+17.1 [11.9, 22.3]"; "" for None."""
    return "" if coefficient is None else interval(coefficient.estimate())


def interval(estimate: Estimate | None) -> str:
    """Return a difference in points with its interval; "-" if it has none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:+.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def folded(sentence: str) -> str:
    """Return a sentence in lines of at most 120 characters."""
    return f"{textwrap.fill(sentence, 120)}\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table whose columns after the first are right-aligned."""
    titles = list(heads)
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


if __name__ == "__main__":
    main()
