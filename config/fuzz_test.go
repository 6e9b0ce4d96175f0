package config_test

import (
	"encoding/base64"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// Any file is accepted or refused without a panic. An accepted one satisfies the
// conditions that other packages rely on; a refused one has its mistakes at positions in
// the file.
func FuzzParse(f *testing.F) {
	example := must.Get[[]byte](f)(os.ReadFile("example.yaml"))
	f.Add(string(example))
	f.Add(base)
	f.Add(strings.ReplaceAll(base, "\n", "\r\n"))
	f.Add(worker)
	f.Add(static)
	for _, s := range []string{
		"vip: a", "port: 1", `address: "[::1]:1"`, `address: "10.0.1.1:6443"`,
	} {
		f.Add(strings.Replace(worker, `address: "127.0.0.1:9443"`, s, 1))
	}
	for _, s := range []string{
		"dns: {name: a., port: 1}", `static: {addresses: ["[fd00::1]:1"]}`, `static: {addresses: ["10.0.1.1:6443"]}, dns: {}`,
	} {
		f.Add(strings.Replace(static, `static: {addresses: ["10.0.1.1:6443"]}`, s, 1) + "  check: {http: {url: \"https://backend/\"}}\n")
	}
	for _, s := range []string{
		"", "a: &a [*a]\n", "* 0\n\n0", "? [x]\n: 1\n", "- - - -\n", "{? {? ", "|0#\n", "0::", "<<: *a", "&a a: *a\n", "%YAML 1.2\n---\n...\n", "a: \"\\u2028\"\n",
	} {
		f.Add(s)
		f.Add(base + s)
	}
	for _, s := range []string{
		"interface: eth1", "families: [ipv6]", "port: 0", "address: \"fe80::1%eth0\"", "address: *a", "localAddress: 1.1.1.1", "prepend: 11",
	} {
		f.Add(strings.Replace(base, "address: 10.0.1.254", s, 1))
	}
	f.Fuzz(func(t *testing.T, file string) {
		c, err := config.Parse("f", []byte(file), config.Hostname("m1"))
		if err != nil {
			checkErrors(t, file, err)
			return
		}
		checkPromises(t, c)
		data := c.YAML()
		again, err := config.Parse("f", data)
		if err != nil {
			t.Fatalf("written file is refused: %v\n%s", err, data)
		}
		if diff := cmp.Diff(c, again, addresses); diff != "" {
			t.Errorf("configuration read again (-want +got):\n%s", diff)
		}
	})
}

// With any drop-ins, the whole satisfies the conditions, or is refused at positions in one of the files.
func FuzzDropIns(f *testing.F) {
	f.Add(registry, "checks: [{name: apiserver, file: {path: /f}}]")
	f.Add("vips: [{name: web}]\nbgp: {}", "vips: 5\nchecks: [7, {rise: x}]")
	f.Add("&a vips: [*a, {addresses: [10.99.0.10]}]", "\"vips[0]\": []\n\"checks[\": 1")
	f.Fuzz(func(t *testing.T, a, b string) {
		files := map[string]string{"f.d/": "a\x00b\x00", "a": a, "b": b}
		read := func(name string) ([]byte, error) { return []byte(files[name]), nil }
		c, err := config.Parse("f", []byte(base), config.ReadBy(read))
		if err == nil {
			checkPromises(t, c)
			return
		}
		var all config.Errors
		if !errors.As(err, &all) {
			t.Fatalf("error is %T %v, want config.Errors", err, err)
		}
		for _, e := range all {
			if e.File == "f" || files[e.File] == "" && e.Line != 1 || strings.ContainsAny(e.Error(), "\r\n") {
				t.Errorf("%v is not a one-line mistake in a drop-in", e)
			}
		}
	})
}

// Any key file is accepted or refused with one sentence; an accepted one has at least one key.
func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(key(1, 16) + "\n" + key(2, 32)))
	f.Add([]byte("# comment\n\n" + key(3, 24)))
	f.Fuzz(func(t *testing.T, file []byte) {
		keys, err := config.ParseKeys(file)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one sentence: %v", err)
			}
			return
		}
		if len(keys) == 0 {
			t.Fatal("no keys and no error")
		}
		var again []byte
		for _, k := range keys {
			again = append(again, base64.StdEncoding.EncodeToString(k)+"\n"...)
		}
		same, err := config.ParseKeys(again)
		if diff := cmp.Diff(keys, same); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func checkErrors(t *testing.T, file string, err error) {
	var all config.Errors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("error is %T %v, want config.Errors", err, err)
	}
	lines := 1 + strings.Count(file, "\n") + strings.Count(file, "\r")
	for i, e := range all {
		if e.Line < 1 || e.Line > lines || e.Column < 1 {
			t.Errorf("%s: position is outside of a file of %d lines", e, lines)
		}
		if e.Message == "" || strings.ContainsAny(e.Error(), "\r\n") {
			t.Errorf("%q is not one line", e)
		}
		if i > 0 && (all[i-1].Line > e.Line || all[i-1].Line == e.Line && all[i-1].Column > e.Column) {
			t.Errorf("%s comes after %s", e, all[i-1])
		}
	}
}

