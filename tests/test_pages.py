"""What README, CONTRIBUTING and docs tell a reader to type or open exists, and is read as it stands there."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
import yaml
from typer.main import get_command

from focus_eval.bench.benchmarks.registry import BENCHMARKS
from focus_eval.bench.lmms.manifests import MODELS, known_models
from focus_eval.bench.matrix.config import find_matrix
from focus_eval.cli import app
from focus_eval.core.options import named_options
from focus_eval.external.imports.formats import FORMATS
from focus_eval.keyframes.encoders.registry import ENCODERS, read_encoder
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler
from scripts.pages import write_commands

from .pages import PAGES, ROOT, blocks, inline_lines, paths_named, prose_of, shell_lines

SHELL = sorted({line for page in PAGES for line in shell_lines(page)})
INLINE = sorted({line for page in PAGES for line in inline_lines(page)} - set(SHELL))
# Programs of others: nothing of ours can be checked about their arguments but what the tests below name.
OTHER_PROGRAMS = {
    "accelerate",
    "cd",
    "export",
    "ffmpeg",
    "git",
    "hf",
    "lmms-eval",
    "pip",
    "pre-commit",
    "python3",
    "ray",
    "sbatch",
    "source",
}
COMMANDS = get_command(app)
# What the reader writes or has: files, NAMES, the sampler of docs/new_sampler.md; and two more words of `import`.
READERS_OWN_WORDS = re.compile(r"[A-Z_]*$|.*\.(py|yaml|json)\b|bisect_peaks|my|(auto|relevance)$")
GROUPS = (SAMPLERS, ENCODERS, BENCHMARKS, FORMATS, MODELS)
REGISTRIES = {
    "sampler": SAMPLERS,
    "other_samplers": SAMPLERS,
    "encoder": ENCODERS,
    "benchmark": BENCHMARKS,
    "format": FORMATS,
}


def of(*programs):
    return [line for line in (*SHELL, *INLINE) if line.program in programs]


def listed(value):
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def test_every_line_of_a_shell_block_starts_a_known_program():
    unknown = [str(line) for line in SHELL if line.program not in {*OTHER_PROGRAMS, "focus-eval", "make", "python"}]
    assert unknown == []


@pytest.mark.parametrize("line", of("focus-eval"), ids=str)
def test_the_command_line_reads_a_command_of_a_page(line):
    name, *words = line.words[1:]
    if name.startswith("-"):
        assert name in {"--help"} | {option for parameter in COMMANDS.params for option in parameter.opts}
        return
    # A sentence may name a command alone, or one option of it: what the command requires may lack there.
    context = COMMANDS.commands[name].make_context(name, words, resilient_parsing=line in INLINE)
    for parameter, registry in REGISTRIES.items():
        for value in map(str, listed(context.params.get(parameter))):
            assert READERS_OWN_WORDS.match(value) or value.partition(":")[0] in registry
    for matrix in map(str, listed(context.params.get("matrix"))):
        assert READERS_OWN_WORDS.match(matrix) or find_matrix(matrix)


@pytest.mark.parametrize("line", of("python"), ids=str)
def test_a_script_exists_and_knows_the_options_of_a_page(line):
    first, *words = line.words[1:]
    if first.startswith("-"):
        assert first in ("-m", "-c")
        ast.parse(words[0])
        return
    source = (ROOT / first).read_text(encoding="utf-8")
    for option in (word for word in words if re.match(r"--?[a-z]", word)):
        assert f'"{option}"' in source


@pytest.mark.parametrize("line", of("make"), ids=str)
def test_a_target_of_make_exists(line):
    assert re.search(rf"^{line.words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", of("pip"), ids=str)
def test_an_extra_that_is_installed_exists(line):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = re.findall(r"^\"?([\w-]+)\"? = ", section, re.MULTILINE)
    requested = re.findall(r"(?:\.|focus-eval)\[([\w,-]+)\]", " ".join(line.words))
    assert set(",".join(requested).split(",")) <= {"", *extras}


@pytest.mark.parametrize("line", of("lmms-eval", "accelerate"), ids=str)
def test_a_call_of_lmms_eval_names_a_model_and_a_sampler_that_exist(line):
    words = list(line.words)
    assert words[words.index("--model") + 1] in known_models()
    _, options = named_options(f"model:{words[words.index('--model_args') + 1]}", {})
    make_sampler(options["sampler"])
    read_encoder(options["encoder"], {})


def test_the_reference_of_the_command_line_is_that_of_the_help_texts():
    assert write_commands.PAGE.read_text(encoding="utf-8") == write_commands.command_reference()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_or_links_to_exists(page):
    assert [path for path in paths_named(page) if not list(ROOT.glob(path.rstrip(".")))] == []
    links = re.findall(r"\]\((?!http)([^)#]+)", prose_of(page))
    # The pages of workflows are GitHub's.
    paths = [
        re.sub(r"^(?:\.\./){2}actions/(workflows/[\w-]+\.yml)(/badge\.svg)?$", r".github/\1", link) for link in links
    ]
    assert [path for path in paths if not (page.parent / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_compiles_and_imports_what_exists(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("focus_eval"):
                module = importlib.import_module(node.module)
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)
    for block in blocks(page, "toml"):
        assert set(re.findall(r"entry-points\.\"(.*?)\"", block)) <= {registry.group for registry in GROUPS}
