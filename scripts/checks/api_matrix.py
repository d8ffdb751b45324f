"""Does an OpenAI-compatible server get the chosen frames, byte for byte, whatever the form of the request?

Every combination of request (simple, chat) and frames (PNG, JPEG) is sent to a server on this machine, with 64
questions in flight; what it received is compared with an independent decode, written by Pillow in the same format.
Prints one row per combination.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.support.bench.api_forms import Trial, combinations


def main(n_questions: int, n_frames: int) -> None:
    os.environ["OPENAI_API_KEY"] = "any"
    os.environ["TQDM_DISABLE"] = "1"
    columns = ("request", "frames as", "in flight", "answered", "frames", "differing")
    print("| " + " | ".join(columns) + " |\n|---|---|---:|---:|---:|---:|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), n_questions=n_questions, n_frames=n_frames)
        for form in combinations():
            outcome = trial.run(form)
            failed |= bool(outcome["differing"]) or outcome["in_flight"] != n_questions
            words = (form.kind, form.frames, *outcome.values())
            print("| " + " | ".join(map(str, words)) + " |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n_questions", type=int, nargs="?", default=64)
    parser.add_argument("n_frames", type=int, nargs="?", default=8)
    main(**vars(parser.parse_args()))
