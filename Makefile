# Every target does its own set-up on a fresh Debian or Ubuntu with Go.

# Where go.dev's archive goes, which sudo leaves out.
export PATH := $(PATH):/usr/local/go/bin

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME   ?= 60s
BENCH      ?= failover,flat,services,balancer,tenants
QUICK      ?=
SOAK_TIME  ?= 30m
MODE       ?= bgp
TESTS      ?= .
ROUTER     ?= embedded
FILMS      ?= demo why

SCHEDULES  ?= 10000
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOBUILD     = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
REALPARTS   = testenv/realparts
KUBERNETES  = kube-apiserver kube-controller-manager kube-proxy kubectl
TESTED_WITH = iproute2 nftables iptables procps prometheus w3m haproxy

# What a release is made of. A build outside git has to be told all three. ARCHS are the architectures, SIGNING_KEY the key that signs.
COMMIT            ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE             ?= herald:$(VERSION)
PACK               = --version $(VERSION) --commit $(COMMIT) --time $(SOURCE_DATE_EPOCH)
RUN                = --cmd='run --config /etc/herald/herald.yaml'
PROGRAMS           = $(foreach a,$(ARCHS),$(a)=bin/linux-$(a)/herald)

.DEFAULT_GOAL := help
.PHONY: help build image release reproduce demo quick test e2e e2e-kubeadm containerlab conformance clock soak bench guard nightly platforms e2e-all-orders microbench fuzz simulate mutate verify lint generate screenshot film clean lab-binaries lab-images release-programs bin/herald-release bin/herald-bench race-binary root go

help: ## 1 s: list the targets, and how long each takes on two cores with what it needs installed and compiled
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## ([^:]*): /\t\1\t/' | expand -t 14,23

build: go ## 10 s: build the static binary bin/herald
	$(GOBUILD) -o bin/herald ./cmd/herald

demo: root lab-binaries $(if $(filter services,$(MODE)),$(REALPARTS)/bin/kube-apiserver) ## 15 s: watch a VIP move between three masters in a lab of namespaces; ROUTER=frr with FRR, MODE=arp without routers, MODE=services for kubectl herald
	testenv/install iproute2 $(filter frr,$(ROUTER)) $(if $(filter services,$(MODE)),frr etcd-server nftables)
	bin/herald-testenv demo --mode $(MODE) --router $(ROUTER)

quick: root ## 2 min: run the tests of test without the race detector, less the longest
	testenv/install $(TESTED_WITH)
	@# Four packages at a time: their tests wait more than they work.
	go test -p 4 -skip '^TestHostilePeer$$/^mutations$$' ./...

test: root ## 4 min: run all tests that need no lab of real parts, with the race detector
	testenv/install gcc libc6-dev $(TESTED_WITH)
	go test -race ./...
	go -C manifests/release test ./...
	go -C testenv/bench test -race ./...

e2e: root lab-binaries race-binary bin/herald-release $(addprefix $(REALPARTS)/bin/,$(KUBERNETES)) $(addprefix $(REALPARTS)/bin/,helm traefik external-dns gateway-api contour/contour) ## 12 min: run the tests on FRR, etcd, kube-apiserver and a registry
	testenv/install iproute2 frr bird2 keepalived haproxy curl etcd-server docker-registry nftables procps strace systemd bind9 bind9-dnsutils unbound ansible-core
	@# It is wanted for its schema, not to set this machine up at the next boot.
	@command -v cloud-init >/dev/null || { mkdir -p /etc/cloud && touch /etc/cloud/cloud-init.disabled; }
	testenv/install cloud-init
	@# Two packages at a time: their tests wait more than they work.
	go test -tags e2e -count=1 -p 2 -timeout 60m ./testenv/...

