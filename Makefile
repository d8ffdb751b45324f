# Every target works from a clean clone with Python >= 3.10 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Hundreds of processes are started: without bytecode each would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all research check bench clips faults docs docs-tools installs rehearsal clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml research/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	# Of what is installed most is never imported: nothing is compiled ahead.
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[all]" --editable research --group dev
	touch $@

demo: setup
	$(BIN)/focus-eval demo

# Three workers for two cores: tests wait for processes that they start.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Five minutes on two cores: what a change breaks most often.
test: $(VENV)/.compiled
	$(PYTEST) -m "not slow"

# Then the rest: all wrappers and clips, damage, kills, pages, installs, the rehearsal.
test-all: test
	$(PYTEST) -m slow

# The figures of the pages in research, from recorded rows and the public files beside the checkout.
research: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile research/tests

# Bytecode of what nearly every worker imports: three that start at once would each compile it.
$(VENV)/.compiled: $(VENV)/.ready
	$(BIN)/python -c "import lmms_eval.__main__, lmms_eval.evaluator, transformers.models.blip.modeling_blip"
	touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	for script in $(basename $(notdir $(wildcard scripts/speed/*.py))); do $(BIN)/python -m scripts.speed.$$script || exit 1; done

clips: setup
	$(BIN)/python -m scripts.checks.clips

faults: setup
	$(BIN)/python -m scripts.checks.faults

docs: docs-tools
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html

docs-tools: $(VENV)/.docs

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

# The three installs that docs/quickstart.md names, from one wheel in dist, each with the commands of the pages.
installs: setup
	$(BIN)/python -m scripts.checks.installs

# Every shipped table on a machine made on the spot: tiny weights, made-up questions, no network.
rehearsal: setup
	$(BIN)/python -m tests.rehearsal

clean:
	rm -rf $(VENV) build dist docs/_build
