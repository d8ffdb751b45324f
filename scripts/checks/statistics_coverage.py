"""Check the report's intervals and tests by simulation: `statistics_coverage.py [--repeats N] [--part NAME]`.

Parts: `groups` (coverage of a difference between two groups of questions, few videos on one side), `means` (coverage of
an accuracy's interval), `differences` (coverage of a paired difference's), `equal` (how often equal samplers are told
apart by the sign-flip test), `unequal` (the same, arrows and coverage, where videos have very different numbers of
questions and differences are skewed or linked to that number), `gains` (how often a stated difference gets an arrow
where not all videos gain), `types` (means over task types with few questions), `looks` (errors of a verdict that looks
up to four times), `chances` (false arrows of several looks at a growing run, and of several comparisons), `power` (of
the minimum detectable difference), `cost` (seconds per test).

All take about ten processor minutes with 400 runs per line; the standard error of a share is then 1.1 points near 5 and
95 %, 2 near 80 %. Prints Markdown tables; `--csv results/published` also writes those that docs/statistics.md sums up.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import time
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from scipy.special import stdtr

from focus_eval.bench.report.power import Discordance, least_difference
from focus_eval.bench.report.sign_flips import sign_flip_p
from focus_eval.bench.report.statistics import (
    detectable_difference,
    difference_estimate,
    holm,
    mean_estimate,
    video_sums,
)
from focus_eval.external.clustered import ClusteredDesign
from focus_eval.lab.verdict import LOOKS

DIRECTIONS = ("direction/easy", "direction/medium", "direction/hard")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000, help="simulated runs per line")
    parser.add_argument("--part", choices=PARTS, action="append", help="one part only; repeatable")
    parser.add_argument("--csv", type=Path, help="folder for statistics_PART.csv")
    arguments = parser.parse_args()
    for name in arguments.part or PARTS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            PARTS[name](arguments.repeats)
        print(f"\n### {name}\n\n{printed.getvalue()}", flush=True)
        if arguments.csv:
            write_csv(arguments.csv / f"statistics_{name}.csv", printed.getvalue())


def write_csv(path, table):
    """Write the cells of a Markdown table to a CSV file."""
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|--")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(cells)


def scores(rng, difficulty, videos, kind):
    """Draw scores of one sampler, shape `(n,)`: right or wrong, means over four seeds, or partial credit in tenths."""
    chance = difficulty[videos]
    if kind == "partial":
        return np.round(rng.beta(np.maximum(chance, 1e-3), np.maximum(1 - chance, 1e-3)), 1)
    seeds = 4 if kind == "4 seeds" else 1
    return (rng.random((seeds, videos.size)) < chance).mean(axis=0)


def difficulties(rng, n_videos, mean, correlation):
    """Draw the chance of a right answer for each video, beta-distributed with that mean and correlation."""
    concentration = (1 - correlation) / correlation
    return rng.beta(mean * concentration, (1 - mean) * concentration, n_videos)


def means(repeats):
    """Print how often intervals of a mean cover it, by kind of score, number of videos and mean."""
    print("| scores | videos | p = .5 | p = .8 | p = .95 |\n|---|---:|---:|---:|---:|")
    for kind in ("right or wrong", "4 seeds", "partial", "task types"):
        for n_videos in (5, 9, 12, 20, 30, 60, 300):
            shares = [100 * mean_coverage(kind, n_videos, mean, repeats) for mean in (0.5, 0.8, 0.95)]
            print(f"| {kind} | {n_videos} | " + " | ".join(f"{share:.1f}" for share in shares) + " |", flush=True)


def mean_coverage(kind, n_videos, mean, repeats, *, per_video=3, correlation=0.2):
    """Return the share of simulated runs whose interval covers the true mean."""
    rng, covered = np.random.default_rng([1, n_videos, int(100 * mean)]), 0
    videos = np.repeat(np.arange(n_videos), per_video)
    strata = None
    if kind == "task types":
        per_video, videos = 6, np.repeat(np.arange(n_videos), 6)
        strata = [("count", "count", "route", *DIRECTIONS)[i % 6] for i in range(videos.size)]
    truth = mean
    if kind == "partial":  # rounding to tenths moves the mean a little
        videos_of_all = np.arange(200_000)
        truth = scores(rng, difficulties(rng, videos_of_all.size, mean, correlation), videos_of_all, kind).mean()
    for _ in range(repeats):
        sample = scores(rng, difficulties(rng, n_videos, mean, correlation), videos, kind)
        estimate = mean_estimate(sample, videos, strata=strata)
        covered += estimate.low <= truth <= estimate.high
    return covered / repeats


CASES = {
    "no difference": (0.6, 0.6, 0.0),
    "6 points lost, uneven over videos": (0.6, 0.8, 0.1),
    "18 points lost, uneven": (0.6, 0.6, 0.3),
    "p = .95, 5 points lost, uneven": (0.95, 0.9, 0.05),
}


def differences(repeats):
    """Print how often intervals of a difference cover it, by kind of score, number of videos and case."""
    print("Coverage in % where an interval is printed; in brackets the share of runs with enough videos for one.\n")
    print(f"| scores | videos | {' | '.join(CASES)} |\n|---|---:|{'---:|' * len(CASES)}")
    for kind in ("right or wrong", "4 seeds", "partial"):
        for n_videos in (12, 20, 30, 60, 300):
            cells = [difference_coverage(kind, n_videos, case, repeats) for case in CASES.values()]
            print(f"| {kind} | {n_videos} | {' | '.join(cells)} |", flush=True)


def difference_coverage(kind, n_videos, case, repeats):
    """Return the percentage of covering intervals, with that of runs that have one in brackets."""
    rng, covered, printed = np.random.default_rng([2, n_videos, int(1000 * sum(case))]), 0, 0
    truth = paired(rng, 200_000, 1, kind, *case)[0].mean()
    for _ in range(repeats):
        sample, videos = paired(rng, n_videos, 3, kind, *case)
        estimate = difference_estimate(sample, videos)
        if estimate.low is not None:
            printed += 1
            covered += estimate.low <= truth <= estimate.high
    return f"{100 * covered / printed:.1f} ({100 * printed / repeats:.0f})" if printed else "– (0)"


def paired(rng, n_videos, per_video, kind, mean, alike, lost):
    """Draw score differences of two samplers, and the video of each question.

    A share `alike` of the scores is the same. In some videos the second sampler loses a share with mean `lost`.
    """
    videos = np.repeat(np.arange(n_videos), per_video)
    easy = difficulties(rng, n_videos, mean, 0.2)
    a, b = scores(rng, easy, videos, kind), scores(rng, easy, videos, kind)
    b = np.where(rng.random(videos.size) < alike, a, b)
    if lost:
        losing = rng.beta(0.5, 0.5 / lost - 0.5, n_videos)
        b = np.where(rng.random(videos.size) < losing[videos], 0.0, b)
    return b - a, videos


def equal(repeats):
    """Print how often the sign-flip test tells equal samplers apart, by shape of the run and seeds."""
    print("| shape | seeds | sign-flip rejects (%) |\n|---|---:|---:|")
    for name, n_videos, per_video, correlation in (
        ("12 videos of 3 questions", 12, 3, 0.2),
        ("753 videos of 2 (LongVideoBench)", 753, 2, 0.3),
        ("288 videos of 18, correlation .3 (VSI-Bench)", 288, 18, 0.3),
    ):
        for seeds in (1, 2, 4, 5):
            rng, rejected = np.random.default_rng([3, n_videos, seeds]), 0
            videos = np.repeat(np.arange(n_videos), per_video)
            for _ in range(repeats):
                a, b = equal_samplers(rng, n_videos, videos, seeds, correlation)
                rejected += sign_flip_p(video_sums(b - a, videos), draws=4000)[0] <= 0.05
            print(f"| {name} | {seeds} | {100 * rejected / repeats:.1f} |", flush=True)


def equal_samplers(rng, n_videos, videos, seeds, correlation):
    """Draw scores of two equally accurate samplers, each better on some videos.

    The first is deterministic; the scores of the second are means over `seeds`.
    """
    easy = difficulties(rng, n_videos, 0.5, correlation)
    tilt = rng.normal(0, np.sqrt(correlation) / 4, n_videos)
    chances = [np.clip(easy + sign * tilt, 0, 1)[videos] for sign in (1, -1)]
    return tuple(
        (rng.random((n, videos.size)) < item).mean(axis=0) for n, item in zip((1, seeds), chances, strict=True)
    )


SIZES = {
    "1 to 6 questions": lambda rng, n: rng.integers(1, 7, n),
    "log-normal, s 1.2": lambda rng, n: np.ceil(np.exp(rng.normal(0.5, 1.2, n))).astype(int),
    "Zipf, 60 / rank": lambda _, n: np.maximum(1, np.round(60 / np.arange(1, n + 1))).astype(int),
    "Pareto, 1.5, up to 200": lambda rng, n: np.minimum(200, np.ceil(rng.pareto(1.5, n) + 1e-9)).astype(int),
}


LINKED = "large videos gain, small ones lose"


def linked_mean(draw, n_videos):
    """Return a function of sizes to expected differences of videos, which depend on the size and are 0 over questions.

    Videos of the sizes that hold the larger half of all questions gain .2.
    """
    sizes = np.sort(np.maximum(1, draw(np.random.default_rng(0), n_videos)))
    # Not the smallest size, which most videos may have.
    least_large = max(sizes[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)], sizes[0] + 1)
    is_large = sizes >= least_large
    loss = 0.2 * sizes[is_large].sum() / sizes[~is_large].sum()
    return lambda sizes: np.where(sizes >= least_large, 0.2, -loss)


def mean_zero(rng, sizes, shape, of_size):
    """Draw each video's mean difference, `(n_videos,)`; its expectation over questions is 0."""
    if shape == LINKED:
        return np.clip(of_size(sizes) + rng.normal(0, 0.3, sizes.size), -1, 1)
    if shape == "symmetric":
        return np.clip(rng.normal(0, 0.4, sizes.size), -1, 1)
    if shape == "exponential":
        return np.minimum(rng.exponential(0.2, sizes.size), 1) - 0.2 + 0.2 * np.exp(-5)
    if shape == "one in ten gains .9":
        return np.where(rng.random(sizes.size) < 0.1, 0.9, -0.1)
    return rng.binomial(sizes, rng.beta(0.2, 1.8, sizes.size)) / sizes - 0.1  # right in few videos


