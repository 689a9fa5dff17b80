# Everything a developer runs. Needs Python 3.11 or newer and make; `make demo` and `make test` do the rest themselves.
# ARGS is passed on: make demo ARGS="--kill", make test ARGS="-k claim", make bench ARGS="latency -o json".

PYTEST = .venv/bin/python -m pytest -n 3 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help dev demo test test-fast test-long check lint types imports bench chaos

help:  ## this list
	@awk -F ':.*##  *' '/^[a-z-]+:.*##/ {printf "  make %-10s  %s\n", $$1, $$2}' Makefile
	@echo '  ARGS="…" is passed on, as in: make demo ARGS="--kill", make test ARGS="-k claim"'

demo: .venv/.runtime  ## thousands of people transferred and told by mail, with the books balanced; ARGS="--kill" kills a worker
	@.venv/bin/python -m jobwell demo $(ARGS)

test: .venv/.dev  ## every test but the long ones, on a PostgreSQL of its own
	@$(PYTEST) -m "not long" $(ARGS)

test-fast: .venv/.dev  ## the core and the store
	@$(PYTEST) -m "not long" tests/core tests/store $(ARGS)

test-long: .venv/.dev  ## every test, also at full size and with real waiting
	@$(PYTEST) --timeout 1200 $(ARGS)

check: lint types imports  ## style, format, types, layers

lint: .venv/.dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check

types: .venv/.dev
	@.venv/bin/python -m mypy

imports: .venv/.dev
	@.venv/bin/lint-imports --no-logo

bench: .venv/.runtime  ## jobs a second beside the bare SQL loop; ARGS="io", ARGS="scale --repeat 3" and others measure something else
	@JOBWELL_DATABASE_URL="$${JOBWELL_DATABASE_URL:-embedded}" .venv/bin/python -m jobwell bench $(or $(ARGS),drain)

chaos: .venv/.runtime  ## a fleet under seeded faults, and whether a job was lost or finished twice; SEED=7 MINUTES=3
	@.venv/bin/python -m jobwell.lab.chaos --seed $(or $(SEED),7) --minutes $(or $(MINUTES),3) -o json

dev: .venv/.dev  ## the virtual environment .venv; it is brought up to date when pyproject.toml has changed

# An environment that this file has finished (the stamp says so) is brought up to date; any other is made anew.
.venv/.runtime: pyproject.toml
	@set -eu; \
	if [ ! -e $@ ] || ! .venv/bin/python -c '' 2>/dev/null; then \
	  found=; \
	  for name in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$name; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Jobwell needs Python 3.11 or newer, and neither python3.13, python3.12, python3.11 nor python3 is one." \
	         "Install it, or say where it is: make dev PYTHON=/path/to/python3" >&2; exit 1; \
	  fi; \
	  echo "making .venv with $$("$$found" --version)" >&2; \
	  rm -rf .venv; \
	  if command -v uv >/dev/null; then uv venv --quiet --python "$$("$$found" -c 'import sys; print(sys.executable)')" .venv; \
	  elif ! "$$found" -m venv .venv; then \
	    echo "$$found cannot make a virtual environment. On Debian and Ubuntu install python3-venv; or install uv." >&2; exit 1; \
	  fi; \
	fi; \
	echo "installing Jobwell and what it needs into .venv" >&2; \
	if command -v uv >/dev/null; then uv pip install --quiet --python .venv/bin/python -e '.[all]'; \
	else .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[all]'; fi; \
	touch $@

.venv/.dev: .venv/.runtime
	@set -eu; \
	echo "installing the tools of development into .venv" >&2; \
	if command -v uv >/dev/null; then uv pip install --quiet --python .venv/bin/python --group dev; \
	else \
	  .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'; : older ones know no groups; \
	  .venv/bin/python -m pip install --quiet --disable-pip-version-check --group dev; \
	fi; \
	touch $@
