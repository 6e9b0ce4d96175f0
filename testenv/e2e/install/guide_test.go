//go:build e2e

package install

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

const servicesGuide = "../../../docs/services.md"

// testGuide applies the objects of docs/services.md to the API server.
func testGuide(t *testing.T, k *site.APIServer) {
	judged := map[string]int{}
	for _, block := range site.Blocks(t, servicesGuide, "", "yaml") {
		if !strings.Contains(block, "\nmetadata:") {
			continue // a file of Herald's, or values
		}
		for _, o := range site.ObjectsIn(t, []byte(block)) {
			judged[o.Tree["kind"].(string)]++
			if status, answer := k.Judge(t, site.ObjectPath(t, o.Tree), o.Text); status != http.StatusCreated {
				t.Errorf("%d %s\n%s", status, answer, o.Text)
			}
		}
	}
	if judged["AddressPool"] < 2 || judged["BGPPeer"] < 2 || judged["Service"] < 1 {
		t.Errorf("only %v were judged", judged)
	}
}

// TestServicesGuide checks the router's part of docs/services.md with FRR, and the values with
// helm.
func TestServicesGuide(t *testing.T) {
	routers := site.Blocks(t, servicesGuide, "", "frr")
	if len(routers) != 1 {
		t.Fatalf("%d configurations of FRR, want 1", len(routers))
	}
	file := filepath.Join(t.TempDir(), "frr.conf")
	site.Must(t, os.WriteFile(file, []byte(routers[0]), 0o644))
	if out, err := exec.CommandContext(t.Context(), "vtysh", "--dryrun", "--inputfile", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("vtysh: %v\n%s", err, out)
	}
	found := 0
	for _, block := range site.Blocks(t, servicesGuide, "", "yaml") {
		if strings.HasPrefix(block, "# values.yaml of the chart\n") {
			found++
			site.Rendered(t, block)
		}
	}
	if found == 0 {
		t.Error("there are no values of the chart")
	}
}