func checkPromises(t *testing.T, c *config.Config) {
	require := func(ok bool, promise string) {
		t.Helper()
		if !ok {
			t.Errorf("violated: %s", promise)
		}
	}
	var checks []string
	for _, check := range c.Checks {
		require(!slices.Contains(checks, check.Name), "names of checks are unique")
		checks = append(checks, check.Name)
		kinds := 0
		for _, field := range reflect.ValueOf(check).Fields() {
			if field.Kind() == reflect.Pointer && !field.IsNil() {
				kinds++
			}
		}
		require(kinds == 1, "a check is of one kind")
		require(check.Exec == nil || len(check.Exec.Command) > 0 && strings.HasPrefix(check.Exec.Command[0], "/") && check.Exec.User != "", "a command can be run")
		require(check.ICMP == nil || check.ICMP.Address.IsValid() && !check.Not, "an echo request has a target")
		require(check.File == nil || strings.HasPrefix(check.File.Path, "/"), "a file has an absolute path")
		require(check.Interval >= 10*time.Millisecond && check.Timeout >= 10*time.Millisecond, "a check has an interval and a timeout")
		require(check.Rise >= 1 && check.Fall >= 1, "a check has rise and fall")
		require(check.HTTP == nil || len(check.HTTP.Status) > 0 && strings.HasPrefix(strings.ToLower(check.HTTP.URL), "http"), "an HTTP check has a URL and statuses")
	}
	families := map[v1alpha1.Family]bool{}
	if c.BGP != nil {
		require(c.BGP.ASN != 0 && len(c.BGP.Peers) > 0, "a BGP speaker has an ASN and peers")
		for _, p := range c.BGP.Peers {
			ways := 0
			for _, given := range []bool{p.Address.IsValid(), p.Interface != "", p.DefaultGateway != ""} {
				if given {
					ways++
				}
			}
			require(ways == 1, "a peer has address, interface or default gateway")
			require(p.ASN != 0 && p.Port != 0 && len(p.Families) > 0 && p.Password == "", "a peer is complete")
			require(p.HoldTime.Duration >= 3*time.Second && p.HoldTime.Duration%time.Second == 0, "a hold time is in whole seconds of at least 3s")
			require(p.Multihop == 0 || p.TTLSecurity == 0, "multihop and ttlSecurity exclude each other")
			for _, family := range p.Families {
				families[family] = true
			}
		}
	}
	if e := c.Election; e != nil {
		worker := c.Services != nil || len(c.Balancers) > 0
		require(worker || e.Bind.IsValid(), "a node that votes has an address")
		require((e.KeyFile != "") != e.Insecure && e.Keys == nil, "an election has a key")
		require(e.Lease >= 100*time.Millisecond && e.Lease <= 10*time.Second, "a lease is long enough")
	}
	require(c.NodeName != "" && strings.HasPrefix(c.Admin.Socket, "/"), "a node has a name and a socket")
	require(len(c.VIPs) > 0 || len(c.Balancers) > 0 || c.Services != nil || len(c.Checks) > 0, "there is a VIP, a balancer, a check or services")
	checkBalancers(c, require)
	names, owned := map[string]bool{}, map[netip.Addr]bool{}
	for _, vip := range c.VIPs {
		require(vip.Name != "" && !names[vip.Name], "names of VIPs are unique")
		names[vip.Name] = true
		arp := vip.Announce == config.AnnounceARP
		kernel := vip.Announce == config.AnnounceKernel
		require(arp && c.Election != nil || kernel && vip.Kernel != nil || vip.Announce == config.AnnounceBGP && c.BGP != nil, "a VIP can be announced")
		require(len(vip.Addresses) > 0 && len(vip.Checks) > 0, "a VIP has addresses and checks")
		for _, addr := range vip.Addresses {
			require(addr.IsValid() && !owned[addr] && addr.IsGlobalUnicast() && addr == addr.Unmap(), "a VIP's addresses are its own and can be reached")
			require(arp || kernel || addr.Is4() && families[v1alpha1.IPv4] || addr.Is6() && families[v1alpha1.IPv6], "a session carries the address")
			owned[addr] = true
		}
		for _, prefix := range vip.Prefixes {
			require(prefix == prefix.Masked() && slices.ContainsFunc(vip.Addresses, prefix.Contains), "a prefix covers an address")
		}
		for _, name := range vip.Checks {
			require(slices.Contains(checks, name), "a VIP's checks exist")
		}
	}
}

func checkBalancers(c *config.Config, require func(bool, string)) {
	names, places := map[string]bool{}, map[netip.AddrPort]bool{}
	for _, b := range c.Balancers {
		require(b.Name != "" && !names[b.Name], "names of balancers are unique")
		names[b.Name] = true
		members, static, dns := b.Backends.Members, b.Backends.Static, b.Backends.DNS
		require((b.Check == nil) == (members != nil), "members check themselves, others are checked")
		switch {
		case members != nil:
			require(static == nil && dns == nil && c.Election != nil && members.Port != 0 && len(members.Checks) > 0, "members are known by an election")
		case static != nil:
			require(dns == nil && len(static.Addresses) > 0, "backends are listed")
		default:
			require(dns != nil && dns.Name != "" && dns.Port != 0 && dns.Interval >= time.Second, "backends can be looked up")
		}
		if b.Check != nil {
			at := balancer.CheckAt(*b.Check.HealthCheck(), netip.MustParseAddrPort("10.0.0.1:1"), nil)
			require((at.HTTP == nil) != (at.TCP == nil) && at.Interval > 0 && at.Rise > 0, "a backend has a check")
			require(at.HTTP == nil || strings.Contains(at.HTTP.URL, "://10.0.0.1:"), "the check is at the backend")
		}
		require(len(b.Listen) > 0, "a balancer listens")
		for _, l := range b.Listen {
			require(l.Address.IsValid() != (l.VIP != "" && l.Port != 0), "a listener is an address or a VIP")
			require(!l.Address.IsValid() || !places[l.Address], "a place has one listener")
			places[l.Address] = true
			require(l.VIP == "" || slices.ContainsFunc(c.VIPs, func(v config.VIP) bool { return v.Name == l.VIP }), "a listener's VIP is there")
		}
	}
}
