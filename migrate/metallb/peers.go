package metallb

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/service/peering"
)

// Defaults of MetalLB with FRR.
const (
	bfdInterval   = 300 // ms
	bfdMultiplier = 3
	frrMultihop   = 255 // TTL of ebgp-multihop without a number
)

// lbPeer is a peer and its object.
type lbPeer struct {
	spec v1alpha1.Peer
	*object
	profile     string // of BFD
	profileLine int
}

// peer converts a BGPPeer.
func (m *converter) peer(o *object) {
	p := &lbPeer{object: o}
	path := yaml.Path("peers").Item(len(m.peers)).Field("spec")
	f := o.fields()
	p.spec.Address = p.address(f, "peerAddress")
	p.spec.Interface = f.text("interface")
	own := f.number("myASN", 1<<32-2, 0)
	if other := f.number("localASN", 1<<32-2, 0); other > 0 { // the router sees only this one
		own = other
	}
	p.spec.LocalASN = v1alpha1.ASN(own)
	p.spec.ASN = v1alpha1.ASN(f.number("peerASN", 1<<32-2, 0))
	switch dynamic := f.text("dynamicASN"); {
	case dynamic == "internal":
		p.spec.ASN = v1alpha1.ASN(own)
	case dynamic == "external":
		p.spec.ASN = v1alpha1.External
	case p.spec.ASN == 0:
		const missing = "the router's autonomous system"
		m.LeaveSilently(path.Field("asn"), missing, "asn: ASN")
		o.ToDo(o.line, o.about("asn"), "fill in %s", missing)
	}
	p.spec.LocalAddress = p.address(f, "sourceAddress")
	if n := f.number("peerPort", 1<<16-1, 0); n != 179 {
		p.spec.Port = uint16(n)
	}
	p.timers(f)
	if retry, line := f.duration("connectTime"); line != 0 {
		nearest := min(max(retry.Round(time.Second), 2*time.Second), time.Minute)
		if nearest != retry {
			p.Note(line, p.about("connectTime"), "Herald accepts whole seconds from 2s to 60s, not %v: the nearest is written", retry)
		}
		p.spec.ConnectRetry = &metav1.Duration{Duration: nearest}
	}
	m.password(p, path, f)
	p.spec.NodeSelectors = f.selectors("nodeSelectors")
	switch {
	case !f.boolean("ebgpMultiHop", false):
	case own != 0 && int64(own) == int64(p.spec.ASN):
		o.Note(o.line, o.about("ebgpMultiHop"), "iBGP is not limited to one hop: left out")
	default:
		p.spec.Multihop = frrMultihop
	}
	if f.boolean("dualStackAddressFamily", false) {
		p.spec.Families = []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}
	}
	profile := f.take("bfdProfile")
	p.profile, p.profileLine = profile.Text(), profile.Line
	f.done()
	if slices.ContainsFunc(m.peers, func(other *lbPeer) bool { return other.name == p.name }) {
		o.ToDo(o.line, o.about(""), "another peer has this name: rename one of them, also where pools name it")
	}
	m.peers = append(m.peers, p)
}

// address parses the address of a field. It notes an invalid one.
func (p *lbPeer) address(f *fields, name string) netip.Addr {
	text := f.text(name)
	addr, err := netip.ParseAddr(text)
	if err != nil && text != "" {
		p.ToDo(p.line, p.about(name), "%s is not an address", migrate.Quoted(text))
	}
	return addr.Unmap()
}

// timers converts the hold time. Herald sends keepalives at a third of it.
func (p *lbPeer) timers(f *fields) {
	hold, line := f.duration("holdTime")
	alive, aliveLine := f.duration("keepaliveTime")
	if line == 0 && aliveLine == 0 {
		p.Note(p.line, p.about("holdTime"), "is not set, and Herald's default is 3s: set one if the router does not accept that")
		return
	}
	if line == 0 {
		hold, line = 3*alive, aliveLine
	}
	switch hold = hold.Truncate(time.Second); {
	case hold < 3*time.Second || hold > 65535*time.Second:
		p.Note(line, p.about("holdTime"), "Herald accepts 3s to 65535s, not %v: its default of 3s applies", hold)
	default:
		p.spec.HoldTime.Duration = hold
		if aliveLine != 0 && alive != hold/3 {
			p.Note(aliveLine, p.about("keepaliveTime"), "Herald sends keepalives at a third of holdTime")
		}
	}
}