def unequal(repeats):
    """Print how tests, arrows and intervals fare with videos of unequal numbers of questions and no difference."""
    titles = ("p below .05 (%)", "an arrow (%)", "unstudentised (%)", "interval covers (%)")
    print(f"| questions per video | differences | videos | {' | '.join(titles)} |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name, draw in SIZES.items():
        for shape in ("symmetric", "exponential", "one in ten gains .9", "right in few videos", LINKED):
            for n_videos in (40, 100, 400):
                shares = unequal_shares(draw, shape, n_videos, repeats if n_videos < 400 else repeats // 2)
                print(f"| {name} | {shape} | {n_videos} | " + " | ".join(f"{x:.1f}" for x in shares) + " |", flush=True)


def unequal_shares(draw, shape, n_videos, repeats):
    """Return four percentages of runs: p below .05, an arrow, a plain test's p below .05, an interval with 0."""
    rng, counts = np.random.default_rng([5, n_videos, len(shape)]), np.zeros(4)
    # Sizes that are drawn have an expectation over questions, the ranked ones of Zipf are the same in every run.
    of_size = linked_mean(draw, n_videos if draw is SIZES["Zipf, 60 / rank"] else 100_000)
    for _ in range(repeats):
        sizes = np.maximum(1, draw(rng, n_videos))
        differences = np.repeat(mean_zero(rng, sizes, shape, of_size), sizes)
        videos = np.repeat(np.arange(n_videos), sizes)
        sums, weights = video_sums(differences, videos), video_sums(np.ones(videos.size), videos)
        plain = np.abs((1.0 - 2.0 * rng.integers(0, 2, (1000, n_videos))) @ sums)
        estimate = difference_estimate(differences, videos)
        is_rejected = sign_flip_p(sums, weights=weights, draws=1000)[0] <= 0.05
        counts += [
            is_rejected,
            is_rejected and estimate.leaves_out_zero,
            ((plain >= abs(sums.sum()) - 1e-12).sum() + 1) / 1001 <= 0.05,
            not estimate.leaves_out_zero,
        ]
    return 100 * counts / repeats


# Runs for `gains`: questions per video.
RUNS = {
    "6 videos of 80": [80] * 6,
    "20 videos of 3": [3] * 20,
    "60 videos of 3": [3] * 60,
    "296 videos of 3": [3] * 296,
    "753 videos of 2": [2] * 753,
    "60 videos, 60 / rank": [max(1, round(60 / rank)) for rank in range(1, 61)],
    "400 videos, 60 / rank": [max(1, round(60 / rank)) for rank in range(1, 401)],
}
GAINING = ("all videos", "half of them", "a quarter of them", "large ones")


def gains(repeats):
    """Print how often a difference of the stated size gets an arrow, by which videos gain it.

    It is stated for a single comparison, and for one of ten whose p Holm multiplies by ten.
    """
    titles = ("stated", *(f"{name} gain (%)" for name in GAINING), "stated of ten", "all videos gain, of ten (%)")
    print(f"| run | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for name, sizes in RUNS.items():
        difference, of_ten = (
            least_difference(sizes, Discordance(share=0.3, video_correlation=0.1), tests=tests) for tests in (1, 10)
        )
        shares = [arrow_share(sizes, difference, gaining, repeats) for gaining in GAINING]
        last = arrow_share(sizes, of_ten, GAINING[0], repeats, tests=10)
        stated = ["none" if item is None else f"{100 * item:.1f}" for item in (difference, of_ten)]
        print(f"| {name} | {' | '.join((stated[0], *shares, stated[1], last))} |", flush=True)


def arrow_share(sizes, difference, gaining, repeats, *, tests=1):
    """Return the percentage of runs in which the difference gets an arrow as a text; "–" if no run can have it.

    Answers differ on 30 % of the questions, correlated by .1 within a video. Where all videos gain, the difference is
    in the chances of every video; else the gaining videos turn equal answers into gains until the mean is as large.
    """
    counts = np.asarray(sizes)
    shares, videos = counts / counts.sum(), np.repeat(np.arange(counts.size), counts)
    is_even = gaining == GAINING[0]
    if difference is None or (gaining == GAINING[3] and counts.min() == counts.max()):
        return "–"
    rng, n_arrows = np.random.default_rng([8, counts.size, len(gaining), tests]), 0
    runs = urn_runs(rng, videos, 0.1, 0.3, difference if is_even else 0.0)
    for differences, _ in itertools.islice(runs, repeats):
        if not is_even:
            is_gaining = gaining_videos(rng, counts, gaining)
            chance = difference / shares[is_gaining].sum()
            if chance > 1:
                return "–"
            differences = np.where(is_gaining[videos] & (rng.random(videos.size) < chance), 1.0, differences)
        sums = np.bincount(videos, weights=differences) / videos.size
        p_value = sign_flip_p(sums, weights=shares, draws=1000 * tests)[0]
        n_arrows += p_value <= 0.05 / tests and difference_estimate(differences, videos).leaves_out_zero
    return f"{100 * n_arrows / repeats:.1f}"


def gaining_videos(rng, counts, gaining):
    """Return a mask of the videos that gain: a random share of them, or the largest with half of the questions."""
    if gaining == GAINING[3]:
        return np.cumsum(counts) - counts < counts.sum() / 2
    n_gaining = counts.size // (2 if gaining == GAINING[1] else 4)
    return np.isin(np.arange(counts.size), rng.permutation(counts.size)[:n_gaining])


TYPES = {
    "9 types of 2 questions": [2] * 9,
    "9 types of 3": [3] * 9,
    "6 types, one of 1 question, others of 4": [1, 4, 4, 4, 4, 4],
    "12 types of 1": [1] * 12,
    "7 types of 1 to 60": [60, 30, 12, 6, 3, 2, 1],
}


def types(repeats):
    """Print how often the intervals of means over task types cover, where each question has its own video."""
    print("| task types, a video each question | p = .5 | p = .8 | a difference, p = .6 |\n|---|---:|---:|---:|")
    for name, counts in TYPES.items():
        cells = [types_coverage(counts, mean, repeats) for mean in (0.5, 0.8, None)]
        print(f"| {name} | " + " | ".join(f"{100 * share:.1f}" for share in cells) + " |", flush=True)


def types_coverage(counts, mean, repeats):
    """Return how often the interval of the mean over differing task types covers the truth.

    The interval is of an accuracy around `mean`, or of a paired difference if `mean` is None.
    """
    rng, covered = np.random.default_rng([6, len(counts), sum(counts)]), 0
    kind = np.repeat(np.arange(len(counts)), counts)
    tilt = np.linspace(-0.15, 0.15, len(counts))
    for _ in range(repeats):
        if mean is None:
            sample = (rng.random(kind.size) < 0.6) - (rng.random(kind.size) < 0.6 - tilt[kind]).astype(float)
            estimate, truth = difference_estimate(sample, range(kind.size), strata=kind.astype(str)), 0.0
        else:
            sample = (rng.random(kind.size) < mean + tilt[kind]).astype(float)
            estimate, truth = mean_estimate(sample, range(kind.size), strata=kind.astype(str)), mean
        covered += estimate.low <= truth <= estimate.high
    return covered / repeats


def looks(repeats):
    """Print how often a verdict on six rivals states a difference or an equivalence that does not exist.

    Uses t tests: over so many equal videos, sign-flip tests agree with them.
    """
    print("| the truth | something wrong stated (%) | all decided (%) | videos, mean |\n|---|---:|---:|---:|")
    cases = {"six equal": [0.0] * 6, "six 3 points apart": [0.03] * 6, "one of six 10 points better": [0.1, *[0.0] * 5]}
    for name, gains in cases.items():
        rng = np.random.default_rng([7, len(name)])
        ends = np.array([verdict_by_looks(rng, np.array(gains)) for _ in range(repeats)])
        wrong, decided, videos = ends.mean(axis=0) * (100, 100, 1)
        print(f"| {name} | {wrong:.1f} | {decided:.1f} | {videos:,.0f} |", flush=True)


def verdict_by_looks(rng, gains):
    """Simulate a verdict; return whether it states something wrong, whether it decides all, and on how many videos."""
    video_gains = np.clip(rng.normal(0, 0.3, (gains.size, LOOKS[-1])), -1, 1) + gains[:, np.newaxis]
    for n in LOOKS:
        mean, error = video_gains[:, :n].mean(axis=1), video_gains[:, :n].std(axis=1, ddof=1) / np.sqrt(n)
        differs = holm(2 * stdtr(n - 1, -np.abs(mean) / error)) * sum(LOOKS) / n < 0.05
        alike = holm(stdtr(n - 1, (np.abs(mean) - 0.03) / error)) * sum(LOOKS) / n < 0.05
        if (differs | alike).all():
            break
    wrong = (differs & (gains == 0)) | (alike & (np.abs(gains) >= 0.03))
    return wrong.any(), (differs | alike).all(), n


def chances(repeats):
    """Print in how many runs without any difference at least one arrow appears, by looks or by separate comparisons."""
    print("| run | one look (%) | four looks (%) | ten pairs (%) | ten rivals of one sampler (%) |")
    print("|---|---:|---:|---:|---:|")
    for n_videos, per_video in ((60, 3), (296, 3)):
        videos = np.repeat(np.arange(n_videos), per_video)
        rng, counts = np.random.default_rng([9, n_videos]), np.zeros(4)
        runs = urn_runs(rng, videos, 0.1, 0.3, 0.0)
        for _ in range(repeats):
            differences, _ = next(runs)
            parts = [videos < n_videos * quarter // 4 for quarter in (1, 2, 3)]
            earlier = [has_arrow(differences[part], videos[part]) for part in parts]
            one_look = has_arrow(differences, videos)
            ability = np.clip(rng.normal(0.6, 0.2, n_videos), 0.05, 0.95)[videos]
            right = (rng.random((11, videos.size)) < ability).astype(float)
            pairs = [has_arrow(next(runs)[0], videos) for _ in range(10)]
            rivals = [has_arrow(rival - right[0], videos) for rival in right[1:]]
            counts += [one_look, one_look or any(earlier), any(pairs), any(rivals)]
        shares = " | ".join(f"{share:.1f}" for share in 100 * counts / repeats)
        print(f"| {n_videos} videos of {per_video} | {shares} |", flush=True)


def has_arrow(differences, videos):
    """Return whether a single comparison shows an arrow: p of at most .05 and an interval without 0."""
    sums, weights = video_sums(differences, videos), video_sums(np.ones(videos.size), videos)
    is_rejected = sign_flip_p(sums, weights=weights, draws=1000)[0] <= 0.05
    return is_rejected and difference_estimate(differences, videos).leaves_out_zero


# Videos, questions of each, correlation of differences within a video.
SHAPES = ((12, 3, 0.1), (20, 3, 0.1), (60, 18, 0.3), (296, 3, 0.1), (753, 2, 0.06))


def power(repeats):
    """Print how often a difference of the stated size is found, by shape of the run and discordance.

    The difference is stated twice: before the run, from its discordance, and after it, from its rows, where it is the
    median over runs. Each is then simulated, with video chances drawn from a Dirichlet distribution.
    """
    print("| videos | questions | correlation | discordance | stated | found (%) | from rows | its share (%) |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for n_videos, per_video, correlation in SHAPES:
        for share in (0.1, 0.21, 0.4):
            shape, rng = (
                (n_videos, per_video, correlation, share),
                np.random.default_rng([4, n_videos, int(100 * share)]),
            )
            difference_before = least_difference(
                [per_video] * n_videos, Discordance(share=share, video_correlation=correlation)
            )
            row_differences = [
                detectable_difference(*run) for run in itertools.islice(shape_runs(rng, shape, 0.0), repeats // 10)
            ]
            from_rows = np.median([np.inf if item is None else item for item in row_differences])
            cells = []
            for difference in (difference_before, None if np.isinf(from_rows) else from_rows):
                if difference is None:
                    cells += [f"none ({found_share(rng, shape, share, repeats):.0f} % at most)", "–"]
                else:
                    cells += [f"{100 * difference:.1f}", f"{found_share(rng, shape, difference, repeats):.1f}"]
            print(f"| {' | '.join(map(str, shape))} | {' | '.join(cells)} |", flush=True)


def found_share(rng, shape, difference, repeats):
    """Return the percentage of simulated runs in which the sign-flip test finds the difference."""
    n_videos = shape[0]
    runs = itertools.islice(shape_runs(rng, shape, difference), repeats)
    sums = np.array([np.bincount(videos, weights=differences) / videos.size for differences, videos in runs])
    weights = np.full(n_videos, 1 / n_videos)
    return 100 * np.mean([sign_flip_p(line, weights=weights, draws=1000)[0] <= 0.05 for line in sums])


def shape_runs(rng, shape, difference):
    """Yield `urn_runs` of a shape: videos, questions of each, correlation, discordance."""
    n_videos, per_video, correlation, share = shape
    return urn_runs(rng, np.repeat(np.arange(n_videos), per_video), correlation, share, difference)


def urn_runs(rng, videos, correlation, share, difference):
    """Yield score differences and videos of runs; a video's chances of gain and loss vary with that correlation."""
    chances = np.maximum([(share + difference) / 2, (share - difference) / 2, 1 - share], 1e-9)
    n_videos = int(videos.max()) + 1
    while True:
        of_video = rng.dirichlet(chances * (1 - correlation) / correlation, n_videos)[videos]
        draws = rng.random(videos.size)
        yield (draws < of_video[:, 0]).astype(float) - (draws > 1 - of_video[:, 1]), videos


def cost(_repeats):
    """Print how many seconds a sign-flip test takes."""
    print("| videos with a difference | seconds per test |\n|---:|---:|")
    for n_videos in (12, 20, 21, 300, 900):
        sums = np.random.default_rng(n_videos).normal(size=n_videos)
        started = time.perf_counter()
        for _ in range(5):
            sign_flip_p(sums)
        print(f"| {n_videos} | {(time.perf_counter() - started) / 5:.3f} |")


def groups(repeats):
    """Print how often intervals of a difference between groups of videos cover it, by two methods."""
    print("| videos on one side | CR2, Satterthwaite | cluster-robust, videos less one |\n|---:|---:|---:|")
    for first in (5, 8, 15, 50):
        rng, covered = np.random.default_rng([4, first]), np.zeros(2)
        for _ in range(repeats):
            videos = np.repeat(np.arange(300), rng.integers(1, 6, 300))
            sample = scores(rng, difficulties(rng, 300, 0.6, 0.2), videos, "right or wrong")
            side = (videos < first)[:, np.newaxis].astype(float)
            estimate = ClusteredDesign(videos).fit(sample, side)[0].estimate()
            plain = sm.OLS(sample, sm.add_constant(side)).fit(
                cov_type="cluster", cov_kwds={"groups": videos}, use_t=True
            )
            covered += [estimate.low <= 0 <= estimate.high, plain.conf_int()[1][0] <= 0 <= plain.conf_int()[1][1]]
        print(f"| {first} | " + " | ".join(f"{100 * share:.1f}" for share in covered / repeats) + " |", flush=True)


PARTS = {
    "groups": groups,
    "means": means,
    "differences": differences,
    "equal": equal,
    "unequal": unequal,
    "gains": gains,
    "types": types,
    "looks": looks,
    "chances": chances,
    "power": power,
    "cost": cost,
}

if __name__ == "__main__":
    main()
