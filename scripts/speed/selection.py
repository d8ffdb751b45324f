"""How many GPU hours do the selections of LongVideoBench val take, against the way of the public scripts?

A sample of the benchmark's real lengths and rates (`--annotations`, `--rates`; a few made-up lengths without them),
synthetic H.264 video of those lengths, the real BLIP-large architecture with random weights: neither decoding nor
encoding is faster for it. On a machine without a GPU: a smoke run with a tiny encoder and short clips.

  plain   what the public scripts do (tests/support/keyframes/plain_pipeline.py): a question, a frame at a time, fp32
  ours    focus_eval.keyframes.pipeline.selector, several videos at once, one encoder

Hours are wall-clock of the sample over its pulls, times the pulls of all questions (by a planner, without videos); and
the same by seconds of video. Model loading is left out. `busy` is the share of the wall-clock in which the device was
encoding; decode, resize and select are seconds of all threads together.

Run: python -m scripts.speed.selection --annotations lvb_val.json --rates lvb_val_fps.csv
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from focus_eval import make_sampler
from focus_eval.bench.benchmarks.registry import VideoRate, read_annotations, read_rates
from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.blip import LAVIS, BlipOptions, BlipScorer
from focus_eval.keyframes.encoders.cache import FeatureCache
from focus_eval.keyframes.encoders.torch_scorer import PRECISIONS, torch_device
from focus_eval.keyframes.pipeline.selector import Encoding, Selector
from focus_eval.keyframes.pipeline.timing import device_name
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.encoder_rates import image_gflop, matrix_rate
from tests.support.keyframes.plain_pipeline import OneByOne, PlainPipeline
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS, blip_scorer, random_blip
from tests.support.keyframes.synthetic import moving_texture, repeat_clip

_SEGMENT_SECONDS = 20
_MADE_UP = ((12.0, 2), (58.0, 1), (420.0, 2), (1500.0, 2), (3000.0, 1))  # seconds, questions
_COLUMNS = (
    "way", "sampler", "precision", "questions", "pulls", "forwards", "wall s", "pulls/s", "hours by pulls",
    "by seconds", "decode s", "resize s", "select s", "encode s", "not encoding s", "busy",
)  # fmt: skip
# sampler, generator of the coarse pulls; all of them in the last precision, the first in every one
_RUNS = (
    ("focus_released", "question"),
    ("focus", "question"),
    ("focus", "video"),
    ("focus_gop", "question"),
    ("focus_gop", "video"),
)


@dataclass(frozen=True)
class Sample:
    """Sampled questions by video, and length and rate of every question of the benchmark, to extrapolate hours."""

    questions: dict[str, list[Question]]
    rates: dict[str, VideoRate]

    @property
    def flat(self) -> list[Question]:
        """Sampled questions as one list."""
        return [question for questions in self.questions.values() for question in questions]


def take_sample(args) -> Sample:
    """Return videos drawn evenly from the benchmark in order of length, with all their questions."""
    questions, rates = _made_up() if args.annotations is None else _benchmark(args)
    by_video: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        by_video[question.video].append(question)
    ordered = sorted(by_video, key=lambda video: (rates[by_video[video][0].id].duration_seconds, video))
    places = (np.arange(args.videos) + 0.5) * len(ordered) / args.videos
    videos = [ordered[int(place)] for place in places] if args.videos < len(ordered) else ordered
    questions_by_video = {video: by_video[video] for video in videos}
    max_seconds = args.most_seconds
    rates = {
        item: replace(rate, duration_seconds=min(max_seconds, rate.duration_seconds)) for item, rate in rates.items()
    }
    return Sample(questions_by_video, rates)


def _benchmark(args) -> tuple[list[Question], dict[str, VideoRate]]:
    return read_annotations("longvideobench", args.annotations), read_rates(args.rates)


def _made_up() -> tuple[list[Question], dict[str, VideoRate]]:
    """Return made-up questions on videos of several lengths, with the length and rate of each."""
    questions, rates = [], {}
    for seconds, n in _MADE_UP:
        for at in range(n):
            name = f"{seconds:g}s"
            query = f"In the video, what is the man in the red car on the left doing, and who is cooking? {at}"
            question = Question(
                benchmark="made-up", id=f"{name}_{at}", query=query, options=(), video=name, answer=None
            )
            questions.append(question)
            rates[question.id] = VideoRate(seconds, Fraction(30))
    return questions, rates


def make_clips(sample: Sample, folder: Path, *, width: int, height: int) -> dict[str, Path]:
    """Make a clip of the right length and rate for every video, from one repeated segment per rate."""
    paths = {}
    longest = max(rate.duration_seconds for rate in sample.rates.values())
    for video, questions in sample.questions.items():
        rate = sample.rates[questions[0].id]
        n_segment = round(min(_SEGMENT_SECONDS, longest) * rate.fps)
        segment = folder / f"segment_{float(rate.fps):.3f}.mp4"
        if not segment.exists():
            with ClipWriter(segment, width=width, height=height, fps=rate.fps) as writer:
                for pixels in moving_texture(n_segment, width=width, height=height):
                    writer.write(pixels)
        n_times = max(1, round(rate.n_frames / n_segment))
        paths[video] = repeat_clip(segment, folder / f"{video.replace('/', '_')}.{rate.n_frames}.mp4", n_times=n_times)
    return paths


def hours_of_everything(sample: Sample, sampler, *, k: int, pulls: int, seconds: float) -> tuple[float, float]:
    """Extrapolate the sample's wall-clock to hours for all questions: by pulls, and by seconds of video."""
    counts = {rate: sampler.count_pulls(rate.info, k=k) for rate in set(sample.rates.values())}
    total = sum(counts[rate] for rate in sample.rates.values())
    sampled_seconds = sum(sample.rates[question.id].duration_seconds for question in sample.flat)
    all_seconds = sum(rate.duration_seconds for rate in sample.rates.values())
    return seconds / pulls * total / 3600, seconds / sampled_seconds * all_seconds / 3600


