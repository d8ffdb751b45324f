"""Files in the form of AKS's outscores: made scores for the questions of an annotation."""

from __future__ import annotations

import json

import numpy as np

from focus_eval.keyframes.samplers.base import derived_rng


def candidates(question, rates):
    """Return the frames `j * int(fps)` for `j` in `range(int(T / int(fps)))`."""
    rate = rates[question.id]
    stride = int(rate.fps)
    return [at * stride for at in range(int(rate.n_frames / stride))]


def made_scores(question, frames, fps, *, encoder="blip"):
    """Scores that rise near the annotated moments: probabilities for blip, cosines for clip, of one truth."""
    times, rng = np.array(frames) / fps, derived_rng(7, question.id)
    noise, drift = rng.standard_normal(times.size), np.empty(times.size)
    last = rng.standard_normal()
    for at, step in enumerate(noise.tolist()):
        last = drift[at] = 0.87 * last + 0.49 * step
    nearness = [2.5 * np.exp(-np.abs(times - moment) / 2.0) for moment in question.evidence_seconds]
    truth = drift + np.max(nearness, axis=0, initial=0.0)
    if encoder == "blip":
        return (1 / (1 + np.exp(4.6 - 2.5 * truth))).tolist()
    relevance = 0.7 * truth + 0.7 * derived_rng(8, question.id).standard_normal(times.size)
    return np.clip(0.24 + 0.03 * relevance, 0.03, 0.55).tolist()


def write_files(folder, questions, rates, *, encoder="blip", change=lambda scores, frames: None):
    """Write scores.json and frames.json to `folder`; `change` may damage the two lists before."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = [candidates(question, rates) for question in questions]
    scores = [
        made_scores(question, at, float(rates[question.id].fps), encoder=encoder)
        for question, at in zip(questions, frames, strict=True)
    ]
    change(scores, frames)
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "frames.json").write_text(json.dumps(frames))
    return folder / "scores.json", folder / "frames.json"
