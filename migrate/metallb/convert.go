// Package metallb converts the resources of MetalLB, and its ConfigMap from before 0.13.
package metallb

import (
	"cmp"
	"slices"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

// The kinds of objects that are converted. MetalLB 0.13 had AddressPool.
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

// maxObjects limits the objects of a kind, except Services.
const maxObjects = 1000

// converter converts all objects together, since they refer to each other.
type converter struct {
	*migrate.Draft
	options  migrate.Options
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

// Convert converts the resources of MetalLB, or its ConfigMap from before 0.13, to a ConfigMap with the
// speakers' file, AddressPools and BGPPeers. For Services it returns commands that add Herald's
// annotations. The error names an unreadable file.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	o.Namespace = cmp.Or(o.Namespace, migrate.DefaultNamespace)
	m := &converter{Draft: migrate.NewDraft(o.File), options: o, aliases: map[string]string{}, profiles: map[string]v1alpha1.BFD{}}
	var services []*object
	for _, file := range files {
		objects, err := m.readObjects(file)
		if err != nil {
			return nil, err
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
	m.validatePools()
	m.validatePeers()
	for _, o := range services { // after the pools
		m.service(o)
	}
	r := &migrate.Result{Commands: m.commands}
	if len(m.pools)+len(m.peers) > 0 {
		m.speaker()
		r.Config = m.manifests()
	} else if len(m.commands) == 0 {
		m.ToDo(0, "", "these files have no IPAddressPool, no BGPPeer, and no Service with annotations of MetalLB")
	}
	if len(m.commands) > 0 {
		m.ToDo(0, "", "%d of %d Services have annotations of MetalLB: herald migrate metallb --services prints the commands that give them Herald's", len(m.commands), m.served)
	}
	r.Notes = m.Sorted()
	return r, nil
}

// convert converts one object, except Services.
func (m *converter) convert(o *object) {
	kinds := map[string]func(*object){
		kindPool: m.pool, kindOldPool: m.pool, kindL2: m.advertisement, kindBGP: m.advertisement,
		kindPeer: m.peer, kindCommunity: m.community, kindBFD: m.profile,
	}
	switch convert, known := kinds[o.kind]; {
	case !known && o.kind == "":
		o.Note(o.line, "", "is not a Kubernetes object: not carried over")
	case !known:
		o.Note(o.line, o.about(""), "does not configure addresses or routers: not carried over")
	case max(len(m.pools), len(m.routed), len(m.onLink), len(m.peers)) >= maxObjects:
		o.ToDo(o.line, o.about(""), "exceeds the limit of %d objects: convert it separately", maxObjects)
	default:
		for _, f := range o.metadata.At("annotations").Fields {
			if !strings.HasPrefix(f.Key, "kubectl.kubernetes.io/") {
				o.Note(f.Line, o.about(f.Key), "annotations are not carried over")
			}
		}
		convert(o)
	}
}

// speaker drafts the configuration file of all nodes.
func (m *converter) speaker() {
	m.Services = new(config.Services)
	yaml.SetDefaults(m.Services)
	m.Services.LoadBalancerClass, m.Services.DefaultClass = m.options.Class, m.options.Class == "" // with a class, Services without one are not MetalLB's
	m.Services.Assign = false                                                                      // MetalLB's controller still assigns
	m.Services.Linger = 0
	m.Comment("services.assign", "Remove this when MetalLB's controller is gone, then restart Herald's pods.")
	if !slices.ContainsFunc(m.pools, func(p *lbPool) bool { return p.spec.ARP != nil }) {
		return
	}
	m.Elect(0, m.options.Members, m.options)
	m.Judge()
}
