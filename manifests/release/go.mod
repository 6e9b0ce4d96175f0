// The program behind `make image` and `make release`. It is a module of its own
// so that Herald's does not need what only a release does.
module github.com/herald-vip/herald/manifests/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/alecthomas/kong v1.17.0
	github.com/distribution/reference v0.6.0
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
)
