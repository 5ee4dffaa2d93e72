# sallyport: build, test, demo. `make help` lists the targets.

GO      ?= go
BIN     := bin/sallyport
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
PREFIX  ?= /usr/local

# The tests drive real clients; test/deps.sh says which of them are missing.
TESTFLAGS ?= -race -timeout 20m

.PHONY: build install demo test unit e2e soak cases fuzz bench bench-check bench-growth bench-packages ci lint deps deb image clean help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: $(BIN) ## build bin/sallyport, static

$(BIN): $(shell find cmd gateway policy secrets audit certs -name '*.go' -not -name '*_test.go') go.mod go.sum
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.release=$(VERSION)' -o $@ ./cmd/sallyport

SHARE = $(DESTDIR)$(PREFIX)/share
install: build ## install to PREFIX: the program, its manual pages, completions for shells
	install -D -m 0755 $(BIN) $(DESTDIR)$(PREFIX)/bin/sallyport
	rm -rf dist/docs
	$(BIN) docs dist/docs
	install -d $(SHARE)/man/man1
	install -m 0644 dist/docs/man1/*.1 $(SHARE)/man/man1
	install -D -m 0644 dist/docs/completions/bash $(SHARE)/bash-completion/completions/sallyport
	install -D -m 0644 dist/docs/completions/zsh $(SHARE)/zsh/site-functions/_sallyport
	install -D -m 0644 dist/docs/completions/fish $(SHARE)/fish/vendor_completions.d/sallyport.fish

demo: build ## the tour: a real sandbox, allowed, blocked, swapped; no internet
	@command -v curl >/dev/null || sh test/deps.sh curl
	$(BIN) demo

deps: ## install what the tests need, where that can be done
	sh test/deps.sh

test: deps lint unit e2e soak ## everything: vet, house rules, unit, fuzz seeds, real namespaces and clients, three minutes of soak

lint:
	@unformatted=$$(gofmt -l cmd gateway policy secrets audit certs examples test); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) build ./policy/... ./secrets ./certs ./audit ./gateway/http1 ./gateway/identity ./gateway/dns ./gateway/inject

unit: ## packages alone, with -race; fuzz targets run their seeds
	$(GO) build -race ./...
	$(GO) test $(TESTFLAGS) -p 1 $$($(GO) list ./... | grep -v '^sallyport/test/')

e2e: build ## real namespaces, kernel rules, TLS and clients; needs root for the lab
	$(GO) test $(TESTFLAGS) -count 1 -p 1 $$($(GO) list ./test/... | grep -v '^sallyport/test/soak$$')
	cd test/kubernetes && $(GO) test ./...

SOAKTIME ?= 3m
soak: ## mixed traffic, reloads, rotations and faults for SOAKTIME; memory stays flat
	$(GO) test -count 1 -timeout 60m ./test/soak -v -soak $(SOAKTIME)

cases: ## the corpus of cases as a table: id, title, pass
	$(GO) run ./test/corpus/table

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME
	GO=$(GO) FUZZTIME=$(FUZZTIME) sh test/fuzz.sh

bench-packages: ## benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench: bin/bench ## beside other proxies: tables, test/bench/RESULTS.md, a picture; root, 45 min (BENCHFLAGS)
	sh test/deps.sh nginx haproxy squid mitmdump dnsmasq unbound
	bin/bench -results test/bench -readme README.md $(BENCHFLAGS)

# In continuous integration machines are noisy, and time is short.
bench-check: BENCHFLAGS ?= $(if $(CI),-share 0.6 -rounds 3 -length 1s)
bench-check: bin/bench ## is it slower, beside other proxies, than it was? root, 2 min (KEEP=1: keep the new ratios)
	sh test/deps.sh nginx dnsmasq
	bin/bench $(if $(KEEP),-keep,-check) -baseline test/bench/baseline.json -only W1,W2,W9 \
		-peers splice,nginx,dnsmasq,sallyport-netns,sallyport-100k-netns $(BENCHFLAGS)

bench-growth: bin/bench ## how cost grows with requests, rules, secrets, sandboxes, names and records; root, 10 min
	bin/bench -growth -readme README.md $(BENCHFLAGS)

bin/bench: build $(shell find test/bench -name '*.go') go.mod go.sum
	CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./test/bench/cmd

ci: export CI = true
ci: test demo bench-check ## what continuous integration runs

deb: build ## the Debian package, in dist
	sh examples/debian/build.sh $(BIN) $(VERSION) dist

image: build ## the container image sallyport, without the network
	sh examples/docker/build.sh $(BIN) dist/image
	docker build -t sallyport dist/image

clean: ## remove what was built
	rm -rf bin dist