def run_ours(sample, paths, scorer, args, *, sampler: str, coarse_seed: str) -> tuple[dict[str, float], dict]:
    """Run our selector over the sample; return its figures and the keyframes by question."""
    cache = FeatureCache(int(args.kept_gib * 2**30))
    selector = Selector(
        sampler=make_sampler(sampler),
        encoder=scorer,
        k=args.k,
        seed=args.seed,
        coarse_seed=coarse_seed,
        encoding=Encoding(batch_size=args.batch, feature_cache=cache),
    )

    def one_video(video: str) -> list:
        return [selector.select(question, paths[video]) for question in sample.questions[video]]

    busy, resized = scorer.device_seconds, scorer.preprocess_seconds
    start = time.perf_counter()
    with ThreadPoolExecutor(args.workers) as pool:  # long videos first, so that none is left alone at the end
        rows = [row for video_rows in pool.map(one_video, reversed(list(sample.questions))) for row in video_rows]
    wall = time.perf_counter() - start
    figures = {
        "wall": wall,
        "pulls": sum(len(row.pulled_frames) for row in rows),
        "forwards": sum(row.forwards for row in rows),
        "decode": sum(row.seconds.get("decode", 0.0) for row in rows),
        "preprocess": scorer.preprocess_seconds - resized,
        "select": sum(row.seconds.get("select", 0.0) for row in rows),
        "encode": scorer.device_seconds - busy,
    }
    return figures, {row.question_id: row.keyframes for row in rows}


def run_plain(sample, paths, model, scorer, args, questions: list[Question]) -> tuple[dict[str, float], dict]:
    """Run the public scripts' way on some questions; return its figures and the keyframes by question."""
    plain = PlainPipeline(model, scorer.text_inputs, device=scorer.device)
    sampler = make_sampler("focus_released")
    start = time.perf_counter()
    keyframes = {q.id: plain.select(sampler, q, paths[q.video], k=args.k, seed=args.seed) for q in questions}
    figures = {"wall": time.perf_counter() - start, "pulls": plain.pulls, "forwards": plain.pulls}
    return {**figures, **plain.meter.seconds}, keyframes


def table_row(name: str, sampler: str, precision: str, figures, hours: tuple[float, float] | None, n: int) -> str:
    """Return the table's line for one run."""
    wall, encode = figures["wall"], figures["encode"]
    cells = [name, sampler, precision, str(n), str(figures["pulls"]), str(figures["forwards"]), f"{wall:.1f}"]
    cells += [f"{figures['pulls'] / wall:.0f}", *(f"{hour:.2f}" for hour in hours or ())]
    cells += [f"{figures.get(part, 0.0):.1f}" for part in ("decode", "preprocess", "select")]
    cells += [f"{encode:.1f}", f"{max(0.0, wall - encode):.1f}", f"{100 * encode / wall:.0f} %"]
    return "| " + " | ".join(cells) + " |"


def encoder_speed(scorer, precision: str, batch: int, *, gflop: float) -> str:
    """Return the image tower's own speed on prepared frames, against the device's matrix rate."""
    side = scorer.image_rules.height
    frames = np.random.default_rng(0).integers(0, 256, (4 * batch, side, side, 3), dtype=np.uint8)
    scorer.embed(frames[:batch])
    busy = scorer.device_seconds
    scorer.embed(frames)
    rate = len(frames) / (scorer.device_seconds - busy)
    reached, peak_rate = rate * gflop / 1000, matrix_rate(scorer.device, precision)
    share = 100 * reached / peak_rate
    return f"{precision}: {rate:.1f} frames/s alone, {reached:.3g} of {peak_rate:.3g} TFLOP/s ({share:.0f} %)"


