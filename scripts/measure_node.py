"""Runs scripts/node/measure.py, under the name that it had before."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("node") / "measure.py"), run_name="__main__")
