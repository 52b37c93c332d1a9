# setup  make .venv with everything needed; quick when nothing changed (PYTHON=... chooses the interpreter)
# demo   the main job, end to end, with a GitHub look-alike and real processes (DEMO_ARGS="--jobs 20 --seed 3")
# docs   the documentation as a site, strictly, in build/site; `generated` makes its generated parts anew
# check  the fast subset: lint, format, types, contracts, laws, unit tests and the documentation's site
# test   everything; as root on Debian also system packages (SYSTEM=0 refuses)
# coverage  core and domain, every branch reached by their own tests, or it fails; part of test
# mutate  changes the core in thousands of small ways, hours of work (MUTATE_ARGS="gate decision --folder kept")
# simulate  the long simulation: five weathers, 40 seeds, 5000 jobs each, on all cores (SIMULATE_ARGS=--json)
# soak   100,000 jobs through the daemon in virtual time: memory stays flat (SOAK_ARGS=--json; some minutes)
# chaos  300 jobs in the roughest weather while the daemon is killed 60 times; prints one JSON object (CHAOS_ARGS=--seed=2)
# lock   resolve the dependencies anew into the hashed lock files
# clean  remove what the other targets made

PYTHON ?=
SYSTEM ?= 1
DEMO_ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= 4
SIMULATE_ARGS ?=
CHAOS_ARGS ?=
MUTATE_ARGS ?=
SOAK_ARGS ?=
BIN := .venv/bin

# Without compiled files each of the many programs that the tests start would compile all libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup system demo docs generated check lint types contracts unit coverage mutate simulate soak compiled whole prepared test lock clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile | sed '/^$$/q'

setup:
	@PYTHON="$(PYTHON)" scripts/setup.sh

system:
	@SYSTEM="$(SYSTEM)" scripts/system.sh

demo: setup
	@$(BIN)/ephemerd demo $(DEMO_ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/pytest -q -m "not e2e and not long" tests/laws tests/unit $(PYTEST_ARGS)

coverage: setup
	@scripts/coverage.sh

mutate: setup
	@nice -n 15 $(BIN)/python -m tests.mutation $(MUTATE_ARGS)

simulate: setup
	$(BIN)/ephemerd simulate --weather all --jobs 5000 --seeds 1-40 $(SIMULATE_ARGS)

soak: setup
	$(BIN)/python -m ephemerd.testing.soak $(SOAK_ARGS)

chaos: setup
	@$(BIN)/python -m ephemerd.testing.chaos $(CHAOS_ARGS)

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

generated: setup
	@$(BIN)/python scripts/documentation.py

check: lint types contracts docs unit

compiled: setup
	@# once, instead of in each of the workers that begin together
	-@$(BIN)/pytest -qq --collect-only >/dev/null

whole: coverage
	@# what is measured ran there; the others, which mostly wait, run side by side
	$(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder -m "not measured" $(PYTEST_ARGS)

prepared: setup
	@# packages are installed while another core does what needs none
	@$(MAKE) --no-print-directory -j 2 system types lint contracts compiled

test: prepared whole

lock: setup
	@scripts/lock.sh

clean:
	rm -rf .venv .tools .tools-cache .setup.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage htmlcov build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
