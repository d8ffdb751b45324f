"""Where the recorded rows of the pages of research lie."""

from __future__ import annotations

from tests.pages import ROOT

RESULTS = ROOT / "research/results"
