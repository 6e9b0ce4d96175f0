package doctor

import (
	"crypto/x509"
	_ "embed"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

//go:embed testdata/routed.yaml
var routedFile string

//go:embed testdata/flat.yaml
var flatFile string

var (
	now      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	vip      = netip.MustParseAddr("10.0.1.100")
	m2, m3   = net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 3}
	stranger = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

func parsed(t testing.TB, file string) *config.Config {
	t.Helper()
	c, err := config.Parse("herald.yaml", []byte(file))
	must.Do(t, err)
	if c.BGP != nil {
		c.BGP.Peers[0].Password = "secret" // as Load reads it
	}
	return c
}

// host has two links, eth0 in 10.0.1.0/24 and eth1 in 10.0.2.0/24.
func host() link.Survey {
	prefix := netip.MustParsePrefix
	return link.Survey{
		Links: map[string]link.Link{
			"lo":   {Name: "lo", Index: 1},
			"eth0": {Name: "eth0", Index: 2, Up: true, Prefixes: []netip.Prefix{prefix("10.0.1.0/24")}},
			"eth1": {Name: "eth1", Index: 3, Up: true, Prefixes: []netip.Prefix{prefix("10.0.2.0/24")}},
		},
		Addresses: []link.Address{
			{Link: "lo", Prefix: prefix("127.0.0.1/8")},
			{Link: "eth0", Prefix: prefix("10.0.1.1/24")},
			{Link: "eth1", Prefix: prefix("10.0.2.1/24")},
			{Link: "eth0", Prefix: prefix("fd00:1::1/64")},
		},
		Neighbours: []link.Neighbour{
			{Addr: netip.MustParseAddr("10.0.1.2"), MAC: m2},
			{Addr: netip.MustParseAddr("10.0.1.3"), MAC: m3},
		},
	}
}

// certificate returns that of the apiserver, unsigned.
func certificate() *x509.Certificate {
	return &x509.Certificate{
		NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(0, 11, 0),
		DNSNames:    []string{"kubernetes", "api.example.net"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 99, 0, 10), net.ParseIP("fd00:99::10")},
	}
}

// well returns the facts of a node without a fault.
func well(c *config.Config) *facts.Facts {
	f := &facts.Facts{
		Now: now, File: "/etc/herald/herald.yaml",
		Capabilities: 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_NICE | 1<<unix.CAP_IPC_LOCK,
		Holder:       "this process",
		Descriptors:  1024,
		ClockSource:  "tsc",
		Settings: map[string]string{
			"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/all/arp_ignore": "0", "net/ipv6/conf/lo/disable_ipv6": "0",
			"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
			"net/netfilter/nf_conntrack_max": "262144", "net/netfilter/nf_conntrack_count": "77",
			"net/ipv4/neigh/default/gc_thresh3": "1024", "kernel/sched_rt_runtime_us": "950000",
		},
		Modes:    map[string]fs.FileMode{},
		Host:     host(),
		Ports:    map[facts.Port]error{},
		Wire:     map[netip.Addr]facts.Use{},
		Members:  map[string]facts.Reach{},
		Peers:    map[string]string{},
		Checks:   []health.Verdict{{Name: "apiserver", State: health.Healthy, Reason: "200 in 2ms"}},
		Backends: map[string]facts.Backends{},
	}
	for _, b := range c.Balancers {
		f.Backends[b.Name] = facts.Backends{Backends: []facts.Backend{
			{Name: "m1", Address: netip.MustParseAddrPort("10.0.1.1:6443"), Serves: true, Reason: "accepted in 1ms"},
			{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:6443"), Serves: true, Reason: "accepted in 1ms"},
		}}
	}
	for _, path := range facts.Secrets(c) {
		f.Modes[path] = 0o600
	}
	for _, p := range facts.Ports(c) {
		f.Ports[p] = nil
	}
	for _, name := range facts.Others(c) {
		f.Members[name] = facts.Reach{TCP: facts.Accepted, UDP: facts.Silent}
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			f.Peers[p.Name()] = ""
		}
	}
	return f
}

// node returns the configuration in a file, and the facts of its node without a fault.
func node(t testing.TB, file string) (*config.Config, *facts.Facts) {
	t.Helper()
	c := parsed(t, file)
	return c, well(c)
}

// running1 returns the status of a Herald that runs with a file.
func running1(file string) *admin.Status {
	return &admin.Status{Version: "v1", Config: admin.Config{File: file, Generation: 1}, Election: &admin.Election{Fence: admin.FenceOn}}
}

// runs adds a running Herald with a change of its status.
func runs(change func(*admin.Status)) func(*config.Config, *facts.Facts) {
	return func(_ *config.Config, f *facts.Facts) {
		f.Running = running1(f.File)
		change(f.Running)
	}
}

// hears adds a running Herald that knows these members.
func hears(members ...lease.Member) func(*config.Config, *facts.Facts) {
	return runs(func(s *admin.Status) { s.Election.Members = members })
}

// reaches2 sets the answers of m2.
func reaches2(tcp, udp facts.Answer) func(*config.Config, *facts.Facts) {
	return func(_ *config.Config, f *facts.Facts) { f.Members["m2"] = facts.Reach{TCP: tcp, UDP: udp} }
}

// verdict sets that of the first check.
func verdict(v health.Verdict) func(*config.Config, *facts.Facts) {
	v.Name = "apiserver"
	return func(_ *config.Config, f *facts.Facts) { f.Checks[0] = v }
}

// faulty returns the findings that are not OK.
func faulty(all []Finding) []Finding {
	return slices.DeleteFunc(all, func(f Finding) bool { return f.Severity == OK })
}

// finding returns the first finding of a topic with this prefix of its subject.
func finding(t *testing.T, all []Finding, topic, subject string) Finding {
	t.Helper()
	for _, f := range all {
		if f.Topic == topic && strings.HasPrefix(f.Subject, subject) {
			return f
		}
	}
	t.Fatalf("no finding about %s %s in %+v", topic, subject, all)
	return Finding{}
}
