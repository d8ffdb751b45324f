"""The rules in which LAVIS's BLIP differs from transformers'.

Each field is one difference; `LAVIS` has them all, `TRANSFORMERS` none. What each changes is measured in
docs/fidelity.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MAX_WORDS = 50

_BLANKED = re.compile(r"[.!\"()*#:;~]")
_BLANKS = re.compile(r"\s{2,}")


@dataclass(frozen=True, kw_only=True)
class BlipRules:
    """How text and image reach the model, and what its configuration must say.

    Args:
        first_token: id put in place of `[CLS]`; LAVIS' `[ENC]` is not in transformers' vocabulary. None: `[CLS]`.
        caption: clean the text as LAVIS' `blip_caption` does.
        max_tokens: longest text with both ends; None: no cut.
        text_heads: attention heads of the text encoder as trained; None: what `config.json` says (8 by default,
            and in the first published configurations, which load without a word and are wrong).
        vision_eps: epsilon of the image tower's layer norms as trained; None: what `config.json` says (1e-5).
        resize: "pil": width, then height, each by Pillow; "torchvision": transformers' image processor.
    """

    first_token: int | None = 30523
    caption: bool = True
    max_tokens: int | None = 35
    text_heads: int | None = 12
    vision_eps: float | None = 1e-6
    resize: Literal["pil", "torchvision"] = "pil"


LAVIS = BlipRules()
TRANSFORMERS = BlipRules(
    first_token=None, caption=False, max_tokens=None, text_heads=None, vision_eps=None, resize="torchvision"
)


def clean_caption(text: str) -> str:
    r"""Return `text` as LAVIS' `blip_caption` leaves it.

    Lower case; each of `. ! " ( ) * # : ; ~` becomes a blank; runs of two or more blanks become one; the ends are
    stripped; the first 50 words, counted between single spaces, stay. `?`, `,`, `'` and `-` stay.
    """
    text = _BLANKS.sub(" ", _BLANKED.sub(" ", text.lower())).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:MAX_WORDS])