# Programs that take ten minutes to compile are kept in one archive; its name has a hash of what they were compiled from.
PARTS = $(REALPARTS)/bin/kubeadm-$(shell cat $(REALPARTS)/go.sum $(REALPARTS)/machine/go.sum | sha256sum | cut -c 1-12).tgz
e2e-kubeadm: root build ## 40 min: run clusters of kubeadm, kubelets and kube-proxy behind FRR and on a flat layer 2; TESTS=TestFlat chooses
	[ ! -e $(PARTS) ] || [ -e $(REALPARTS)/bin/v1.36.4/kubeadm ] || tar -C $(REALPARTS)/bin -xmzf $(PARTS)
	$(MAKE) $(REALPARTS)/bin/machine/containerd $(REALPARTS)/bin/v1.36.3/image.tar $(REALPARTS)/bin/v1.36.4/image.tar
	[ -e $(PARTS) ] || { tar -C $(REALPARTS)/bin --exclude image.tar -czf $(PARTS).part machine v1.36.3 v1.36.4 && mv $(PARTS).part $(PARTS); }
	testenv/install iproute2 frr runc containernetworking-plugins iptables nftables conntrack ethtool socat haproxy curl procps
	$(MAKE) image ARCHS=$$(go env GOARCH)
	go test -c -tags e2e,kubeadm -o bin/e2e-kubeadm.test ./testenv/e2e/kubeadm
	testenv/e2e/kubeadm/run -test.run '$(TESTS)'

conformance: root lab-binaries race-binary $(addprefix $(REALPARTS)/bin/,$(KUBERNETES)) $(addprefix $(REALPARTS)/bin/,traefik external-dns gateway-api gateway-api-conformance/conformance) ## 6 min: run the conformance tests of Gateway API against a tenant
	testenv/install iproute2 frr etcd-server bind9
	go test -tags e2e,conformance -count=1 -timeout 40m -run 'TestConformance$$' ./testenv/e2e/tenants

clock: root lab-binaries $(REALPARTS)/bin/kube-apiserver ## 5 s: set the host's clock an hour off for moments: not where others work
	testenv/install iproute2 frr etcd-server docker-registry
	go test -tags e2e,clock -count=1 -run TestClockJumps ./testenv/e2e/session

soak: root lab-binaries race-binary ## 30 min: let speakers live through SOAK_TIME (30m) of random faults, and check the VIP
	testenv/install iproute2 frr nftables
	bin/herald-testenv soak --time $(SOAK_TIME)

bench: root lab-binaries bin/herald-bench $(if $(findstring services,$(BENCH)),$(REALPARTS)/bin/metallb/speaker) $(if $(findstring services,$(BENCH))$(findstring tenants,$(BENCH)),$(REALPARTS)/bin/kubectl) ## 180 min: measure Herald beside others; BENCH=failover,flat,services,balancer,tenants chooses, QUICK=1 takes 12 min
	testenv/install iproute2 frr bird2 exabgp keepalived curl etcd-server nftables haproxy
	bin/herald-bench run --bench $(BENCH) $(if $(QUICK),--quick)

guard: root lab-binaries bin/herald-bench ## 20 s: fail if a withdrawal takes much longer than it should
	testenv/install iproute2 frr bird2
	bin/herald-bench guard

nightly: e2e-all-orders e2e-kubeadm conformance bench reproduce ## 6 h: what takes too long for each change: all boot orders, long soaks, fuzzing and simulation, benchmarks
	$(MAKE) simulate SCHEDULES=100000
	$(MAKE) mutate platforms
	$(MAKE) fuzz FUZZTIME=60s
	$(MAKE) soak SOAK_TIME=1h
	bin/herald-testenv soak-flat
	bin/herald-testenv soak-flat --join --out bin/soak-join
	go -C testenv/bench test -tags e2e -count=1 -p 1 -timeout 60m ./...

platforms: go ## 2 min: have the types of Talos and k0sctl judge what is shipped for them
	go -C testenv/platforms vet ./...
	go -C testenv/platforms test -count=1 ./...

e2e-all-orders:
	HERALD_NIGHTLY=1 $(MAKE) e2e

microbench: go ## 5 min: measure the cost of a probe and of a route
	go test -run '^$$' -bench . -benchmem ./...

fuzz: go ## 40 min: run every fuzz target for FUZZTIME (60s)
	testenv/fuzz $(FUZZTIME)

verify: ## 3 min: search every state of the models of the lease, its fence and its electorate for two holders
	testenv/install spin gcc libc6-dev
	election/lease/model/verify

simulate: go ## 6 min: run leases through SCHEDULES (10000) random schedules of faults, in virtual time, and whole speakers through a tenth as many
	go test -count=1 -v -timeout 3h -run 'TestSchedules|TestFindsBreaks' ./election/lease/sim -schedules $(SCHEDULES)
	go test -count=1 -v -timeout 3h -run 'TestSchedules|TestFindsBreaks' ./speaker/sim -schedules $$(($(SCHEDULES) / 10))

