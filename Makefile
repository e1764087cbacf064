# Everything a contributor or CI runs. `make` alone lists the targets.
# Needs Python 3.11 or newer with pip and its headers, and make; no compiler: every dependency is installed from a wheel,
# but for PySpark, whose only form is an archive without anything to compile. The package's own compiled core is built
# with the machine's C compiler or, where it has none, with Zig's from the package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports, a sixth of what is installed.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
	--no-binary pyspark
# pytest-xdist processes, each of which collects all tests: two for each core of a small CI machine, as tests wait as
# well. Tests with Spark stay together in one of them.
TEST_WORKERS ?= 4
SIZE_demo := , about 500 MB
SIZE_dev := , about 2 GB
# Where real events lie that benchmarks are tried on; without them they are left out.
GIVEN ?= ../shared/data
FUZZ_TARGETS ?= segment block_bodies go_esdb log lql position http_input json_paths

# Every command that a test starts would compile all it imports again: half of the time of `make test`.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all coverage check compiled types bench wheel release docs fuzz asan soak clean

help:  ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(or $(wildcard $(VENV)/dev.stamp),$(VENV)/demo.stamp)  ## Real events and 300,000 generated ones, into demo-output/ (half a minute).
	$(BIN)/python -m examples.demo files
	$(BIN)/python -m examples.demo catalog

TESTING = pytest -q -n $(TEST_WORKERS) --dist loadgroup $(if $(MEASURE),--cov)
test: $(VENV)/dev.stamp  ## Run the tests; of long ones a share (minutes).
	$(BIN)/python -m $(TESTING)

# A million rows are scrolled in three minutes where nothing else runs, and in more than five beside other tests.
test-all: export TESTS = all
test-all: TESTING += -o faulthandler_timeout=1200
test-all: test  ## Run the tests with all of their cases and examples (half an hour or more).

coverage: export MEASURE = yes
coverage: test  ## Run the tests, and measure which lines and branches they reach; fewer than pyproject.toml asks for fail.

check: $(VENV)/dev.stamp  ## Format, lint and strict types; changes nothing.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# In a fresh checkout each process of the tests would do so, at the same time. What cannot be imported is told of by the
# tests.
compiled: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest --quiet --collect-only > /dev/null 2>&1 || true

types:  ## Check the types of the page's JavaScript with TypeScript (needs Node).
	npx --yes --package typescript@7 tsc --project .ci/page_types.json

bench: $(VENV)/bench.stamp  ## Measure against the peers and rewrite docs/benchmarks.md.
	$(BIN)/python -m benchmarks.run --write-docs
	$(BIN)/python -m benchmarks.sizes --given $(GIVEN) --write-docs
	$(BIN)/python -m benchmarks.sql --write-docs
	$(BIN)/python -m benchmarks.ingest --write-docs
	$(BIN)/python -m benchmarks.spark --write-docs
	$(BIN)/python -m benchmarks.lql --write-docs
	$(BIN)/python -m benchmarks.server --write-docs
	$(BIN)/python -m benchmarks.page --write-docs

wheel: $(VENV)/demo.stamp  ## Build a wheel for this Python on any Linux of glibc 2.17 or newer, into dist/.
	$(BIN)/python -m pip wheel --quiet --no-deps --config-settings glibc=2.17 --wheel-dir dist .

release: $(VENV)/release.stamp  ## Build the packages of the last commit into dist/, with the repository's address: make release URL=https://...
	$(BIN)/python .ci/release.py '$(URL)'
	$(BIN)/python -m build --sdist --outdir dist build/release
	$(BIN)/python -m pip wheel --quiet --no-deps --config-settings glibc=2.17 --wheel-dir dist build/release

docs: $(VENV)/docs.stamp  ## Build the documentation site into site/; a broken link fails.
	$(BIN)/python docs/site.py build
	$(BIN)/zensical build --config-file build/zensical.toml --clean --strict
	rm -rf site && mv build/site site

fuzz: $(VENV)/fuzz.stamp  ## A million foreign inputs for every reader, coverage-guided (an hour each).
	for target in $(FUZZ_TARGETS); do $(BIN)/python -m tests.fuzz $$target || exit; done

asan: $(VENV)/dev.stamp  ## Damaged bytes against a core that checks every address it touches (needs gcc).
	rm -f $(VENV)/*.stamp
	CC=gcc CFLAGS='-fsanitize=address -O1 -g' LDFLAGS=-fsanitize=address $(PIP_INSTALL) --no-deps --editable .
	@# Without libstdc++, the exceptions of DuckDB end the process.
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(BIN)/python -m pytest -q tests/spec tests/esformat/core tests/esformat/format tests/regressions

soak: $(VENV)/dev.stamp  ## The full figures of docs/reliability.md (two hours or three).
	PYTHONPATH=.:tests/support:fixtures:spec $(BIN)/python -m tests.soak.salvage --cases 10000
	$(BIN)/python -m tests.soak.faults --points 1000
	$(BIN)/python -m tests.soak.kills --kills 1000
	$(BIN)/python -m tests.soak.streams --minutes 20
	$(BIN)/python -m tests.soak.spark_kills --kills 100
	$(BIN)/python -m tests.soak.power_cuts --cuts 200
	CATALOG_EXAMPLES=10000 $(BIN)/python -m pytest -q tests/aggregator/test_catalog_model.py
	$(BIN)/python -m tests.soak.server --seconds 60 --connections 500
	PYTHONPATH=.:tests/support $(BIN)/python -m killing --kills 100

clean:  ## Remove the environment and everything generated.
	rm -rf $(VENV) demo-output fuzz-output build site dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f esformat/core/*.so .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml exactly when the environment holds what it asks for, and newer than the core's
# sources when that is compiled from them.
$(VENV)/%.stamp: pyproject.toml .ci/backend.py .ci/compiling.py .ci/requirements.py $(wildcard esformat/core/*.py esformat/core/*.pxd)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "esformat needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	@test -x $(BIN)/pip || { echo "Creating $(VENV) ..."; $(PYTHON) -m venv --upgrade-deps $(VENV) > /dev/null; }
	@echo "Installing esformat and what '$*' needs into $(VENV), once$(SIZE_$*) ..."
	@$(BIN)/python .ci/requirements.py '$*' > $(VENV)/$*.txt
	@# One compiles the core, minutes of a processor, while the other fetches packages.
	@# setuptools would warn of parts of pyproject.toml that may change.
	@$(PIP_INSTALL) --requirement $(VENV)/$*.txt & packages=$$!; \
		{ PYTHONWARNINGS=ignore $(PIP_INSTALL) --no-deps --editable . && wait $$packages; } || \
		{ kill $$packages 2>/dev/null; exit 1; }
	@touch $@
