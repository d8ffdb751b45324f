"""Answers the suite's cases in a process of its own: samplers as JSON on standard input, fingerprints on its output."""

from __future__ import annotations

import json
import sys

from focus_eval.samplers.contract.suite import fingerprints
from focus_eval.samplers.registry import make_sampler

if __name__ == "__main__":
    print(json.dumps([fingerprints(make_sampler(name, **options)) for name, options in json.load(sys.stdin)]))
