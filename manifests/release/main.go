// Command herald-release packs what `make image` and `make release` have built:
// container images, archives, packages, the chart, bills of materials, checksums and signatures. What it writes
// depends on its arguments and input alone, so that everybody who builds the
// same commit gets the same bytes.
package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/alecthomas/kong"
)

type commands struct {
	Image   imageCommand   `cmd:"" help:"Write the archive of a container image that holds one program."`
	Release releaseCommand `cmd:"" help:"Write all files of a release."`
	Sign    signCommand    `cmd:"" help:"Sign the files of a release."`
}

// build is what all that comes from one build shares.
type build struct {
	Version string `required:"" help:"Version that was built."`
	Commit  string `required:"" help:"Commit that was built."`
	Time    int64  `required:"" help:"Time of that commit in seconds since 1970; everything is said to be made then."`
}

// semver is the version as charts and packages want it. What was made after a tag, as git describes it, is between that and the
// next; what has no tag yet is before all releases.
func (b build) semver() string {
	described := regexp.MustCompile(`^v?(.*?)((?:-\d+-g[0-9a-f]+)?(?:-dirty)?)$`).FindStringSubmatch(b.Version)
	tag, err := semver.StrictNewVersion(described[1])
	after := strings.ReplaceAll(described[2], "-", ".")
	switch {
	case err != nil:
		return "0.0.0-g" + strings.TrimPrefix(b.Version, "v")
	case after != "" && tag.Prerelease() == "":
		return tag.IncPatch().String() + "-0" + after
	}
	return described[1] + after
}

func (b build) time() time.Time { return time.Unix(b.Time, 0).UTC() }

func main() {
	var cli commands
	k := kong.Parse(&cli, kong.Name("herald-release"), kong.UsageOnError())
	k.FatalIfErrorf(k.Run())
}
