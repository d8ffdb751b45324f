"""How steady are a run's figures over its seeds, and is one sampler's evidence recall below another's?

    python research/scripts/seed_stability.py results/runs/NAME               # mean and spread per sampler and length
    python research/scripts/seed_stability.py results/runs/NAME --pair focus focus_gop  # paired difference of recall
    python research/scripts/seed_stability.py RUN --pair focus focus --other RUN2      # the second one from another run

Writes Markdown. Spread: the sample standard deviation over seeds; rows that record an error are counted, not scored.
Where a model answered, a second table splits its answers by whether a keyframe lay near the evidence. A
paired difference is taken per question on means over seeds; its 95 % interval is t, clustered by video.
"""

import argparse
from pathlib import Path

from focus_eval.bench.benchmarks.question import BUCKETS, NEAR_SECONDS, RECALL_SECONDS
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.run import load_run, sampler_order
from focus_eval.bench.report.statistics import difference_estimate

RECALL = [recall_column(seconds) for seconds in RECALL_SECONDS]
RECALL_COLUMN = recall_column(NEAR_SECONDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--pair", nargs=2, metavar=("A", "B"))
    parser.add_argument("--other", type=Path, metavar="RUN", help="folder of the run that B is taken from")
    args = parser.parse_args()
    run = load_run(args.run)
    if args.pair:
        a, b = args.pair
        other_run = load_run(args.other) if args.other else run
        print_pair(of_label(run, a), of_label(other_run, b), *args.pair)
        return
    frame = run.answer_frame if run.answers else run.selection_frame
    for group, part in frame.groupby(["benchmark", "model"] if run.answers else ["benchmark"]):
        print(f"{', '.join(group)}\n")
        print_spread(part)
        if run.answers:
            print_split(part)


def print_spread(frame):
    """Print accuracy per length and overall, and near recall, as mean and deviation over seeds."""
    score = "score" if "score" in frame else RECALL_COLUMN
    column_title = f"recall at {NEAR_SECONDS:g} s"
    print(f"| K | sampler | {' | '.join(BUCKETS)} | overall | {column_title} | frames scored | seeds | errors |")
    print("|---:|---|" + "---:|" * (len(BUCKETS) + 5))
    groups = frame.groupby(["k", "label"])
    for (k, label), part in sorted(groups, key=lambda entry: (entry[0][0], *sampler_order(entry[0][1]))):
        good = part[part["error"].isna()]
        cells = [spread(good[good["bucket"] == length], score) for length in BUCKETS]
        cells += [spread(good, score), spread(part, RECALL_COLUMN)]
        percent_scored = 100 * part["n_pulls"].sum() / part["n_frames"].sum()
        errors = len(part) - len(good)
        n_seeds = part["seed"].nunique()
        print(f"| {k} | {label} | {' | '.join(cells)} | {percent_scored:.2f} % | {n_seeds} | {errors or ''} |")


def print_split(frame):
    """Print accuracy with and without evidence in view, for all samplers and seeds together."""
    print("\n| K | accuracy with evidence in view | answers | accuracy without | answers |\n|---:|---:|---:|---:|---:|")
    for k, part in frame[frame["error"].isna()].dropna(subset=RECALL_COLUMN).groupby("k"):
        is_hit = part[RECALL_COLUMN] > 0
        cells = [f"{100 * half['score'].mean():.1f} | {len(half)}" for half in (part[is_hit], part[~is_hit])]
        print(f"| {k} | {' | '.join(cells)} |")


def spread(part, column):
    """Return a column's mean in percent and its standard deviation over seeds; "–" without rows."""
    if part.empty:
        return "–"
    seed_means = 100 * part.groupby("seed")[column].mean()
    return f"{seed_means.mean():.1f}" + (f" ± {seed_means.std():.1f}" if len(seed_means) > 1 else "")


def of_label(run, label):
    frame = run.selection_frame
    return frame[frame["label"] == label]


def print_pair(a, b, *names):
    """Print recall of the rows `b` minus that of the rows `a` on the same questions, per K and distance."""
    print(f"| K | distance | {' | '.join(names)} | difference [95 %] | questions | seeds |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for k in sorted(set(a["k"]) & set(b["k"])):
        rows = a[a["k"] == k]
        videos = rows.drop_duplicates(["benchmark", "question_id"]).set_index(["benchmark", "question_id"])["video"]
        for column in RECALL:
            parts = [part[part["k"] == k].groupby(["benchmark", "question_id"])[column].mean() for part in (a, b)]
            pairs = parts[0].to_frame("a").join(parts[1].to_frame("b"), how="inner").dropna()
            estimate = difference_estimate((pairs["b"] - pairs["a"]).to_numpy(), videos.loc[pairs.index].tolist())
            interval = "too few videos" if estimate.low is None else f"{signed(estimate.low)}, {signed(estimate.high)}"
            print(
                f"| {k} | {column.removeprefix('recall@')} s | {100 * pairs['a'].mean():.1f} | "
                f"{100 * pairs['b'].mean():.1f} | {signed(estimate.value)} [{interval}] | "
                f"{len(pairs)} | {rows['seed'].nunique()} |"
            )


def signed(share):
    """Format a share as signed percentage points; a rounded zero has no sign."""
    points = round(100 * share, 1)
    return f"{points:+.1f}" if points else "0.0"


if __name__ == "__main__":
    main()
