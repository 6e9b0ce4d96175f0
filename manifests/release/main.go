// Command herald-release packs what `make image` and `make release` have built:
// container images, archives, bills of materials and checksums. What it writes
// depends on its arguments and input alone, so that everybody who builds the
// same commit gets the same bytes.
package main

import (
	"time"

	"github.com/alecthomas/kong"
)

type commands struct {
	Image   imageCommand   `cmd:"" help:"Write the archive of a container image that holds one program."`
	Release releaseCommand `cmd:"" help:"Write all files of a release."`
}

// build is what all that comes from one build shares.
type build struct {
	Version string `required:"" help:"Version that was built."`
	Commit  string `required:"" help:"Commit that was built."`
	Time    int64  `required:"" help:"Time of that commit in seconds since 1970; everything is said to be made then."`
}

func (b build) time() time.Time { return time.Unix(b.Time, 0).UTC() }

func main() {
	var cli commands
	k := kong.Parse(&cli, kong.Name("herald-release"), kong.UsageOnError())
	k.FatalIfErrorf(k.Run())
}
