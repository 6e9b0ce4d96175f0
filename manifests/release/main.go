// Command herald-release packs what `make image` and `make release` have built:
// container images, archives, packages, the chart, bills of materials, checksums and signatures. Its output
// depends only on its arguments and input, so that each build of a commit gives the same bytes.
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

// build has the properties of a build.
type build struct {
	Version string `required:"" help:"Version that was built."`
	Commit  string `required:"" help:"Commit that was built."`
	Time    int64  `required:"" help:"Time of that commit in seconds since 1970; the creation time of all files."`
}

// semver returns the version in the form of charts and packages. A build after a tag, as git describes it, sorts
// between that tag and the next; a build without a tag sorts before all releases.
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
