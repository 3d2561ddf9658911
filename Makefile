# Two commands do all set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench other-servers clean

demo: .venv/core.stamp  ## The local voice cloud, the bridge, and real calls: no token, no network
	@$(BIN)/python -m voice_bridge demo $(ARGS)

test: .venv/dev.stamp lint  ## Everything that .ci/run checks
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --follow-imports silent voice_bridge/ports/servers/process voice_bridge/ports/servers/stdio.py voice_bridge/signals.py voice_bridge/loop.py voice_bridge/ownership

bench: .venv/dev.stamp  ## What the README's figures come from
	$(BIN)/python bench/roundtrip.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 demo"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/core.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,documents,agent,postgres]'
	@touch $@ .venv/core.stamp

other-servers: .cache/other-servers/.done  ## Servers of other people, which some tests use

# Pinned, so that the tests mean the same everywhere; the Python ones need an older SDK, hence a home of their own.
.cache/other-servers/.done: | .venv/bin/python
	npm install --prefix .cache/other-servers/node --no-audit --no-fund --no-update-notifier --loglevel=error \
	  @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 \
	  @modelcontextprotocol/server-memory@2026.8.31
	$(BIN)/python -m venv .cache/other-servers/python
	.cache/other-servers/python/bin/pip install --quiet 'mcp<2' mcp-server-time==2026.10.10 mcp-server-sqlite==2025.4.25
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info
