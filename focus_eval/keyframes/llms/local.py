"""Asks a vision-language model of transformers on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any, ClassVar

from PIL import Image

from focus_eval.core.errors import InvalidInput, MissingWeights
from focus_eval.core.types import Pixels
from focus_eval.keyframes.encoders.weights import is_path, weight_files, weights_folder, weights_identity
from focus_eval.keyframes.llms.registry import Reply, yes_of

# Number of likely first tokens that are searched for yes and no.
_CANDIDATES = 200


class LocalModel:
    """A checkpoint with its own processor and chat template, decoding greedily; one question at a time.

    Args:
        checkpoint: repository of the hub in its cache, or a folder.
        revision: commit, tag or branch of a repository.
        device: torch device; "auto" for a GPU if there is one.
        dtype: type of the weights; "auto" for that of the checkpoint.
    """

    model_id: ClassVar[str] = "local"
    extra: ClassVar[str] = "encoders"
    at_once: ClassVar[int] = 1
    tokens_per_image: ClassVar[int | None] = None

    def __init__(self, checkpoint: str, *, revision: str = "main", device: str = "auto", dtype: str = "auto") -> None:
        """State the revision; weights load at first use."""
        self._checkpoint, self._revision, self._device, self._dtype = checkpoint, revision, device, dtype
        self.revision = f"{weights_identity(checkpoint, revision)}, {dtype}"
        self._lock = Lock()

    @cached_property
    def gmacs_per_token(self) -> float | None:
        """10^9 multiply-adds of one token, one per stored weight; None if the checkpoint is not on this machine."""
        folder = weights_folder(self._checkpoint, self._revision)
        files = weight_files(folder) if folder else []
        return sum(map(_n_numbers, files)) / 1e9 if files else None

    def ask(self, text: str, images: Sequence[Pixels], *, max_tokens: int) -> Reply:
        """Return the reply, decoded greedily; one question at a time."""
        with self._lock:
            processor, model = self._processor_and_model
            inputs = self._inputs(text, images)
            n_read = inputs["input_ids"].shape[1]
            tokens = model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens)[0, n_read:]
        answer = processor.decode(tokens, skip_special_tokens=True)
        return Reply(text=answer, usage={"requests": 1, "input": n_read, "output": len(tokens)})

    def yes(self, text: str, image: Pixels) -> Reply:
        """Return the reply about one picture, with `Reply.yes` from the next token's probabilities.

        Raises:
            AnswerError: neither yes nor no is among the likeliest tokens.
        """
        words, n_read = self.first_words(text, image)
        return Reply(
            text=words[0][0], yes=yes_of(words, words[0][0]), usage={"requests": 1, "input": n_read, "output": 1}
        )

    def first_words(self, text: str, image: Pixels) -> tuple[list[tuple[str, float]], int]:
        """Return (text, probability) of the likeliest first tokens, best first, and the number of input tokens."""
        import torch

        with self._lock, torch.inference_mode():
            processor, model = self._processor_and_model
            inputs = self._inputs(text, [image])
            logits = model(**inputs).logits[0, -1].float()
            top = torch.softmax(logits, -1).topk(min(_CANDIDATES, logits.numel()))
        words = [(processor.decode([token]), share) for token, share in zip(top.indices.tolist(), top.values.tolist(),
                                                                              strict=True)]  # fmt: skip
        return words, int(inputs["input_ids"].shape[1])

    def _inputs(self, text: str, images: Sequence[Pixels]) -> Any:
        """The model's inputs for a text after pictures, by its own chat template, on its device."""
        processor, model = self._processor_and_model
        pictures = [{"type": "image", "image": Image.fromarray(image)} for image in images]
        message = {"role": "user", "content": [*pictures, {"type": "text", "text": text}]}
        inputs = processor.apply_chat_template(
            [message], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        return inputs.to(model.device)

    @cached_property
    def _processor_and_model(self) -> tuple[Any, Any]:
        """The loaded processor and model; raises MissingWeights or InvalidInput if they cannot load."""
        import transformers

        from focus_eval.keyframes.encoders.torch_scorer import torch_device

        library: Any = transformers
        self.check()
        folder = str(weights_folder(self._checkpoint, self._revision))
        try:
            processor = library.AutoProcessor.from_pretrained(folder, local_files_only=True)
            model = library.AutoModelForImageTextToText.from_pretrained(
                folder, local_files_only=True, dtype=self._dtype
            )
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInput(f"llm local:checkpoint={self._checkpoint}: {' '.join(str(error).split())}") from error
        return processor, model.to(torch_device(self._device)).eval()

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return 0.0: a model on this machine costs no dollars."""
        return 0.0

    def check(self) -> None:
        """Raise MissingWeights if the checkpoint is not on this machine."""
        folder = weights_folder(self._checkpoint, self._revision)
        if folder is None or not weight_files(folder):
            reason = f"not on this machine; hf download {self._checkpoint}"
            if is_path(self._checkpoint):
                reason = "no folder with weights; correct the path"
            elif "/" not in self._checkpoint:
                reason = "not on this machine; a repository of the hub is OWNER/NAME"
            raise MissingWeights(f"llm local:checkpoint={self._checkpoint}: {reason}")

    def close(self) -> None:
        """Drop the weights; they load again when needed."""
        vars(self).pop("_processor_and_model", None)


def _n_numbers(file: object) -> int:
    """The number of weights in a safetensors file, from its header."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as weights:
        return sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
