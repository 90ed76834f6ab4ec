# cowaudit's make targets. `make` lists them.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
FUZZTIME ?= 60s
SOAK ?= 60s
TEST ?= ./...
TESTFLAGS ?= -timeout 20m

# Reproducers that live outside of this repository; tests of them need the folder.
ifneq ($(wildcard ../shared/cases/cow.h),)
COWAUDIT_CASES ?= $(abspath ../shared/cases)
export COWAUDIT_CASES
endif

# The product is built without cgo, statically; only the race detector needs cgo.
export CGO_ENABLED = 0

raced = ./audit/... ./ebpf/... ./report/... ./pagemap/... ./forktest/... ./cmd/... ./internal/testkit/...
staticcheck = $(GO) tool -modfile=internal/tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help build demo test check fmt vet lint repocheck race generate bench reference verdicts fuzz soak rubies rubies-pair clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

build: ## build bin/cowaudit, a static binary
	$(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.release=$(VERSION)' -o bin/cowaudit ./cmd/cowaudit

demo: build ## measure a built-in server, then Ruby (installs Debian's where none is found and it may)
	scripts/demo.sh bin/cowaudit

test: build $(if $(COWAUDIT_REQUIRE),rubies rubies-pair) ## run the tests; with COWAUDIT_REQUIRE=1 none may be skipped
	$(GO) test $(TESTFLAGS) $(TEST)

check: fmt vet lint repocheck race ## formatting, vet, staticcheck, the project's own rules, race detector

fmt: ## complain about files that are not formatted
	@files=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
	if [ -n "$$files" ]; then echo "not formatted (gofmt -w):" $$files >&2; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

lint: ## staticcheck, of the version in internal/tools/go.mod
	$(staticcheck) ./...

repocheck: ## the project's own rules: imports, file sizes, documents
	$(GO) test -count=1 ./internal/repocheck

# Left out: a test that looks at its own process as one of Go alone, which it is not with cgo; and long ones that measure with the
# built binary, or what an allocator does, where the detector has nothing to see.
unraced = ^(TestShapesOfThisProcess|TestGateRubies|TestComparePair|TestFragmentationOrder|TestNeighbours)$$
race: ## tests under the race detector (needs gcc)
	CGO_ENABLED=1 $(GO) test -race -short -skip '$(unraced)' $(TESTFLAGS) $(raced)

generate: ## make what is generated anew (needs clang, llvm-strip, libbpf's headers)
	$(GO) generate ./...

bench: build ## measure the cost of reading against a plain reader (root, gcc); BENCH=NAME for some cases
	$(GO) run ./bench $(BENCH)

reference: build ## compare Debian's 3.1, 3.3 and 3.4 in every scenario; docs/reference.md (root; 15 minutes)
	GO=$(GO) scripts/reference.sh

verdicts: build rubies ## compare a build with itself 30 times, and with 2% more (root; 25 minutes)
	$(GO) run ./bench/verdicts 'chroot .rubies/3.3 ruby3.3'

fuzz: ## fuzz each parser for FUZZTIME (60s)
	@grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pagemap ebpf audit report forktest internal cmd | \
	while IFS=: read -r file _ decl; do \
		target=$${decl#func }; echo "== $$(dirname $$file) $$target"; \
		$(GO) test "./$$(dirname $$file)" -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
	done

soak: ## audit in a loop for SOAK (60s) under a storm of forks, exits and mappings
	COWAUDIT_SOAK=$(SOAK) $(GO) test -count=1 -v -timeout 60m -run Storm ./internal/storm

rubies: ## Debian's Rubies 3.3 and 3.4 as trees in .rubies, for tests (root, debootstrap)
	scripts/rubies.sh

rubies-pair: ## libruby 3.3 built twice with symbols, without and with a fix, in .rubies (root; two minutes)
	scripts/rubies-pair.sh

clean: ## remove bin; .rubies stays
	rm -rf bin
