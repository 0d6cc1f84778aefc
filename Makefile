# Every target that needs them brings its own environment, dependencies and Java: see scripts/setup.py.
BIN := .venv/bin
RUN = JAVA_HOME="$$($(BIN)/python scripts/java_home.py)" $(BIN)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate

.PHONY: setup demo test test-deep security interop clients rck differential storm lint check docs tables bench serve format lock clean

setup:
	@scripts/setup

demo: setup
	@$(RUN)/python examples/demo.py

test: setup
	@$(RUN)/python -m pytest -n 3 --dist loadfile

test-deep: setup
	@$(RUN)/python -m pytest -m deep --timeout 7200

interop: setup
	@$(RUN)/python -m tests.interop.geneva.run $(if $(RECORD),--record)

clients: setup
	@$(RUN)/python -m tests.clients.run $(CLIENTS)

rck: setup
	@$(RUN)/python -m tests.interop.iceberg.rck

differential: setup
	@$(RUN)/python -m tests.interop.iceberg.differential --histories 50

storm: setup
	@$(RUN)/python -m pytest -m deep tests/interop/test_storm.py --timeout 7200

security: setup
	@TIDEMILL_ATTACK_SHARE=1 $(RUN)/python -m pytest -m "deep or not deep" --timeout 3600 tests/security tests/protocol/permissions \
		tests/protocol/test_authentication.py tests/protocol/test_fuzz.py tests/protocol/test_nested_sql.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	git ls-files -z | xargs -0 $(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint
	$(BIN)/python -m pytest tests/unit tests/architecture

docs: setup
	@$(BIN)/python scripts/lance_table.py
	@$(BIN)/python scripts/option_tables.py

tables: setup
	@$(BIN)/python -m tests.specification.documents

bench: setup
	@$(RUN)/python -m benchmarks.backfill
	@$(RUN)/python -m benchmarks.views
	@$(BIN)/python -m benchmarks.catalog
	@$(RUN)/python -m benchmarks.queries
	@$(RUN)/python -m benchmarks.iceberg

serve: setup
	@$(RUN)/tidemill serve --root ./tidemill-data --host 127.0.0.1 --port 8181

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup
	$(COMPILE) --upgrade --group dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --upgrade --output-file tests/issuer/requirements.lock tests/issuer/requirements.in

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
