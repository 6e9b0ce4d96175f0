// Command herald-release packs what `make image` and `make release` have built:
// container images, archives, packages, the chart, bills of materials, checksums and signatures. What it writes
// depends on its arguments and input alone, so that everybody who builds the
// same commit gets the same bytes.
package main

import (
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/alecthomas/kong"
)

type commands struct {
	Image   imageCommand   `cmd:"" help:"Write the archive of a container image that holds one program."`
	Package packageCommand `cmd:"" help:"Write packages of programs, deb and rpm."`
	Release releaseCommand `cmd:"" help:"Write all files of a release."`
	Sign    signCommand    `cmd:"" help:"Sign the files of a release."`
}

// build is what all that comes from one build shares.
type build struct {
	Version string `required:"" help:"Version that was built."`
	Commit  string `required:"" help:"Commit that was built."`
	Time    int64  `required:"" help:"Time of that commit in seconds since 1970; everything is said to be made then."`
}

// semver is the version as charts and packages want it. What has no tag yet is before all releases.
func (b build) semver() string {
	v := strings.TrimPrefix(b.Version, "v")
	if _, err := semver.StrictNewVersion(v); err != nil {
		return "0.0.0-g" + v
	}
	return v
}

func (b build) time() time.Time { return time.Unix(b.Time, 0).UTC() }

func main() {
	var cli commands
	k := kong.Parse(&cli, kong.Name("herald-release"), kong.UsageOnError())
	k.FatalIfErrorf(k.Run())
}
