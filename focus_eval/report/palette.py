"""Every colour of the package: of each sampler, of evidence, of text, on the page and in the plots.

Okabe and Ito's hues, told apart by readers with any kind of colour vision; some are darker here, so that lines and text
show on white. Marks differ as well, for print. The page has a second set for its dark theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any


@dataclass(frozen=True)
class Style:
    """How a sampler is drawn.

    Args:
        light, dark: its colour on a light and on a dark ground; plots on paper take the light one.
        marker: matplotlib's name of its mark.
        css: its class on the page.
    """

    light: str
    dark: str
    marker: str
    css: str

    @property
    def filled(self) -> dict[str, Any]:
        """Matplotlib's arguments for a measured point."""
        return {"color": self.light, "marker": self.marker}

    @property
    def hollow(self) -> dict[str, Any]:
        """Matplotlib's arguments for a published point."""
        return {"color": self.light, "marker": self.marker, "mec": self.light, "mfc": "none"}


# In the order samplers are given one. Yellow is left out: it fades on white.
STYLES = (
    Style("#0072b2", "#56a8e0", "o", "s0"),
    Style("#d55e00", "#ff8c42", "s", "s1"),
    Style("#009e73", "#34c99d", "^", "s2"),
    Style("#b8578f", "#e08fbe", "D", "s3"),
    Style("#c98500", "#f0b53c", "v", "s4"),
    Style("#3a9bd8", "#8fd0ff", "P", "s5"),
    Style("#8a6d3b", "#c8a972", "X", "s6"),
    Style("#5b4b8a", "#a897dd", "*", "s7"),
    Style("#3f4a54", "#d5dbe2", "p", "s8"),
)
BASELINE = Style("#7d848c", "#a3acb8", "o", "sb")
# What is not a sampler, by its name on the page: light, dark.
THEME = {
    "page": ("#fbfbf9", "#14171b"),
    "card": ("#ffffff", "#1b1f25"),
    "ink": ("#1d2126", "#e8eaed"),
    "soft": ("#5b6470", "#a3acb8"),
    "line": ("#dfe2e6", "#323943"),
    "wash": ("#f1f3f5", "#232830"),
    "accent": ("#0b5cad", "#7ab8ff"),
    "right": ("#17733c", "#6fd092"),
    "wrong": ("#b3261e", "#ff8a80"),
    "odd": ("#8a5a00", "#f0c060"),
    "evidence": ("#9a6b00", "#f0c060"),
}
EVIDENCE, INK, FAINT = THEME["evidence"][0], THEME["ink"][0], BASELINE.light
_OWN = {"focus": 0, "topk": 1, "aks": 2, "focus_released": 3, "random": 4, "uniform_1fps": 8}


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return the style of each label: known samplers always have their own, uniform frames are grey."""
    taken = {_OWN[label] for label in labels if label in _OWN}
    free = cycle([style for i, style in enumerate(STYLES) if i not in taken] or STYLES)
    return {
        label: BASELINE if label == "uniform" else STYLES[_OWN[label]] if label in _OWN else next(free)
        for label in labels
    }


def css_variables() -> str:
    """Return the colours as CSS: a variable each, in the light and the dark theme, and a class per style.

    The theme follows the reader's system until the page's button sets `data-theme`.
    """
    light, dark = (
        " ".join(
            [
                *(f"--{name}: {both[is_dark]};" for name, both in THEME.items()),
                *(f"--{style.css}: {style.dark if is_dark else style.light};" for style in (*STYLES, BASELINE)),
            ]
        )
        for is_dark in (False, True)
    )
    classes = "\n".join(f".{style.css} {{ --c: var(--{style.css}); }}" for style in (*STYLES, BASELINE))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        ':root[data-theme="light"] { color-scheme: light; }\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f"{classes}\n"
    )
