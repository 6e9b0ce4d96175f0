//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/stub"
)

// TestHAProxyAsksHerald has HAProxy balance with the file of docs/balancing.md, and Herald say
// who is healthy: a master whose apiserver fails gets no more connections, nor one that drains.
func TestHAProxyAsksHerald(t *testing.T) {
	f := newFlat(t)
	apiservers := make(map[string]*stub.Server)
	for _, m := range []string{"m1", "m2"} {
		f.rewrite(t, m, "herald.yaml", func(string) string {
			return strings.Replace(balancing(m, "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"), "name: kubernetes", "name: master", 1) +
				"loadBalancer: {type: external}\nmetrics: {listen: \"0.0.0.0:9474\"}\n"
		})
		apiservers[m] = stub.APIServer(m)
		serve(t, f.Node(m), ":6443", apiservers[m])
		boot(t, f.Lab, m+"-speaker")
	}
	file, err := os.ReadFile("../../manifests/external/haproxy.cfg")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(f.dir, "m3", "haproxy.cfg"), []byte(strings.ReplaceAll(string(file), " 10.0.1.", " 10.4.0.")), 0o600))
	client := f.Node("m3-speaker") // on which Herald does not run
	daemonise(t, client, "haproxy", "-db", "-f", "/etc/herald/haproxy.cfg")

	get := http.Client{Transport: &http.Transport{DialContext: client.DialContext, DisableKeepAlives: true}, Timeout: soon}
	inARow := func(want int) {
		t.Helper()
		const enough = 10 // of two servers each has had its turn
		eventually(t, soon, func() error {
			for range enough {
				if got := ask(t.Context(), &get, "http://127.0.0.1:6443/readyz"); got != want {
					return fmt.Errorf("answered %d, want %d", got, want)
				}
			}
			return nil
		})
	}
	inARow(http.StatusOK)
	apiservers["m1"].SetAll(stub.Answer{Status: http.StatusInternalServerError})
	inARow(http.StatusOK) // from m2 alone
	must(t, f.herald(t, "m2", "drain"))
	inARow(0) // and nobody's
	must(t, f.herald(t, "m2", "undrain"))
	inARow(http.StatusOK)
}
