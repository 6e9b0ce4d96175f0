//go:build e2e

package balancer

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// testEstablished keeps 5,000 connections through all events of their node's Herald,
// and through a change to an external load balancer and back.
func (b *balanced) testEstablished(t *testing.T) {
	b.follow(t, threeMasters()...)
	established := b.hold(t, "w1", localApp, 5000)
	established.even(t, threeMasters()...)
	w1 := b.Node("w1-speaker")
	load := b.load(t, "w1", localApp, nil)
	began := time.Now()
	for _, end := range []struct {
		name string
		act  func() error
	}{
		{"stopped", func() error { return site.Stop(t, w1) }},
		{"killed", w1.Kill},
	} {
		site.Must(t, end.act())
		load.GoesOn(t, 50) // without Herald, too
		established.intact(t)
		site.Start(t, w1)
		b.serve(t, "w1", "app", threeMasters()...)
		load.GoesOn(t, 50)
		established.intact(t)
		load.None(t, began)
	}

	const external = "loadBalancer: {type: external}\n"
	b.rewrite(t, "w1", func(s string) string { return s + external })
	refused(t, b.Node("w1"), localApp)
	established.intact(t)
	b.rewrite(t, "w1", func(s string) string { return strings.Replace(s, external, "", 1) })
	b.serve(t, "w1", "app", threeMasters()...)
	established.intact(t)
	b.hold(t, "w1", localApp, 300).among(t, threeMasters()...)

	// A change of the method for new connections does not affect them either.
	b.rewrite(t, "w1", func(s string) string {
		return strings.ReplaceAll(s, "- name: app\n", "- name: app\n  method: source-hash\n")
	})
	site.Eventually(t, site.Soon, func() error {
		h := b.hold(t, "w1", localApp, 20)
		defer h.close()
		return site.ErrorIf(len(h.shares()) != 1, "by the source's hash connections went to %v, want a single master", h.shares())
	})
	b.rewrite(t, "w1", func(s string) string { return strings.Replace(s, "  method: source-hash\n", "", 1) })
	established.intact(t)
	b.serve(t, "w1", "app", threeMasters()...)
}

// healthz returns the answer of a host's Herald to a query from a node about a name.
func (b *balanced) healthz(t *testing.T, node, host, name string) (status int, text string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: b.Node(node).DialContext, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get("http://" + host + ":9474/healthz/" + name)
	site.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	site.Must(t, err)
	return response.StatusCode, strings.TrimSpace(string(body))
}

// answers waits until a host's Herald answers the wanted status for each name.
func (b *balanced) answers(t *testing.T, host string, want map[string]int) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for name, status := range want {
			got, text := b.healthz(t, "b1", host, name)
			if got != status || status == http.StatusServiceUnavailable && !strings.Contains(text, " ") {
				return fmt.Errorf("%s answers %d %q about %s, want %d", host, got, text, name, status)
			}
		}
		return nil
	})
}

// testExternal leaves balancing to a HAProxy, which asks Herald for eligible servers.
func (b *balanced) testExternal(t *testing.T) {
	const external = "loadBalancer: {type: external}\n"
	for _, m := range threeMasters() {
		b.rewrite(t, m, func(s string) string { return s + external })
	}
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 200, "app": 200, "control-plane": 200, "nobody": 404})
	site.Boot(t, b.Lab, "b1-haproxy")
	haproxy := b.load(t, "w2", "10.5.0.9:6443", b.pki.Client(t))

	site.Kill(t, b.Node("m1-apiserver"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 503, "registry": 200, "app": 200, "control-plane": 503})
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 200})
	site.Start(t, b.Node("m1-apiserver"))
	site.Kill(t, b.Node("m1-registry"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 503, "app": 200, "control-plane": 503})
	site.Start(t, b.Node("m1-registry"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 200, "control-plane": 200})
	haproxy.GoesOn(t, 50) // HAProxy has asked several times meanwhile

	// A drain is announced to HAProxy in time: no connection fails.
	drained := time.Now()
	b.herald(t, "m2", "drain")
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 503, "registry": 503, "control-plane": 503})
	haproxy.GoesOn(t, 50)
	b.herald(t, "m2", "undrain")
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 200, "registry": 200, "control-plane": 200})
	haproxy.GoesOn(t, 50)
	haproxy.None(t, drained)

	for _, m := range threeMasters() {
		b.rewrite(t, m, func(s string) string { return strings.Replace(s, external, "", 1) })
	}
	b.follow(t, threeMasters()...)
}
