package nft

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/testenv/wait"
)

// foreign are tables of other programs, of the same family and even with names like Herald's.
const foreign = `
table inet filter {
	map listen4 { type ipv4_addr . inet_service : verdict; flags timeout; }
	chain prerouting { type nat hook prerouting priority -101; policy accept; ip daddr . tcp dport vmap @listen4; }
}
table ip herald_balancer {
	chain output { type nat hook output priority -101; policy accept; tcp dport 1 counter accept; }
}
`

// others lists all tables except Herald's.
func (m *machine) others() string {
	m.T.Helper()
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(m.Run("", "nft", "list", "tables")), "\n") {
		if line != "table inet "+tableName {
			out = append(out, m.Run("", "nft", append([]string{"--stateless", "--handle", "list"}, strings.Fields(line)...)...))
		}
	}
	return strings.Join(out, "")
}

// No operation changes another table.
func TestOthersUntouched(t *testing.T) {
	s := newSite(t)
	s.node.NFT(foreign)
	before := s.node.others()
	p := s.node.idlePlane(Options{})
	for _, do := range []func() error{
		func() error { return p.Apply([]balancer.Service{s.service(local, vip4)}) },
		func() error { bridgeTo(t, p, s.masters...); return nil },
		p.refresh,
		func() error { return p.owner.kernel.replace(p.owner.desired(*p.owner.have)) },
		func() error { return p.Bridge().Prepare(nil) },
		func() error { return p.Apply(nil) },
		func() error { return clearTable(int(s.node.NS)) },
	} {
		s.must(do())
		if after := s.node.others(); after != before {
			t.Fatalf("other tables were:\n%s\nand are:\n%s", before, after)
		}
	}
	if got := s.node.Run("", "nft", "list", "tables"); strings.Contains(got, "inet "+tableName) {
		t.Errorf("tables left:\n%s", got)
	}
}

// vandalism are changes that other programs may make to Herald's table.
var vandalism = []string{
	"flush ruleset",
	"delete table inet herald_balancer",
	"add table inet herald_balancer { flags dormant; }",
	"flush table inet herald_balancer",
	"flush chain inet herald_balancer output",
	"flush chain inet herald_balancer postrouting; delete chain inet herald_balancer postrouting",
	"flush chain inet herald_balancer guard; delete chain inet herald_balancer guard; add chain inet herald_balancer guard { type filter hook prerouting priority 0; }",
	"flush map inet herald_balancer listen4",
	"flush map inet herald_balancer buckets4/apiserver",
	"delete element inet herald_balancer masquerade4 { 127.0.0.1 . 9443 }",
	"add element inet herald_balancer listen4 { 10.9.0.77 . 80 timeout 1h : jump service4/apiserver }",
	"delete element inet herald_balancer listen4 { 127.0.0.1 . 9443 }; add element inet herald_balancer listen4 { 127.0.0.1 . 9443 : jump service6/apiserver }",
	"insert rule inet herald_balancer output accept",
	"add chain inet herald_balancer mine; add rule inet herald_balancer mine accept",
	"flush ruleset; add table inet herald_balancer; add set inet herald_balancer listen4 { type inet_service; }",
}

// Changes by other programs are repaired, and counters keep their values.
func TestVandals(t *testing.T) {
	s := newSite(t)
	p := s.node.plane(Options{})
	service := s.service(local)
	s.must(p.Apply([]balancer.Service{service}))
	bridgeTo(t, p, s.masters...)
	s.node.served(local, 9)
	_, err := p.Counts() // saves the counters, as a refresh would later
	s.must(err)
	// mended reports whether the table is the desired one.
	mended := func() bool {
		p.owner.Lock()
		found, err := p.owner.read()
		ok := err == nil && change(found, p.owner.desired(found)).empty()
		p.owner.Unlock()
		return ok
	}
	for _, command := range vandalism {
		func() {
			p.owner.Lock() // prevents a repair before the check
			defer p.owner.Unlock()
			s.node.NFT(command)
			found, err := p.owner.read()
			s.must(err)
			if change(found, p.owner.desired(found)).empty() {
				t.Errorf("%q changes nothing", command)
			}
		}()
		wait.Until(t, "repaired after "+command, mended)
		c := s.node.connect(local)
		if c.source != s.node.v4.String() {
			t.Errorf("after %q: %s sees %s", command, c.server, c.source)
		}
	}
	counts, err := p.Counts()
	s.must(err)
	sum := 0
	for _, c := range counts {
		sum += int(c.Connections)
	}
	if sum < 9 {
		t.Errorf("%d connections counted, want 9 or more", sum)
	}
}