def main() -> None:
    args = parse_arguments()
    device = str(torch_device(args.device))
    sample = take_sample(args)
    size, rules = ("tiny", replace(LAVIS, text_heads=TINY_BLIP_HEADS)) if args.smoke else ("large", LAVIS)
    encoder_options = {"image_size": 96} if args.smoke else {"device": device}
    model, tokenizer = random_blip(size, **encoder_options)
    plain_model = random_blip(size, **encoder_options)[0].to(device)

    def scorer_of(precision: str) -> BlipScorer:
        options = BlipOptions(device=device, precision=precision, batch_size=args.batch, compile=args.compile)
        return blip_scorer(model, tokenizer, rules=rules, options=options)

    machine_text = f"{device_name(device)}, {os.cpu_count()} cores, torch {torch.__version__}"
    print(f"# BLIP-ITM {size}, random weights, {machine_text}")
    source = "LongVideoBench val" if args.annotations else "made-up lengths"
    print(f"{len(sample.flat)} of {len(sample.rates)} questions, {len(sample.questions)} videos, {source}")
    if args.smoke:
        print(f"smoke run: videos cut to {args.most_seconds:g} s; its hours are of cut videos and say nothing")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        start = time.perf_counter()
        paths = make_clips(sample, Path(folder), width=640, height=360)
        print(f"clips made in {time.perf_counter() - start:.0f} s; {args.workers} videos at once\n")
        print("| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS))
        compare(sample, paths, plain_model, scorer_of, args)
    gflop = image_gflop(model.config)
    speeds = [encoder_speed(scorer_of(item), item, args.batch, gflop=gflop) for item in args.precisions]
    print("\n" + "\n".join(speeds))


def compare(sample: Sample, paths, plain_model, scorer_of, args) -> None:
    """Print a row for the public way and for each of our runs, and whether both chose the same frames."""
    reference = scorer_of("fp32")
    flat = sample.flat
    compared_questions = [
        flat[int(place)] for place in (np.arange(args.plain_questions) + 0.5) * len(flat) / args.plain_questions
    ]
    figures, expected = run_plain(sample, paths, plain_model, reference, args, compared_questions)
    share = replace(sample, questions={q.id: [q] for q in compared_questions})
    released = make_sampler("focus_released")
    hours = hours_of_everything(share, released, k=args.k, pulls=figures["pulls"], seconds=figures["wall"])
    print(
        table_row(f"plain, {OneByOne.name}", "focus_released", "fp32", figures, hours, len(compared_questions)),
        flush=True,
    )
    public = hours[0]
    notes = []
    for precision in args.precisions:
        scorer = scorer_of(precision)
        scorer.relevance(scorer.embed(np.zeros((args.batch, 360, 640, 3), np.uint8)), "warm up")
        for name, coarse_seed in _RUNS if precision == args.precisions[-1] else _RUNS[:1]:
            figures, keyframes = run_ours(sample, paths, scorer, args, sampler=name, coarse_seed=coarse_seed)
            sampler = make_sampler(name)
            hours = hours_of_everything(sample, sampler, k=args.k, pulls=figures["pulls"], seconds=figures["wall"])
            label = name if coarse_seed == "question" else f"{name}, coarse_seed=video"
            print(table_row("ours", label, precision, figures, hours, len(flat)), flush=True)
            if name == "focus_released":
                n_same = sum(len(set(expected[q.id]) & set(keyframes[q.id])) for q in compared_questions)
                of = sum(len(frames) for frames in expected.values())
                comparison = (
                    f"{public / hours[0]:.1f} times less by pulls, {n_same} of {of} keyframes as the plain way chose"
                )
                notes.append(f"focus_released, {precision}: {comparison}; recoveries {scorer.recoveries or 'none'}")
    print("\n" + "\n".join(notes))


def parse_arguments() -> argparse.Namespace:
    """Return the options, with the defaults of this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotations", type=Path, help="LongVideoBench val, JSON")
    parser.add_argument("--rates", type=Path, help="CSV with id, duration_s, fps of its questions")
    parser.add_argument("--smoke", action="store_true", help="tiny encoder, short clips; always without a GPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--videos", type=int, help="videos of the sample (default: 12, smoke: 3)")
    parser.add_argument("--most-seconds", type=float, help="cut videos to this (default: smoke: 60)")
    parser.add_argument("--plain-questions", type=int, default=3, help="questions the public way is timed on")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, help="default: fp32 tf32 bf16 fp16, smoke: fp32")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="videos at once")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept-gib", type=float, default=8.0, help="memory for image states of other questions")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the clips lie while it runs")
    args = parser.parse_args()
    if (args.annotations is None) != (args.rates is None):
        parser.error("--annotations and --rates go together")
    args.smoke = args.smoke or str(torch_device(args.device)) == "cpu"
    args.videos = args.videos or (3 if args.smoke else 12)
    args.precisions = args.precisions or (["fp32"] if args.smoke else list(PRECISIONS))
    args.most_seconds = args.most_seconds or (60.0 if args.smoke else float("inf"))
    args.kept_gib = min(args.kept_gib, 0.5) if args.smoke else args.kept_gib
    return args


if __name__ == "__main__":
    main()
