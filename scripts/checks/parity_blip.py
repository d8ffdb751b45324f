"""Does BLIP at full size agree on this device with transformers' own class, and do all ways to feed it agree?

Random weights of the true shape; frames of 720p and 1080p.

  pixels     values after the device's resize that differ from Pillow's, and after normalising, of the bits (0 expected)
  feeding    values that differ when frames come in parts of several videos, or shrunk in the thread that decodes them
  relevance  largest difference from transformers' own forward in fp32, on this device and on the processor

Run: python -m scripts.checks.parity_blip [--tiny] [--frames 8]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from focus_eval.keyframes.encoders.blip import BlipScorer
from focus_eval.keyframes.encoders.preprocess import normalise, resize_frames
from focus_eval.keyframes.encoders.torch_scorer import arithmetic, torch_device
from focus_eval.keyframes.pipeline.timing import device_name
from scripts.node.clips import SIZES
from scripts.speed.encoders import scorer_of
from tests.support.keyframes.random_weights import random_blip
from tests.support.keyframes.synthetic import moving_texture

_QUESTIONS = ("what is the man in the red car doing?", "who is cooking, and what color is the dog?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny encoder; always without a GPU")
    parser.add_argument("--frames", type=int, default=8)
    args = parser.parse_args()
    device = torch_device("auto")
    tiny = args.tiny or device.type == "cpu"
    options = {"image_size": 96} if tiny else {}
    # Made on the processor, so that both have the same weights.
    size = "tiny" if tiny else "large"
    plain, parts = random_blip(size, **options)[0], random_blip(size, **options)
    scorer = scorer_of(parts, tiny=tiny, device=str(device), resize="device", batch_size=args.frames)
    shrinking = scorer_of(parts, tiny=tiny, device=str(device), resize="pil", batch_size=args.frames)
    print(f"# BLIP-ITM {size}, random weights, {device_name(str(device))}, torch {torch.__version__}\n")
    print("| compared | frames | |\n|---|---|---|")
    frames = {
        name: np.stack(list(moving_texture(args.frames, width=SIZES[name][0], height=SIZES[name][1])))
        for name in (("360p", "720p") if tiny else ("720p", "1080p"))
    }
    for name, pictures in frames.items():
        print(f"| pixels: the device against Pillow | {name} | {pixels_differing(scorer, pictures)} |", flush=True)
    for line in feeding_differences(scorer, shrinking, frames):
        print(line, flush=True)
    name, pictures = next(iter(frames.items()))
    relevance = scorer.relevance_many(scorer.embed(pictures), _QUESTIONS)
    spread = f"spread over frames {relevance.std(axis=1).mean():.3f}"
    for target in dict.fromkeys((str(device), "cpu")):
        n = len(pictures) if target != "cpu" or tiny else 2  # 6 s a frame
        original_values = own_forward(plain.to(target), scorer, pictures[:n], target)
        moved = np.abs(relevance[:, :n] - original_values).max()
        print(
            f"| relevance: transformers' own, fp32, on {target} | {name} | at most {moved:.1e} ({spread}) |", flush=True
        )


def pixels_differing(scorer: BlipScorer, frames: np.ndarray) -> str:
    """Return how many of the scorer's pixel values differ from Pillow's resize, normalised on the processor."""
    rules = scorer.image_rules
    pixels = scorer._pixel_values(frames).cpu()
    expected = normalise(torch.from_numpy(resize_frames(frames, rules)).permute(0, 3, 1, 2), rules)
    return f"{int((pixels != expected).sum())} of {expected.numel()} values differ"


def feeding_differences(scorer: BlipScorer, shrinking: BlipScorer, frames: dict[str, np.ndarray]) -> list[str]:
    """Return lines that say how far image tokens of a mixed-size batch depend on how it is fed."""
    parts, sizes = list(frames.values()), " and ".join(frames)
    half = len(parts[0]) // 2
    mixed = [parts[0][:half], parts[1][: len(parts[0]) - half]]
    whole = scorer.queue_parts(mixed)()
    lines = []
    feeds = {
        "the same again, with a batch queued behind it": lambda: behind(scorer, mixed, parts[1]),
        "shrunk in the decoding thread": lambda: shrinking.queue_parts([shrinking.prepare(part) for part in mixed])(),
    }
    for name, feed in feeds.items():
        differing = int((feed() != whole).sum())
        lines.append(f"| feeding: {name} | {sizes} | {differing} of {whole.numel()} values differ |")
    return lines


def behind(scorer: BlipScorer, first: list[np.ndarray], second: np.ndarray) -> torch.Tensor:
    """Return the first batch's image tokens, read only after the second batch is queued."""
    finish, finish_second = scorer.queue_parts(first), scorer.queue_parts([second])
    pixels: torch.Tensor = finish()
    finish_second()
    return pixels


def own_forward(model, scorer: BlipScorer, frames: np.ndarray, target: str) -> np.ndarray:
    """Return match probabilities `(questions, frames)` by transformers' own forward, its attention included."""
    pixels = scorer._pixel_values(frames).to(target)
    probabilities = []
    for question in _QUESTIONS:
        ids, mask = (part.to(target) for part in scorer.text_inputs([question] * len(frames)))
        with torch.inference_mode(), arithmetic("fp32", torch.device(target)):
            score = model(input_ids=ids, attention_mask=mask, pixel_values=pixels).itm_score
        probabilities.append(score.float().softmax(dim=-1)[:, 1].cpu().numpy())
    return np.array(probabilities)


if __name__ == "__main__":
    main()