// Before its first Apply a successor keeps its predecessor's services, and bridges, even after other programs changed
// the table.
func TestVandalsOfAnAdoptedTable(t *testing.T) {
	s := newSite(t)
	service := s.service(local)
	for _, command := range vandalism {
		before := s.node.idlePlane(Options{})
		s.must(before.Apply([]balancer.Service{service}))
		s.must(before.Close())
		p := s.node.idlePlane(Options{})
		bridgeTo(t, p, s.masters...)
		s.node.NFT(command)
		s.must(p.owner.repair())
		s.must(p.refresh())
		s.must(p.Apply([]balancer.Service{service}))
		s.node.served(local, 3)
		s.must(p.Close())
	}
}

// A successor that finds a base chain at another priority, as of another release, replaces it and keeps the
// predecessor's services.
func TestAdoptsAnotherPriority(t *testing.T) {
	s := newSite(t)
	before := s.node.idlePlane(Options{})
	s.must(before.Apply([]balancer.Service{s.service(local)}))
	s.must(before.Close())
	const chain = "chain inet herald_balancer postrouting"
	s.node.NFT("flush " + chain + "; delete " + chain + "; add " + chain + " { type nat hook postrouting priority 50; }")
	p := s.node.idlePlane(Options{})
	bridgeTo(t, p, s.masters...)
	s.node.served(local, 3)
	s.must(p.Close())
}

// A setting that sysctl --system resets is set again, long before the next refresh.
func TestSettingsReset(t *testing.T) {
	s := newSite(t)
	p := s.node.plane(Options{Outlive: time.Hour})
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	const setting = "net.ipv4.conf.eth0.route_localnet"
	s.node.Run("", "sysctl", "-qw", setting+"=0")
	wait.Until(t, setting+" is set again", func() bool { return s.node.Run("", "sysctl", "-n", setting) == "1\n" })
	s.node.served(local, 3)
}

// Each operation makes a missing table anew.
func TestGoneTable(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	service := s.service(local)
	flush := func() { s.node.NFT("flush ruleset") }
	for range 2 {
		flush()
		s.must(p.Apply([]balancer.Service{service}))
		s.node.served(local, 3)
		service.Backends = s.backends(balancer.Serving, s.masters[:2]...)
	}
	flush()
	s.must(p.refresh())
	s.node.served(local, 3)
	b := bridgeTo(t, p, s.masters...)
	flush()
	b.Open(time.Minute, vip4.Addr())
	s.must(b.plane.owner.openBridge())
	if got := s.node.served(vip4, 3); len(got) != 3 {
		t.Errorf("the bridge forwards to %v", got)
	}
	flush()
	s.must(b.Close(vip4.Addr()))
	s.node.served(local, 3)
}

// Other programs may save the table and load it again. nft writes some rules in another form.
func TestReload(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	hashed := s.service(vip6)
	hashed.Name, hashed.Method = "hashed", balancer.SourceHash
	s.must(p.Apply([]balancer.Service{s.service(local), hashed}))
	b := bridgeTo(t, p, s.masters...)
	b.Open(time.Minute, vip4.Addr())
	s.must(b.plane.owner.openBridge())
	s.node.Reload()
	s.node.served(local, 3)
	s.must(p.owner.repair())
	found, err := p.owner.read()
	if todo := change(found, p.owner.desired(found)); err != nil || !todo.empty() {
		t.Errorf("error %v, and %+v is left to do", err, todo)
	}
	s.node.served(local, 3)
}
