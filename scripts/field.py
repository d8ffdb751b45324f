"""Derives every figure of docs/field.md from public files: `field.py FOLDER [--page docs/field.md] [--section NAME]`.

FOLDER holds `lvb_val.json`, `lvb_val_fps.csv` and `field/` (logs and annotations of others; the page names their
repositories and commits). Prints a section per table; `--page` puts them between the page's marks.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.benchmarks.registry import read_annotations
from focus_eval.imports.lmms_logs import find_logs
from focus_eval.report.audit import audit, series_of
from focus_eval.report.clustered import Coefficient
from focus_eval.report.power import seen_discordance
from focus_eval.report.predict import prediction_errors
from focus_eval.report.reading import ReadingOptions, read_runs
from focus_eval.report.statistics import Estimate, compare_paired, detectable_difference
from focus_eval.report.within import measure_effects
from support.field_data import answers, log_lines, longvideobench

LONG_SECONDS = 180
MEASURES = ("recall@1", "recall@2", "recall@5", "nearness", "near_frames", "spread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the public files")
    parser.add_argument("--page", type=Path, help="Markdown page to put the tables into")
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


def put_between(page: str, name: str, table: str) -> str:
    """Return `page` with `table` between the marks of `name`."""
    start, end = f"<!-- field: {name} -->\n", "<!-- end -->"
    head, marker, remainder = page.partition(start)
    _, closed, tail = remainder.partition(end)
    if not marker or not closed:
        raise SystemExit(f"the page has no marks for {name}: {start.strip()} .. {end}")
    return f"{head}{start}{table}\n{end}{tail}"


def logs(folder: Path) -> str:
    """Accuracy of each log beside what it states, and recall of the frames that were fed."""
    lines = []
    for log in find_logs(folder / "field/lmms_logs"):
        if log.task != "longvideobench_val_v":
            continue
        log_rows = log_lines(folder, log, "indices")
        recalls = [f"{100 * log_rows[f'recall@{d}'].mean():.1f}" for d in (1, 2, 5)]
        lines.append((log.run, f"{log_rows['score'].mean():.5f}", f"{log.scores['lvb_acc']:.5f}", *recalls))
    return table(("log", "rows give", "log states", *(f"recall within {d} s (%)" for d in (1, 2, 5))), lines)


def within(folder: Path) -> str:
    """Effects of each measure within questions: all runs, then uniform and AKS alone."""
    lines = long_answers(folder)
    two = lines[lines["family"] != "scenes"]
    of_two = {effect.measure: effect for effect in measure_effects(two, MEASURES, joint_measures=())}
    rows = [
        (effect.measure, points(effect.separate), points(of_two[effect.measure].separate))
        for effect in measure_effects(lines, MEASURES, joint_measures=())
    ]
    return table(("measure", "22 runs", "uniform and AKS alone"), rows) + f"\n{basis(lines)}"


def ranks(folder: Path) -> str:
    """Rank correlation over runs of accuracy with recall, on long videos."""
    run_means = long_answers(folder).groupby("run")[["score", "recall@2"]].mean()
    rank = run_means["score"].corr(run_means["recall@2"], method="spearman")
    return (
        f"Over the {len(run_means)} runs, accuracy and recall within 2 s on videos of 180 s and more have a rank "
        f"correlation of {rank:.2f}."
    )


def prediction(folder: Path) -> str:
    """Error of the expected accuracy on long videos, families and runs left out."""
    lines = long_answers(folder)
    rows = []
    for error in prediction_errors(lines):
        by_family = [f"{100 * value:.1f}" for value in error.by_family.values()]
        rows.append((error.name, *by_family, f"{100 * error.mean:.1f}"))
    families = list(dict.fromkeys(lines["family"]))
    return table(("measures", *(f"without {name}" for name in families), "mean"), rows)


def lengths(folder: Path) -> str:
    """AKS less uniform by length, paired by question."""
    a, b = paired(answers(folder), "qwen2_5_vl", "qwen2_5_vl_AKS")
    rows = []
    for name, inside in by_length(a["seconds"]):
        difference = compare_paired(a["score"][inside], b["score"][inside], a["video"][inside].tolist())
        rows.append(
            (name, str(int(inside.sum())), f"{b['distinct'][inside].mean():.1f}", interval(difference.difference))
        )
    return table(("videos", "questions", "AKS's distinct frames", "AKS less uniform"), rows)


def oracle(folder: Path) -> str:
    """The "oracle" log by native rate: annotated positions fed as native frame numbers."""
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
    """Share of the same answers between runs: a pair that never saw its selections, and honest ones."""
    lines = answers(folder).pivot(index="question_id", columns="run", values=["text", "score"])
    pairs = list(itertools.combinations(lines["text"].columns, 2))
    share_by_pair = {pair: float((lines["text"][pair[0]] == lines["text"][pair[1]]).mean()) for pair in pairs}
    uniform_and_aks = ("qwen2_5_vl", "qwen2_5_vl_AKS")
    differ = float((lines["score"][uniform_and_aks[0]] != lines["score"][uniform_and_aks[1]]).mean())
    findings = audit(series_of(read_runs([folder / "field/lmms_logs"], ReadingOptions())[0]))
    finding = next(item for item in findings if "pairs of runs with the same answers" in item.check)
    rows = [
        ("two Video-MME logs with different selections", re.search(r"\((.*?) %\)", finding.worst)[1] + " %"),
        (
            f"{len(pairs)} pairs of 22 LongVideoBench logs",
            f"{100 * min(share_by_pair.values()):.0f} to {100 * max(share_by_pair.values()):.0f} %",
        ),
        (
            "of these uniform and AKS",
            f"{100 * share_by_pair[uniform_and_aks]:.1f} % ({100 * differ:.1f} % differ in being right)",
        ),
    ]
    return table(("pair", "the same answers"), rows)


def power(folder: Path) -> str:
    """Discordance of pairs with uniform or AKS, and the least difference that can be shown."""
    lines = answers(folder)
    rows = []
    for base in ("qwen2_5_vl", "qwen2_5_vl_AKS"):
        shares, detectable = [], []
        for run in sorted(set(lines["run"]) - {base}):
            a, b = paired(lines, base, run)
            differences = (b["score"] - a["score"]).to_numpy()
            shares.append(100 * seen_discordance(differences, a["video"].tolist()).share)
            detectable.append(100 * detectable_difference(differences, a["video"].tolist()))
        texts = (f"{min(shares):.0f} to {max(shares):.0f} %", f"{min(detectable):.1f} to {max(detectable):.1f}")
        rows.append((f"LongVideoBench, {FAMILY_OF[base]} and another run", *texts))
    return table(("comparison", "questions that one alone has right", "least difference, 80 % power"), rows)


FAMILY_OF = {"qwen2_5_vl": "uniform", "qwen2_5_vl_AKS": "AKS"}


def evidence(folder: Path) -> str:
    """Lengths of annotated evidence, and where LongVideoBench's moments lie."""
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
    """How far apart the moments of one LongVideoBench question lie, and would lie by chance."""
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


