"""Writes the frames of one question into the request to an OpenAI-compatible API."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from focus_eval.errors import AnswerError, InvalidInput


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """How frames are written into a request.

    Args:
        jpeg_quality: 1 to 95; None for PNG, which loses nothing.
        max_side: longest side in pixels; larger frames are shrunk (Lanczos). None for the frame's own size.
        max_megabytes: most bytes of one image; larger is refused.

    Raises:
        InvalidInput: a value outside its range.
    """

    jpeg_quality: int | None = None
    max_side: int | None = None
    max_megabytes: float = 20.0

    def __post_init__(self) -> None:
        for name, low, high in (("jpeg_quality", 1, 95), ("max_side", 16, 1 << 16)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or value != int(value) or not low <= value <= high):
                raise InvalidInput(f"{name} must be a whole number from {low} to {high}, got {value!r}")

    def data_url(self, image: Image.Image) -> str:
        """Return `image` as a data URL.

        Raises:
            AnswerError: more than `max_megabytes`.
        """
        if self.max_side is not None and max(image.size) > self.max_side:
            factor = self.max_side / max(image.size)
            size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
            image = image.resize(size, Image.Resampling.LANCZOS)
        data = io.BytesIO()
        if self.jpeg_quality is None:
            image.save(data, format="PNG")
        else:
            image.convert("RGB").save(data, format="JPEG", quality=int(self.jpeg_quality))
        if data.tell() > self.max_megabytes * 2**20:
            raise AnswerError(
                f"a frame of {image.width} x {image.height} takes {data.tell() / 2**20:.1f} MB, "
                f"{self.max_megabytes:g} are allowed: set jpeg_quality or max_side"
            )
        kind = "png" if self.jpeg_quality is None else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"


@dataclass(frozen=True, kw_only=True)
class ShownFrames:
    """The frames of one question as they go into a request.

    Args:
        urls: data URLs of the images, in the order they are shown.
        times_seconds: written as text before each image ("[83.2 s]"); None for images alone.
        as_video: one part of type `video_url` in place of the images, for servers that take it (vLLM, SGLang): JPEG
            images behind one another, of which the server is asked to sample none away.
        detail: sent with each image; "" leaves it out.
    """

    urls: Sequence[str]
    times_seconds: Sequence[float] | None = None
    as_video: bool = False
    detail: str = ""

    def put_into(self, payload: dict[str, Any]) -> None:
        """Replace the stand-in images of `payload` by the frames.

        Raises:
            AnswerError: another number of stand-ins than of frames.
        """
        parts = list(image_parts(payload["messages"]))
        if len(parts) != len(self.urls):
            raise AnswerError(f"{len(self.urls)} frames to send, the wrapper made room for {len(parts)}")
        for part, url in zip(parts, self.urls, strict=True):
            part["image_url"]["url"] = url
            if self.detail:
                part["image_url"]["detail"] = self.detail
        for message in payload["messages"]:
            if isinstance(message["content"], list):
                message["content"] = self._arranged(message["content"])
        if self.as_video:
            extra = payload.setdefault("extra_body", {})
            extra["media_io_kwargs"] = {"video": {"num_frames": -1}}

    def _arranged(self, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts of a message with times before the images, or the images as one video."""
        images = [part for part in content if part.get("type") == "image_url"]
        if not images:
            return content
        if self.as_video:
            data = ",".join(part["image_url"]["url"].partition("base64,")[2] for part in images)
            video = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{data}"}}
            first = content.index(images[0])
            rest = [part for part in content if part.get("type") != "image_url"]
            at = sum(part.get("type") != "image_url" for part in content[:first])
            return [*rest[:at], video, *rest[at:]]
        if self.times_seconds is None:
            return content
        times = iter(self.times_seconds)
        arranged: list[dict[str, Any]] = []
        for part in content:
            if part.get("type") == "image_url":
                arranged.append({"type": "text", "text": f"[{next(times):.1f} s]"})
            arranged.append(part)
        return arranged


def image_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the image parts of `messages` in order."""
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part.get("type") == "image_url")
