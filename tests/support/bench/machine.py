"""A machine as a user's would be, in one folder: the hub's cache, the data sets, an installed wheel.

Everything is fetched by the same clients that fetch the real thing (`hf download`, lmms-eval's own unpacking), from a
hub on this machine that holds tiny checkpoints and made-up documents under the real names.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from focus_eval.bench.matrix.config import load_yaml
from focus_eval.core.resources import resource_path
from tests.support.bench import benchmark_data
from tests.support.keyframes import random_weights, tiny_models
from tests.support.keyframes.local_hub import HubRepository, LocalHub

DATASETS: dict[str, tuple[str, Callable[[Path, Sequence[bytes]], Path]]] = {
    "longvideobench": ("longvideobench/LongVideoBench", benchmark_data.write_longvideobench),
    "videomme": ("lmms-eval/Video-MME", benchmark_data.write_videomme),
    "mlvu": ("sy1998/MLVU_dev", benchmark_data.write_mlvu),
    "vsibench": ("nyu-visionx/VSI-Bench", benchmark_data.write_vsibench),
}
OFFICIAL_TASKS = {
    "longvideobench": "longvideobench_val_v",
    "videomme": "videomme",
    "mlvu": "mlvu_dev",
    "vsibench": "vsibench",
}
# By registered name, with its default checkpoint, or by another repository that `configs/` asks for.
ENCODERS: dict[str, Callable[[Path], Path]] = {
    "blip": random_weights.write_tiny_blip,
    "clip": random_weights.write_tiny_clip,
    "siglip": random_weights.write_tiny_siglip,
    "longclip": lambda folder: random_weights.write_tiny_clip(folder, positions=248),
    "siglip2": random_weights.write_tiny_siglip2,
    "google/siglip2-base-patch16-224": lambda folder: random_weights.write_tiny_siglip2(folder, seed=1),
    "aimv2": random_weights.write_tiny_aimv2,
    "PE-Core-L-14-336": random_weights.write_tiny_open_clip,
    "MobileCLIP2-S0": lambda folder: random_weights.write_tiny_open_clip(folder, seed=1),
}
MODELS: dict[str, Callable[[Path], Path]] = {
    "qwen2_vl_7b": tiny_models.write_qwen2_vl,
    "llava_ov_7b": tiny_models.write_llava_onevision,
    "llava_video_7b": tiny_models.write_llava_video,
    "llava_video_72b": lambda folder: tiny_models.write_llava_video(folder, shards=31, seed=72),
}
# A command that takes longer hangs: on a busy machine one of a minute has taken ten.
MAX_SECONDS = 3600.0
# What of the calling process would make the machine another one.
_NOT_INHERITED = re.compile(
    r"(HF|HUGGINGFACE|TRANSFORMERS|LMMS|FOCUS|OPENAI|AZURE|XDG|PYTEST|RANK|WORLD|LOCAL_RANK|MASTER|DECORD"
    r"|PYTHONDONTWRITEBYTECODE)(_|$)"
)
# Of lmms-eval's thousands of task files those beside the tasks are read: an index of all takes seconds.
_UNPACK = """
import sys
from pathlib import Path
from lmms_eval import tasks
names = sys.argv[1:]
folders = [str(path.parent) for name in names for path in Path(tasks.__file__).parent.rglob(f"{name}.yaml")]
manager = tasks.TaskManager("ERROR", include_path=folders, include_defaults=False, model_name="default")
tasks.get_task_dict(names, manager, "simple")
"""


@dataclass(frozen=True)
class Machine:
    """What was built below `root`.

    Args:
        root: one folder; `hf` is $HF_HOME, `work` the working directory, `wheel` the installed package.
    """

    root: Path

    @property
    def hf_home(self) -> Path:
        return self.root / "hf"

    @property
    def work(self) -> Path:
        """Where commands run; results/ comes to lie here."""
        return self.root / "work"

    @property
    def site(self) -> Path:
        """Where the wheel is installed."""
        return self.root / "wheel"

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a command: no network, no GPU, nothing of the calling process's own set-up."""
        inherited = {name: value for name, value in os.environ.items() if not _NOT_INHERITED.match(name)}
        defaults = {
            "HF_HOME": str(self.hf_home),
            "HF_HUB_OFFLINE": "1",
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "PYTHONPATH": str(self.site),
            "CUDA_VISIBLE_DEVICES": "",
            "RAY_worker_niceness": "0",  # 15 by default: beside other work its workers would wait
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TERM": "dumb",
            "COLUMNS": "200",
        }
        return {**inherited, **defaults, **variables}

    def run(
        self,
        *command: str,
        check: bool = True,
        timeout: float = MAX_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this interpreter's environment ("hf", "lmms-eval", ..) or "python" in `work`."""
        program = sys.executable if command[0] == "python" else str(Path(sys.executable).with_name(command[0]))
        completed = subprocess.run(
            [program, *command[1:]],
            cwd=self.work,
            env=self.environment(**(variables or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and completed.returncode:
            raise RuntimeError(
                f"{' '.join(command)}: exit code {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
            )
        return completed


def build_machine(
    root: Path,
    *,
    models: Iterable[str] = tuple(MODELS),
    encoders: Iterable[str] = tuple(ENCODERS),
    benchmarks: Iterable[str] = tuple(DATASETS),
) -> Machine:
    """Build the machine: install the wheel, fetch those models, encoders and benchmarks, unpack the videos."""
    machine = Machine(root)
    machine.work.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        wheel = pool.submit(install_wheel, machine.site, scratch=root / "build")
        repositories = hub_repositories(root / "hub", models=models, encoders=encoders, benchmarks=benchmarks)
        with LocalHub(tuple(repositories)) as hub:
            online = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_rehearsal"}
            list(pool.map(lambda item: machine.run(*fetch_command(item), variables=online), repositories))
            tasks = [OFFICIAL_TASKS[name] for name in benchmarks]
            if tasks:
                machine.run("python", "-c", _UNPACK, *tasks, variables=online)
        wheel.result()
    return machine


def hub_repositories(
    folder: Path, *, models: Iterable[str], encoders: Iterable[str], benchmarks: Iterable[str]
) -> list[HubRepository]:
    """Write the repositories that `configs/` names, and return them."""
    from focus_eval.keyframes.encoders import registry as encoder_registry
    from focus_eval.keyframes.encoders.weights import known_checkpoints

    weights = []
    for name in encoders:
        is_checkpoint = "/" in name or name in known_checkpoints()
        checkpoint = name if is_checkpoint else encoder_registry.ENCODERS.fact(name, "default_checkpoint", "")
        entry = known_checkpoints().get(checkpoint)
        repository, revision = (entry.repository, entry.revision) if entry else (name, "main")
        is_commit = entry is not None and entry.is_pinned
        weights.append(
            HubRepository(
                name=repository,
                kind="model",
                folder=_with_extras(ENCODERS[name](folder / "encoders" / name)),
                commit=revision if is_commit else commit_of(repository),
                refs=() if is_commit else (revision,),
            )
        )
    for name in models:
        arguments = load_yaml(resource_path("configs") / "models" / f"{name}.yaml")["args"]
        repository = arguments["pretrained"]
        written = MODELS[name](folder / "models" / name)
        weights.append(HubRepository(name=repository, kind="model", folder=written, commit=commit_of(repository)))
    clips = benchmark_data.write_clips(folder / "clips")
    for name in benchmarks:
        repository, write = DATASETS[name]
        (folder / "datasets" / name).mkdir(parents=True)
        weights.append(
            HubRepository(
                name=repository,
                kind="dataset",
                folder=write(folder / "datasets" / name, clips),
                commit=commit_of(repository),
                is_gated=name == "longvideobench",
            )
        )
    return weights


def fetch_command(repository: HubRepository) -> list[str]:
    """Return the command that docs/reproduce.md and `focus-eval plan` state for this repository."""
    from focus_eval.keyframes.encoders.weights import known_checkpoints

    entry = next((item for item in known_checkpoints().values() if item.repository == repository.name), None)
    if entry is not None:
        return entry.fetch_command.replace('"', "").split()
    kind = ["--repo-type", "dataset"] if repository.kind == "dataset" else []
    return ["hf", "download", repository.name, *kind]


def install_wheel(site: Path, *, scratch: Path) -> None:
    """Build the wheel of this clone and install it below `site`, without its dependencies and without a network."""
    clone = resource_path("configs").parent
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index"]
    for command in (
        [*pip, "wheel", *options, "--no-build-isolation", "--wheel-dir", str(scratch), str(clone)],
        [*pip, "install", *options, "--target", str(site), "--find-links", str(scratch), "focus-eval"],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)


def commit_of(repository: str) -> str:
    """Return a made-up commit of `repository`: 40 hexadecimal digits."""
    return hashlib.sha1(repository.encode(), usedforsecurity=False).hexdigest()


def _with_extras(folder: Path) -> Path:
    """Put beside a checkpoint what its repository also holds and nobody needs: other formats, a picture."""
    extras: Mapping[str, bytes] = {"README.md": b"# card\n", "pytorch_model.bin": b"\x80", "tf_model.h5": b"\x89HDF"}
    for name, content in extras.items():
        (folder / name).write_bytes(content)
    return folder
