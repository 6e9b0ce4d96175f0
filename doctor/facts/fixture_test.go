package facts

import (
	"net/netip"
	"os"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/link"
)

// The configurations that the findings are tested with, too.
const routedFile, flatFile = "../testdata/routed.yaml", "../testdata/flat.yaml"

var vip = netip.MustParseAddr("10.0.1.100") // of flatFile

func parsed(t testing.TB, file string) *config.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("herald.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// host has one address.
func host(addr string) link.Survey {
	return link.Survey{Addresses: []link.Address{{Link: "lo", Prefix: netip.MustParsePrefix(addr)}}}
}