mutate: go ## 25 min: make each defect of testenv/mutate/mutations.txt in lease, fence and speaker, and see that a test finds it
	go test -count=1 -v -tags mutate -timeout 3h -run TestMutations$$ ./testenv/mutate

image: ARCHS ?= amd64 arm64
image: release-programs ## 15 s: write container images: bin/herald_image.tar for all architectures, one of each for docker load
	bin/herald-release image $(PACK) $(RUN) --reference $(IMAGE) --out bin/herald_image.tar $(PROGRAMS)
	for a in $(ARCHS); do bin/herald-release image $(PACK) $(RUN) --reference $(IMAGE) --out bin/herald_image_$$a.tar $$a=bin/linux-$$a/herald || exit; done

# Each architecture takes a minute to compile once; CI makes two.
release: ARCHS ?= amd64 arm64 arm riscv64 s390x
release: release-programs ## 5 min: write the files of a release to bin/release: programs, packages, chart, images, bills of materials, checksums
	@case "$(VERSION) $(COMMIT)" in *unknown*) echo 'this is no git checkout: say VERSION=… COMMIT=… SOURCE_DATE_EPOCH=…' >&2; exit 1;; esac
	rm -rf bin/release
	bin/herald-release release $(PACK) $(RUN) --reference $(IMAGE) --out bin/release --talos manifests/talos/service.yaml \
		--chart manifests/helm/herald --packages manifests/package/nfpm.yaml \
		$(addprefix --with ,README.md LICENSE CHANGELOG.md $(wildcard manifests/herald.service)) $(PROGRAMS)
	$(if $(SIGNING_KEY),bin/herald-release sign --key '$(SIGNING_KEY)' --time $(SOURCE_DATE_EPOCH) --reference $(IMAGE) bin/release)
	ls -l bin/release

reproduce: go ## 9 min: make the release of HEAD twice, in two places, and compare
	manifests/release/reproduce

containerlab: root lab-images $(if $(CONTAINERLAB),,bin/containerlab) $(if $(FRR_IMAGE),,bin/frr.tar) ## 5 min: test image and topologies with Docker and containerlab
	testenv/install iproute2 docker.io
	testenv/containerlab/run

lint: go bin/vale ## 40 s: check formatting, vet, staticcheck and, with Vale, the prose
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt would change the files above: run gofmt -w .' >&2; exit 1; }
	go vet ./...
	go vet -tags e2e,kubeadm,clock,containerlab,conformance ./...
	$(STATICCHECK) -tags e2e,kubeadm,clock,containerlab,conformance ./...
	go -C manifests/release vet ./...
	cd manifests/release && $(STATICCHECK) ./...
	go -C testenv/bench vet -tags e2e ./...
	cd testenv/bench && $(STATICCHECK) -tags e2e ./...
	testenv/vale/lint

generate: go ## 10 s: write docs/config.md and the manifests anew
	go generate ./...

screenshot: ## 10 s: take docs/status-page.png anew
	testenv/install chromium fonts-dejavu-core imagemagick
	chromium --headless --no-sandbox --user-data-dir=bin/chromium --hide-scrollbars --window-size=1160,840 \
		--screenshot=bin/status-page.png file://$(CURDIR)/status/page/testdata/flat.html
	convert bin/status-page.png -colors 64 -strip docs/status-page.png

# One picture in 0.8 seconds, or the file has megabytes.
define record
	LC_ALL=C.UTF-8 asciinema rec --quiet --overwrite --cols 118 --rows 27 --command 'bin/herald-testenv $(FILM_$(1))' bin/$(1).cast
	jq -cs '.[0], (.[1:] | group_by(.[0] / 0.8 | floor)[] | [.[-1][0], "o", (map(.[2]) | add)]), [.[-1][0] + 8, "o", " "]' bin/$(1).cast >bin/film.cast
	npx --yes svg-term-cli@2.1.1 --in bin/film.cast --out docs/$(1).svg

endef
FILM_demo = demo
FILM_why  = demo --mode services
film: root lab-binaries $(REALPARTS)/bin/kube-apiserver ## 2 min: record docs/demo.svg and docs/why.svg anew; FILMS=why chooses
	testenv/install iproute2 asciinema jq frr etcd-server nftables
	command -v npx >/dev/null || testenv/install npm
	$(foreach film,$(FILMS),$(call record,$(film)))

