"""How fast is BLIP in each precision, what does that change, and what does sharing the image tower save?

Real architecture, random weights: speed does not depend on the values, relevance says nothing about the pictures.
All in one run on one device:

  precision  frames a second through the image tower, share of the device's measured matrix rate, largest and mean
             change in relevance and keyframes changed against fp32 (topk, aks and focus on the relevance of all frames)
  resize     Pillow on the CPU against the same integers on the device: frames a second, values that differ
  questions  seconds per frame and question for 1 to 8 questions at once on kept image states, against one by one

Run: python -m scripts.speed.encoders [--tiny] [--device auto] [--compile]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from focus_eval import make_sampler
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.encoders.blip import LAVIS, BlipOptions, BlipScorer
from focus_eval.keyframes.encoders.preprocess import ImageRules, resize_frames, resize_on_device
from focus_eval.keyframes.encoders.torch_scorer import PRECISIONS, torch_device
from focus_eval.keyframes.pipeline.timing import device_name
from tests.support.keyframes.encoder_rates import image_gflop, matrix_rate, text_gflop, wait
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS, blip_scorer, random_blip
from tests.support.keyframes.synthetic import moving_texture

_QUESTIONS = (
    "what is the man in the red car doing on the left?",
    "who is cooking, and what color is the dog?",
    "in the video, a woman in a blue coat walks past a station: what does she pick up first?",
    "what is in the video?",
    "what does the sign on the wall of the old house next to the railway say when the man turns around?",
    "is the cat on the car?",
    "which of the following objects appears after the man with the hat leaves the room?",
    "what color is the car?",
)


def varied_frames(n: int) -> np.ndarray:
    """Return frames `(n, 360, 640, 3)` of moving texture whose light and colour change from scene to scene."""
    rng = np.random.default_rng(0)
    texture = moving_texture(n, width=640, height=360)
    gains = np.repeat(rng.uniform(0.1, 1.0, (n // 8 + 1, 1, 1, 3)), 8, axis=0)[:n]
    return np.stack([(frame * gain).astype(np.uint8) for frame, gain in zip(texture, gains, strict=True)])


def scorer_of(parts, *, tiny: bool, scorer_class: type[BlipScorer] = BlipScorer, **options) -> BlipScorer:
    """Return a scorer with the given options on the shared random model."""
    rules = replace(LAVIS, text_heads=TINY_BLIP_HEADS) if tiny else LAVIS
    return blip_scorer(*parts, rules=rules, options=BlipOptions(**options), scorer_class=scorer_class)


def timed(device, call):
    """Return the result of `call` and its seconds until the device has finished."""
    wait(device)
    start = time.perf_counter()
    result = call()
    wait(device)
    return result, time.perf_counter() - start


def chosen_frames(relevance: np.ndarray, *, k: int) -> dict[str, set[int]]:
    """Return the keyframes that each of three samplers chooses by one question's relevance, at one frame a second."""
    video = VideoInfo(n_frames=len(relevance), fps=1.0)
    rng = np.random.default_rng
    return {
        name: set(make_sampler(name).select(video, k=k, pull=lambda f: relevance[f], rng=rng(0)).keyframes)
        for name in ("topk", "aks", "focus")
    }


