//go:build e2e

package install

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
)

// TestHAProxyAsksHerald runs HAProxy with the file of docs/balancing.md; Herald
// reports which masters are healthy. A master with a failed apiserver, or a draining
// one, receives no more connections.
func TestHAProxyAsksHerald(t *testing.T) {
	f := site.NewFlat(t)
	apiservers := make(map[string]*stub.Server)
	for _, m := range []string{"m1", "m2"} {
		f.Rewrite(t, m, "herald.yaml", func(string) string {
			return strings.Replace(site.BalancingConf(m, "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"), "name: kubernetes", "name: master", 1) +
				"loadBalancer: {type: external}\nmetrics: {listen: \"0.0.0.0:9474\"}\n"
		})
		apiservers[m] = stub.APIServer(m)
		site.Serve(t, f.Node(m), ":6443", apiservers[m])
		site.Boot(t, f.Lab, m+"-speaker")
	}
	file := site.ReadFile(t, "../../../manifests/external/haproxy.cfg")
	site.Must(t, os.WriteFile(filepath.Join(f.Dir, "m3", "haproxy.cfg"), []byte(strings.ReplaceAll(file, " 10.0.1.", " 10.4.0.")), 0o600))
	client := f.Node("m3-speaker") // it does not run Herald
	site.Daemonise(t, client, "haproxy", "-db", "-f", "/etc/herald/haproxy.cfg")

	get := http.Client{Transport: &http.Transport{DialContext: client.DialContext, DisableKeepAlives: true}, Timeout: site.Soon}
	inARow := func(want int) {
		t.Helper()
		const enough = 10 // by then each of two servers has had its turn
		site.Eventually(t, site.Soon, func() error {
			for range enough {
				if got := site.Ask(t.Context(), &get, "http://127.0.0.1:6443/readyz"); got != want {
					return fmt.Errorf("answered %d, want %d", got, want)
				}
			}
			return nil
		})
	}
	inARow(http.StatusOK)
	apiservers["m1"].SetAll(stub.Answer{Status: http.StatusInternalServerError})
	inARow(http.StatusOK) // from m2 alone
	site.Must(t, f.Herald(t, "m2", "drain"))
	inARow(0) // and from none
	site.Must(t, f.Herald(t, "m2", "undrain"))
	inARow(http.StatusOK)
}
