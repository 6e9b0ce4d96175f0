package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
)

// The kinds of MetalLB that say something. There were AddressPools in 0.13.
const (
	kindPool      = "IPAddressPool"
	kindOldPool   = "AddressPool"
	kindL2        = "L2Advertisement"
	kindBGP       = "BGPAdvertisement"
	kindPeer      = "BGPPeer"
	kindCommunity = "Community"
	kindBFD       = "BFDProfile"
	kindService   = "Service"
)

// maxObjects is more than a cluster has of a kind, but for Services.
const maxObjects = 1000

// File is one of several.
type File struct {
	// Name is what notes call it.
	Name string
	Data []byte
}

// metalLB converts all of it, since its objects name each other.
type metalLB struct {
	*draft
	options  Options
	pools    []*lbPool
	routed   []*advertisement
	onLink   []*advertisement
	peers    []*lbPeer
	aliases  map[string]string // of communities
	pending  []pendingCommunity
	profiles map[string]v1alpha1.BFD
	commands []string
	served   int // Services
}

// MetalLB converts the resources of MetalLB, or its ConfigMap from before 0.13, into
// Herald's: a ConfigMap with the speakers' file, AddressPools and BGPPeers. Of
// Services it makes the commands that give them Herald's annotations. The error
// says which file cannot be read, and why.
func MetalLB(files []File, o Options) (*Result, error) {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	m := &metalLB{draft: newDraft(o.File), options: o, aliases: map[string]string{}, profiles: map[string]v1alpha1.BFD{}}
	var lists []*noteList
	var services []*object
	for _, file := range files {
		notes := &noteList{file: printable(file.Name)}
		lists = append(lists, notes)
		objects, err := readObjects(file, notes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", printable(file.Name), err)
		}
		for _, o := range objects {
			if o.kind == kindService {
				services = append(services, o)
			} else {
				m.convert(o)
			}
		}
	}
	m.resolve()
	m.announce()
	m.watch()
	m.prioritise()
	m.judgePools()
	m.judgePeers()
	for _, o := range services { // which need to know the pools
		m.service(o)
	}
	r := &Result{Commands: m.commands}
	if len(m.pools)+len(m.peers) > 0 {
		m.speaker()
		r.Config = m.manifests()
	} else if len(m.commands) == 0 {
		m.todo(0, "", "there is no IPAddressPool and no BGPPeer in these files, and no Service that asks MetalLB for anything")
	}
	if len(m.commands) > 0 {
		m.todo(0, "", "%d of %d Services have annotations of MetalLB: herald migrate metallb --services prints the commands that give them Herald's", len(m.commands), m.served)
	}
	for _, l := range append(lists, &m.noteList) {
		r.Notes = append(r.Notes, l.sorted()...)
	}
	return r, nil
}

// convert converts one object that is no Service.
func (m *metalLB) convert(o *object) {
	kinds := map[string]func(*object){
		kindPool: m.pool, kindOldPool: m.pool, kindL2: m.advertisement, kindBGP: m.advertisement,
		kindPeer: m.peer, kindCommunity: m.community, kindBFD: m.profile,
	}
	switch convert, known := kinds[o.kind]; {
	case !known && o.kind == "":
		o.note(o.line, "", "is no object of Kubernetes: not carried over")
	case !known:
		o.note(o.line, o.about(""), "says nothing of addresses and routers: not carried over")
	case max(len(m.pools), len(m.routed), len(m.onLink), len(m.peers)) >= maxObjects:
		o.todo(o.line, o.about(""), "is one of more than %d: convert it by itself", maxObjects)
	default:
		for _, f := range o.metadata.at("annotations").fields {
			if !strings.HasPrefix(f.key, "kubectl.kubernetes.io/") {
				o.note(f.line, o.about(f.key), "annotations are not carried over")
			}
		}
		convert(o)
	}
}

// leave leaves a field of an object to be filled in.
func (m *metalLB) leave(path string, o *object, setting, what string, template ...string) {
	m.holes[path] = append([]string{"FILL IN: " + what}, template...)
	o.todo(o.line, o.about(setting), "fill in %s", what)
}

// speaker writes the file that all nodes have.
func (m *metalLB) speaker() {
	m.Services = &config.Services{LoadBalancerClass: m.options.Class}
	if !slices.ContainsFunc(m.pools, func(p *lbPool) bool { return p.Spec.ARP != nil }) {
		return
	}
	m.Election = &config.Election{Members: m.options.Members, KeyFile: m.options.KeyFile}
	if len(m.Election.Members) == 0 {
		m.draft.leave("election.members", 0, "three or five Nodes that vote, such as the masters, by their names; all others take part without a vote",
			"members:", fmt.Sprintf("  NAME: ADDRESS:%d", GossipPort))
	}
	if m.Election.KeyFile == "" {
		m.Election.KeyFile = "/etc/herald/gossip.key"
		m.todo(0, "election.keyFile", "make the key that the nodes share: herald keygen gossip.key, then kubectl -n %s create secret generic herald --from-file=gossip.key", m.options.Namespace)
	}
	w := &writer{draft: m.draft}
	w.file()
	for _, mistake := range judge([]byte(w.String()), "node") {
		if !m.isHole(mistake.Field) {
			m.todo(0, mistake.Field, "Herald refuses what came of it: %s", shown(mistake.Message))
		}
	}
}