clean: ## 1 s: remove what was built
	rm -rf bin $(REALPARTS)/bin

lab-binaries: build
	$(GOBUILD) -o bin/herald-testenv ./testenv/cmd/herald-testenv

# Nothing of the environment may change what comes out.
release-programs: bin/herald-release
	for a in $(ARCHS); do GOFLAGS= GOWORK=off GOEXPERIMENT= GOFIPS140=off GOOS=linux GOARCH=$$a GOAMD64=v1 GOARM64=v8.0 GOARM=7 $(GOBUILD) -o bin/linux-$$a/herald ./cmd/herald || exit; done

bin/herald-bench: go
	CGO_ENABLED=0 go -C testenv/bench build -trimpath -buildvcs=false -ldflags '-s -w' -o ../../$@ .

bin/herald-release: go
	go -C manifests/release build -buildvcs=false -o ../../$@ .

lab-images: lab-binaries bin/herald-release ## 10 s: write the images that topologies ask for, to bin/lab, for docker load
	mkdir -p bin/lab
	bin/herald-release image $(PACK) $(RUN) --reference herald:dev --out bin/lab/herald.tar $$(go env GOARCH)=bin/herald
	bin/herald-release image $(PACK) --reference herald-testenv:dev --out bin/lab/herald-testenv.tar $$(go env GOARCH)=bin/herald-testenv

# containerlab as its authors build it, pinned; and FRR from Debian's packages.
bin/containerlab: $(REALPARTS)/containerlab/go.mod $(REALPARTS)/containerlab/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS)/containerlab build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/srl-labs/containerlab

bin/frr.tar: testenv/containerlab/frr-image
	testenv/install debootstrap debian-archive-keyring
	testenv/containerlab/frr-image $@

bin/vale: testenv/vale/go.mod testenv/vale/go.sum
	testenv/install gcc libc6-dev
	CGO_ENABLED=1 go -C testenv/vale build -o ../../bin/vale github.com/vale-cli/vale/v3/cmd/vale

race-binary: go
	testenv/install gcc libc6-dev
	CGO_ENABLED=1 go build -race -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/race/herald ./cmd/herald

# Five minutes of compiling, so only the end-to-end tests ask for it, once.
$(addprefix $(REALPARTS)/bin/,$(KUBERNETES)) &: $(REALPARTS)/go.mod $(REALPARTS)/go.sum
	cd $(REALPARTS) && CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/ $(addprefix k8s.io/kubernetes/cmd/,$(KUBERNETES))

# Kubernetes as kubeadm wants it; the later version is the same source under another name.
.PRECIOUS: $(REALPARTS)/bin/%/kubeadm
$(REALPARTS)/bin/%/kubeadm: $(REALPARTS)/go.mod $(REALPARTS)/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS) build -o bin/$*/ \
		-ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$* -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36' \
		$(addprefix k8s.io/kubernetes/cmd/,kubeadm kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl)

$(REALPARTS)/bin/%/image.tar: $(REALPARTS)/bin/%/kubeadm $(REALPARTS)/bin/machine/containerd testenv/e2e/kubeadm/image
	testenv/install iptables nftables busybox-static
	testenv/e2e/kubeadm/image $* $@

$(REALPARTS)/bin/machine/containerd: $(REALPARTS)/machine/go.mod $(REALPARTS)/machine/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS)/machine build -ldflags '-s -w' -tags 'no_btrfs no_devmapper no_zfs' -o ../bin/machine/ tool
	mv $(@D)/server $(@D)/etcd

# MetalLB as its authors build it, pinned, and its CRDs.
$(REALPARTS)/bin/metallb/speaker: $(REALPARTS)/metallb/go.mod $(REALPARTS)/metallb/go.sum
	mkdir -p $(@D)
	CGO_ENABLED=0 go -C $(REALPARTS)/metallb build -ldflags '-s -w' -o $(CURDIR)/$(@D)/ go.universe.tf/metallb/controller go.universe.tf/metallb/speaker
	rm -rf $(@D)/crds
	cp -r "$$(go -C $(REALPARTS)/metallb list -m -f '{{.Dir}}' go.universe.tf/metallb)/config/crd/bases" $(@D)/crds
	chmod -R u+w $(@D)/crds
	touch $@