// password names the Secret of the password, which is never printed.
func (m *converter) password(p *lbPeer, path yaml.Path, f *fields) {
	password, in := f.take("password"), f.within("passwordSecret")
	secret, namespace := in.text("name"), in.text("namespace")
	in.done()
	switch {
	case secret != "":
		p.spec.PasswordSecretRef = &v1alpha1.SecretReference{Name: secret}
		m.Comment(path.Field("passwordSecretRef"), "Copied from the namespace "+migrate.Shown(cmp.Or(namespace, p.namespace, "metallb-system"))+".")
		p.ToDo(p.line, p.about("passwordSecret"), "copy the Secret %s into the namespace %s, where Herald reads it: its key, password, stays the same", migrate.Shown(secret), m.options.Namespace)
	case password.Scalar != "":
		name := "bgp-" + migrate.DNSName(p.name, "peer")
		p.spec.PasswordSecretRef = &v1alpha1.SecretReference{Name: name}
		p.ToDo(password.Line, p.about("password"), "is not printed here: kubectl -n %s create secret generic %s --from-literal=password=PASSWORD", m.options.Namespace, name)
	}
}

// profile converts a BFDProfile. In Herald each peer has its own BFD settings.
func (m *converter) profile(o *object) {
	f := o.fields()
	receive, transmit := f.number("receiveInterval", 60_000, bfdInterval), f.number("transmitInterval", 60_000, bfdInterval)
	interval := time.Duration(max(receive, transmit)) * time.Millisecond
	multiplier := f.number("detectMultiplier", 255, bfdMultiplier)
	if receive != transmit {
		o.Note(o.line, o.about("transmitInterval"), "Herald has one interval for both directions, the longer: %v", interval)
	}
	if low, high := 10*time.Millisecond, 10*time.Second; interval < low || interval > high {
		o.Note(o.line, o.about("receiveInterval"), "Herald accepts 10ms to 10s, not %v: the nearest is written", interval)
		interval = min(max(interval, low), high)
	}
	if interval < 50*time.Millisecond {
		o.ToDo(o.line, o.about("receiveInterval"), "below 50ms nodes need realtime: true in herald.yaml, and the capabilities that herald manifest daemonset adds for it")
	}
	if low, high := uint32(2), uint32(50); multiplier < low || multiplier > high {
		o.Note(o.line, o.about("detectMultiplier"), "Herald accepts 2 to 50, not %d: the nearest is written", multiplier)
		multiplier = min(max(multiplier, low), high)
	}
	f.done()
	b := v1alpha1.BFD{Multiplier: uint8(multiplier)}
	b.Interval.Duration = interval
	m.profiles[o.name] = b
}

// watch sets the BFD of peers from their profiles.
func (m *converter) watch() {
	for _, p := range m.peers {
		if p.profile == "" {
			continue
		}
		b, ok := m.profiles[p.profile]
		if !ok {
			p.ToDo(p.profileLine, p.about("bfdProfile"), "these files have no BFDProfile %s: write its times into bfd, or BFD is off", migrate.Quoted(p.profile))
			continue
		}
		p.spec.BFD = &b
	}
}

// validatePeers notes the peers that a node would refuse.
func (m *converter) validatePeers() {
	node := peering.New(nil, nil, peering.Options{RouterID: func(string, ...netip.Addr) (netip.Addr, error) { return netip.IPv4Unspecified(), nil }})
	c := &config.Config{Realtime: true} // BFD below 50ms needs it, as profile notes
	password := func(v1alpha1.SecretReference) (string, error) { return "password", nil }
	names := map[string]bool{}
	for i, p := range m.peers {
		names[p.name] = true
		peer := v1alpha1.BGPPeer{Spec: p.spec}
		peer.Spec.NodeSelectors = nil // select this node
		if peer.Spec.LocalASN == 0 {
			p.ToDo(p.line, p.about("localASN"), "Herald refuses the result: set a number from 1 to 4294967294")
			peer.Spec.LocalASN = 2 // as if set
		}
		if m.IsHole(yaml.Path("peers").Item(i).Field("spec.asn")) {
			peer.Spec.ASN = 1 // as if filled in
		}
		set, err := node.Plan(c, peering.Resources{Peers: []*v1alpha1.BGPPeer{&peer}, Password: password})
		if err != nil {
			p.ToDo(p.line, p.about(""), "Herald refuses the result: %s", sentence(err))
		}
		for _, l := range set.LeftOut {
			p.ToDo(p.line, p.about(""), "Herald refuses the result: %s", text.OneLine(l.Reason))
		}
	}
	for _, p := range m.pools {
		if p.spec.BGP == nil {
			continue
		}
		for _, name := range p.spec.BGP.Peers {
			if !names[name] {
				p.ToDo(p.line, p.about(""), "these files have no BGPPeer %s, but the pool is announced to it", migrate.Quoted(name))
			}
		}
	}
}