def compare_precisions(parts, frames, args) -> None:
    """Print speed and change against fp32, a row for each precision."""
    model, _ = parts
    gflop = image_gflop(model.config)
    device = str(torch_device(args.device))
    changes = "relevance moves at most | on average | keyframes changed: topk | aks | focus"
    print(f"| precision | frames/s | TFLOP/s | of the matrix rate | {changes} |")
    print("|---|---|---|---|---|---|---|---|---|")
    reference = None
    for precision in PRECISIONS:
        if precision == "tf32" and not device.startswith("cuda"):
            continue
        variant = scorer_of(
            parts, tiny=args.tiny, device=device, precision=precision, batch_size=args.batch, compile=args.compile
        )
        prepared = variant.prepare(frames)
        variant.embed(prepared[: args.batch])  # compiles, tunes and warms up
        busy = variant.device_seconds
        tokens = variant.embed(prepared)
        rate = len(frames) / (variant.device_seconds - busy)
        relevance = variant.relevance_many(tokens, _QUESTIONS)
        reference = relevance if reference is None else reference
        moved = np.abs(relevance - reference)
        changed = dict.fromkeys(("topk", "aks", "focus"), 0)
        for row, exact in zip(relevance, reference, strict=True):
            row_frames, exact_frames = chosen_frames(row, k=args.k), chosen_frames(exact, k=args.k)
            for name in changed:
                changed[name] += len(exact_frames[name] - row_frames[name])
        ceiling = matrix_rate(device, precision)
        cells = [
            precision + "".join(f", {name} {count}" for name, count in variant.recoveries.items()),
            f"{rate:.1f}",
            f"{rate * gflop / 1000:.3g}",
            f"{100 * rate * gflop / 1000 / ceiling:.0f} % of {ceiling:.3g}",
            f"{moved.max():.1e}",
            f"{moved.mean():.1e}",
            *(f"{100 * count / args.k / len(_QUESTIONS):.1f} %" for count in changed.values()),
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    print(f"spread of relevance over frames: {reference.std(axis=1).mean():.3f}; {len(frames)} frames, k = {args.k}")


def compare_resizes(frames, device: str, side: int) -> None:
    """Print speed and differing values of Pillow's resize on the CPU and the integer resize on the device."""
    rules = ImageRules(height=side, width=side)
    target = torch.device(device)
    pillow, cpu_seconds = timed(device, lambda: resize_frames(frames, rules))
    uploaded = torch.tensor(frames).to(target)
    resize_on_device(uploaded[:1], rules)
    on_device, device_seconds = timed(
        device, lambda: torch.cat([resize_on_device(part, rules) for part in uploaded.split(32)])
    )
    differing = int((on_device.permute(0, 2, 3, 1).cpu().numpy() != pillow).sum())
    print(
        f"resize {frames.shape[2]}x{frames.shape[1]} to {side}: Pillow {len(frames) / cpu_seconds:.0f} frames/s, "
        f"{device} {len(frames) / device_seconds:.0f} frames/s, {differing} of {pillow.size} values differ"
    )


def compare_sharing(parts, frames, args) -> None:
    """Print the cost of more questions about the same frames."""
    device = str(torch_device(args.device))
    scorer = scorer_of(parts, tiny=args.tiny, device=device, precision=args.precision, batch_size=args.batch)
    prepared = scorer.prepare(frames)
    scorer.relevance_many(scorer.embed(prepared[:4]), _QUESTIONS)
    tokens, image_seconds = timed(device, lambda: scorer.embed(prepared))
    config = parts[0].config
    print(f"{args.precision}: image tower {1000 * image_seconds / len(frames):.2f} ms a frame")
    print("| questions | together, ms a frame | one by one | nothing shared | times less | GFLOP a frame |")
    print("|---|---|---|---|---|---|")
    for n in (1, 2, 4, 8):
        questions = _QUESTIONS[:n]
        _, joint_seconds = timed(device, lambda questions=questions: scorer.relevance_many(tokens, questions))
        _, single = timed(
            device,
            lambda questions=questions: [scorer.relevance(tokens, asked_question) for asked_question in questions],
        )
        shared, separate_seconds = image_seconds + joint_seconds, n * image_seconds + single
        work = image_gflop(config) + text_gflop(config, n_tokens=35, n_queries=n)
        cells = [
            n,
            *(f"{1000 * s / len(frames):.2f}" for s in (joint_seconds, single, separate_seconds)),
            f"{separate_seconds / shared:.2f}",
        ]
        print("| " + " | ".join(map(str, cells)) + f" | {work:.3g} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny encoder; always on a machine without a GPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--frames", type=int, default=0, help="default: 512, with --tiny 128")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS, help="of the comparison of questions")
    parser.add_argument("--compile", action="store_true", help="hand the image tower to torch.compile")
    args = parser.parse_args()
    device = str(torch_device(args.device))
    args.tiny = args.tiny or device == "cpu"  # the large one would take 6 s a frame there
    parts = random_blip("tiny", image_size=96) if args.tiny else random_blip("large", device=device)
    side = parts[0].config.vision_config.image_size
    frames = varied_frames(args.frames or (128 if args.tiny else 512))
    size = "tiny" if args.tiny else "large"
    print(f"# BLIP-ITM {size}, random weights, {device_name(device)}, torch {torch.__version__}")
    compare_precisions(parts, frames, args)
    compare_resizes(frames[: 64 if device.startswith("cuda") else 8], device, side)
    compare_sharing(parts, frames[:128], args)


if __name__ == "__main__":
    main()