# helm and kustomize, with which the chart and the overlays are tried.
$(REALPARTS)/bin/helm: $(REALPARTS)/helm/go.mod $(REALPARTS)/helm/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS)/helm build -ldflags '-s -w' -o ../bin/ helm.sh/helm/v3/cmd/helm sigs.k8s.io/kustomize/kustomize/v5

# What serves and names the Ingresses and routes of tenants. Traefik's module lacks the files of its web UI, which its package webui
# embeds: it is built from a copy in which a page of its source stands for them.
$(REALPARTS)/bin/traefik: $(REALPARTS)/traefik/go.mod $(REALPARTS)/traefik/go.sum
	go -C $(REALPARTS)/traefik mod download github.com/traefik/traefik/v3
	rm -rf $@-source && mkdir -p $(@D)
	cp -r "$$(go -C $(REALPARTS)/traefik list -m -f '{{.Dir}}' github.com/traefik/traefik/v3)" $@-source
	chmod -R u+w $@-source
	install -D -m 644 $@-source/webui/index.html $@-source/webui/static/index.html
	cp $(REALPARTS)/traefik/go.mod $@.mod && cp $(REALPARTS)/traefik/go.sum $@.sum
	go mod edit -replace github.com/traefik/traefik/v3=$(CURDIR)/$@-source $@.mod
	CGO_ENABLED=0 go -C $(REALPARTS)/traefik build -modfile $(CURDIR)/$@.mod -ldflags '-s -w' -o $(CURDIR)/$@ github.com/traefik/traefik/v3/cmd/traefik
	rm -rf $@-source $@.mod $@.sum

$(REALPARTS)/bin/external-dns: $(REALPARTS)/externaldns/go.mod $(REALPARTS)/externaldns/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS)/externaldns build -ldflags '-s -w' -o $(CURDIR)/$@ sigs.k8s.io/external-dns

# Contour as its authors build it, pinned, and its CRDs.
$(REALPARTS)/bin/contour/contour: $(REALPARTS)/contour/go.mod $(REALPARTS)/contour/go.sum
	CGO_ENABLED=0 go -C $(REALPARTS)/contour build -ldflags '-s -w' -o ../bin/contour/ github.com/projectcontour/contour/cmd/contour
	install -m 644 "$$(go -C $(REALPARTS)/contour list -m -f '{{.Dir}}' github.com/projectcontour/contour)/examples/contour/01-crds.yaml" $(@D)/crds.yaml

# The standard channel, and of the experimental one two kinds: external-dns watches TLSRoutes, and Traefik TCPRoutes, too, in a
# version that only that one serves.
$(REALPARTS)/bin/gateway-api: $(REALPARTS)/gatewayapi/go.mod $(REALPARTS)/gatewayapi/go.sum
	go -C $(REALPARTS)/gatewayapi mod download sigs.k8s.io/gateway-api
	rm -rf $@ $@.new && mkdir -p $@.new/standard $@.new/experimental
	crds=$$(go -C $(REALPARTS)/gatewayapi list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd && \
		install -m 644 -t $@.new/standard $$crds/standard/*s.yaml && install -m 644 -t $@.new/experimental $$crds/experimental/*_t??routes.yaml
	rm $@.new/standard/*_vap_*
	mv $@.new $@

# The conformance tests of gateway-api, and the server that they want pods to be.
$(REALPARTS)/bin/gateway-api-conformance/conformance: $(REALPARTS)/gatewayapi/go.mod $(REALPARTS)/gatewayapi/go.sum
	mkdir -p $(@D)
	CGO_ENABLED=0 go -C $(REALPARTS)/gatewayapi build -ldflags '-s -w' -o $(CURDIR)/$(@D)/ sigs.k8s.io/gateway-api/conformance/echo-basic
	CGO_ENABLED=0 go -C $(REALPARTS)/gatewayapi test -c -ldflags '-s -w' -o $(CURDIR)/$@ sigs.k8s.io/gateway-api/conformance

root: go
	@test "$$(id -u)" = 0 || { echo 'this needs root, for network namespaces: run it with sudo' >&2; exit 1; }

go:
	@command -v go >/dev/null || { echo 'this needs Go 1.26 or later, which sudo does not find: see https://go.dev/dl/, or run sudo env PATH=$$PATH make' >&2; exit 1; }