SECTIONS: dict[str, Callable[[Path], str]] = {
    "logs": logs,
    "within": within,
    "ranks": ranks,
    "prediction": prediction,
    "lengths": lengths,
    "oracle": oracle,
    "arrival": arrival,
    "power": power,
    "evidence": evidence,
}


def long_answers(folder: Path) -> pd.DataFrame:
    """Return the answers about videos of 180 s and more."""
    lines = answers(folder)
    return lines[lines["seconds"] >= LONG_SECONDS]


def paired(lines: pd.DataFrame, a: str, b: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the lines of two runs in the same order of questions."""
    first, second = (lines[lines["run"] == run].set_index("question_id") for run in (a, b))
    return first, second.loc[first.index]


def by_length(seconds: pd.Series) -> list[tuple[str, np.ndarray]]:
    """Return the three lengths of LongVideoBench, and which questions are of each."""
    values = seconds.to_numpy()
    return [
        ("below 180 s", values < 180),
        ("180 to 1200 s", (values >= 180) & (values <= 1200)),
        ("above 1200 s", values > 1200),
    ]


def basis(lines: pd.DataFrame) -> str:
    """Say what the fits rest on."""
    return f"{len(lines):,} answers, {lines['question_id'].nunique()} questions, {lines['video'].nunique()} videos."


def points(coefficient: Coefficient | None) -> str:
    """Return e.g. "+17.1 [11.9, 22.3]"."""
    return "" if coefficient is None else interval(coefficient.estimate())


def interval(estimate: Estimate | None) -> str:
    """Return a difference in points with its interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:+.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, figures to the right."""
    titles = list(heads)
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


if __name__ == "__main__":
    main()
