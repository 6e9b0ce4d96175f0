package facts

import (
	"net/netip"
	"os"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/testenv/must"
)

// The configurations that the findings are tested with, too.
const routedFile, flatFile = "../testdata/routed.yaml", "../testdata/flat.yaml"

var vip = netip.MustParseAddr("10.0.1.100") // of flatFile

func parsed(t testing.TB, file string) *config.Config {
	t.Helper()
	data := must.Get[[]byte](t)(os.ReadFile(file))
	c, err := config.Parse("herald.yaml", data)
	must.Do(t, err)
	return c
}

// host has one address.
func host(addr string) link.Survey {
	return link.Survey{Addresses: []link.Address{{Link: "lo", Prefix: netip.MustParsePrefix(addr)}}}
}
