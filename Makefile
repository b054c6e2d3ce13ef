# Adsum. `make help` lists the targets.

# Builds are shared by all clones, so that a fresh one compiles only what is its own.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/adsum/target
export CARGO_TERM_COLOR ?= auto
CARGO := cargo

.DEFAULT_GOAL := help
.PHONY: help build-deps test-deps build run cluster fmt lint test test-slow chaos bench bench-compare bench-store release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build-deps:
	@scripts/deps.sh build

test-deps:
	@scripts/deps.sh test

build: build-deps ## the binary, as bin/adsum
	$(CARGO) build --quiet -p adsum
	@mkdir -p bin && ln -sf $(CARGO_TARGET_DIR)/debug/adsum bin/adsum

run: build ## the whole service in one process; nothing to set up. Says what to try
	@exec bin/adsum serve --dev

cluster: test-deps ## a real cluster on this machine: 6 Redis, 3 etcd, 3 gateways, 3 dispatchers with reapers
	$(CARGO) build --quiet -p adsum -p adsum-tests
	@exec $(CARGO_TARGET_DIR)/debug/cluster $(CARGO_TARGET_DIR)/debug/adsum

fmt: ## format the code
	$(CARGO) fmt --all

lint: test-deps ## what CI checks besides tests: format, clippy, docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps

test: test-deps lint ## everything: format, lints, docs, unit, conformance, model, cluster and fault tests
	$(CARGO) test --workspace --all-features

test-slow: test-deps ## the fault tests with the default times instead of faster ones
	ADSUM_SLOW=1 $(CARGO) test --workspace --all-features --test faults --test gateways --test table -- --nocapture --test-threads 1

# As fast as a release: thousands of clients and the whole cluster share this machine.
chaos: test-deps ## break a real cluster under load: SEED=…, MINUTES=20, CLIENTS=2000; JSON=1 for one JSON object
	@$(CARGO) build --quiet --profile measure -p adsum -p adsum-chaos
	@exec $(CARGO_TARGET_DIR)/measure/chaos --binary $(CARGO_TARGET_DIR)/measure/adsum \
		$(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(CLIENTS),--clients $(CLIENTS)) $(if $(JSON),--json) \
		--report $(or $(REPORT),docs/reliability)

# A few minutes of each, one after another: they share the machine with what they measure.
# With what is shipped: a release is a little faster than the profile for measurements.
BENCH := $(CARGO_TARGET_DIR)/release/adsum bench
bench: test-deps bench-store ## all measurements, the short way; JSON=1 for one JSON object each
	@$(CARGO) build --quiet --release -p adsum
	$(BENCH) connect --cluster --gateways 1 --sessions 19000 $(if $(JSON),--json)
	$(BENCH) connect --cluster --gateways 1 --sessions 9000 --grpc 1 $(if $(JSON),--json)
	$(BENCH) connect --cluster --gateways 1 --sessions 19000 --grpc 100 $(if $(JSON),--json)
	$(BENCH) fanout --cluster --rooms 1 --members 1000 --window 128 $(if $(JSON),--json)
	$(BENCH) fanout --cluster --rooms 100 --members 100 --window 400 $(if $(JSON),--json)
	$(BENCH) fanout --cluster --rooms 100 --members 100 --rate 25000 --no-raw $(if $(JSON),--json)
	$(BENCH) heartbeat --cluster $(if $(JSON),--json)
	$(BENCH) telemetry --rooms 20 --members 50 --window 100 --seconds 4 $(if $(JSON),--json)
	$(BENCH) snapshot --cluster $(if $(JSON),--json)
	$(BENCH) storm $(if $(JSON),--json)
	$(BENCH) growth --only rooms $(if $(JSON),--json)
	$(BENCH) failover --cluster --dispatchers 2 --rate 25000 $(if $(JSON),--json)

bench-compare: test-deps ## the service beside the articles' design and Socket.IO: table and picture in docs/performance
	@$(CARGO) build --quiet --release -p adsum -p adsum-baselines
	@cd bench/socketio && npm install --silent --no-audit --no-fund --no-package-lock
	$(CARGO_TARGET_DIR)/release/compare --adsum $(CARGO_TARGET_DIR)/release/adsum

bench-store: test-deps ## cost of heartbeats, opens and memory in one real Redis; JSON=1 for one JSON object
	@$(CARGO) run --quiet --release -p adsum-store --example bench_store

release-check: ## what the image is built of, without Docker: the release binary, its libraries, its size
	@deploy/release-check.sh
