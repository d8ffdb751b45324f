"""Asks an OpenAI-compatible server in every form of request, and compares the frames it gets with our own decode."""

from __future__ import annotations

import base64
import io
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.bench.lmms_data import decode_all, longvideobench_rows, read_record
from tests.support.keyframes.chat_server import ChatServer

TASK, SPLIT = "focus_longvideobench", "test"
JPEG_QUALITY = 90
CLIPS = {"wide": (128, 72), "tall": (72, 128), "square": (96, 96), "odd": (98, 62)}


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One form of request.

    Args:
        kind: "simple" or "chat".
        frames: "png" or "jpeg".
    """

    kind: str
    frames: str

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of our model that ask for this form of request."""
        return {} if self.frames == "png" else {"jpeg_quality": JPEG_QUALITY}


def combinations() -> list[Combination]:
    """Return all forms of request."""
    forms = itertools.product(("simple", "chat"), ("png", "jpeg"))
    return [Combination(kind=kind, frames=frames) for kind, frames in forms]


class Trial:
    """The clips and documents that every combination is asked about."""

    def __init__(self, folder: Path, *, n_questions: int, n_frames: int) -> None:
        from tests.support.keyframes.synthetic import write_numbered_clip

        self.folder, self.n_questions, self.n_frames = folder, n_questions, n_frames
        self.clips = {
            name: write_numbered_clip(folder / f"{name}.mp4", 60, width=width, height=height, fps=10)
            for name, (width, height) in CLIPS.items()
        }
        self.pixels = {name: decode_all(path) for name, path in self.clips.items()}
        (row,) = longvideobench_rows(["landscape"], ["?"])
        names = [name for name, _ in zip(itertools.cycle(self.clips), range(n_questions))]
        self.documents = [
            {**row, "id": f"q{at}", "question": f"Question {at}?", "video_path": f"{name}.mp4", "duration": 6.0}
            for at, name in enumerate(names)
        ]

    def requests(self, kind: str) -> list[Any]:
        """Return lmms-eval's requests for all questions."""
        from lmms_eval.api.instance import Instance

        def look(document: dict[str, Any]) -> list[Any]:
            path = str(self.clips[Path(document["video_path"]).stem])
            if kind == "simple":
                return [path]
            text = {"type": "text", "text": document["question"]}
            return [{"role": "user", "content": [{"type": "video", "url": path}, text]}]

        requests = []
        for at, document in enumerate(self.documents):
            options: dict[str, Any] = {"max_new_tokens": 4}
            head = (options, look) if kind == "simple" else (look, options)
            metadata = {"task": TASK, "repeats": 1, "split": SPLIT, "doc_id": at}
            arguments = (document["question"], *head, at, TASK, SPLIT)
            requests.append(Instance("generate_until", arguments=arguments, idx=0, metadata=metadata))
        return requests

    def run(self, combination: Combination) -> dict[str, int]:
        """Ask all questions in one form; return counts of what the server got."""
        from focus_eval.bench.lmms.models.openai import FocusGPT4o, FocusGPT4oChat

        record = self.folder / "record" / f"{combination.kind}_{combination.frames}"
        model_class = FocusGPT4o if combination.kind == "simple" else FocusGPT4oChat
        bodies: list[dict[str, Any]] = []

        def reply_to(body: dict[str, Any]) -> tuple[str, dict[str, float]]:
            bodies.append(body)
            return "B", {}

        with ChatServer(reply_to=reply_to, expected_at_once=self.n_questions) as server:
            model = model_class(
                base_url=server.url, sampler="random", frames=self.n_frames, record=str(record),
                num_concurrent=self.n_questions, timeout=900, **combination.arguments,
            )  # fmt: skip
            model.task_dict = {TASK: {SPLIT: self.documents}}
            answers = model.generate_until(self.requests(combination.kind))
        rows = {row["question_id"]: row for row in read_record(record, "selections")}
        answered = sum(str(getattr(answer, "text", answer)) == "B" for answer in answers)
        counts = {"in_flight": server.most_at_once, "answered": answered, "frames": 0, "differing": 0}
        for body in bodies:
            self._compare(body, combination, rows, counts)
        return counts

    def _compare(
        self, body: dict[str, Any], combination: Combination, rows: dict[str, Any], counts: dict[str, int]
    ) -> None:
        """Add to `counts`: frames received, and those that differ in a byte."""
        parts = [part for message in body["messages"] for part in message["content"]]
        question_text = next(part["text"] for part in parts if part.get("text", "").startswith("Question "))
        row = rows["q" + question_text.split()[1].partition("?")[0]]
        chosen_frames = self.pixels[Path(row["video"]).stem][row["keyframes"]]
        expected = [encoded_frame(frame, "PNG" if combination.frames == "png" else "JPEG") for frame in chosen_frames]
        images = [part["image_url"] for part in parts if part["type"] == "image_url"]
        received = [base64.b64decode(image["url"].partition("base64,")[2]) for image in images]
        counts["frames"] += len(received)
        counts["differing"] += sum(
            image != expected_image for image, expected_image in itertools.zip_longest(received, expected)
        )


def encoded_frame(frame: np.ndarray, kind: str) -> bytes:
    """Return the file of an RGB frame as it is sent: "PNG", or "JPEG" of `JPEG_QUALITY`."""
    data = io.BytesIO()
    Image.fromarray(frame).save(data, format=kind, **({"quality": JPEG_QUALITY} if kind == "JPEG" else {}))
    return data.getvalue()
