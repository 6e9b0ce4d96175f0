package admin

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
)

// Services has totals about the VIPs of Kubernetes Services. [Client.Services] lists each of them.
type Services struct {
	// Synced reports that everything has been read from the API once. Before that nothing is announced; afterwards
	// everything stays announced even if the API is away.
	Synced     bool       `json:"synced"`
	Kubernetes Kubernetes `json:"kubernetes"`
	// Writer is the part of this node that may give Services addresses; nil if it never does.
	Writer *assign.Status `json:"writer,omitempty"`
	announce.Counts
	// Stands counts the addresses on a flat layer 2 that this node campaigns for, Held the addresses that it answers
	// for, and Obstructed the addresses with an error.
	Stands     int `json:"stands"`
	Held       int `json:"held"`
	Obstructed int `json:"obstructed"`
	// Pools are sorted by name. The name is empty for the addresses that are in no pool.
	Pools []Pool `json:"pools"`
	// LeftOut are the BGPPeers that are for this node but not in force.
	LeftOut []peering.LeftOut `json:"leftOut,omitempty"`
	// Unpeered says why no change of BGPPeers is in force; empty if they are.
	Unpeered string `json:"unpeered,omitempty"`
}

// Kubernetes is the connection to the API.
type Kubernetes struct {
	// Unconnected says why not even a connection can be tried; empty if one can.
	Unconnected string `json:"unconnected,omitempty"`
	kube.Health
}

// Pool is an address pool: its announcement by this node, and its use.
type Pool struct {
	announce.PoolStatus
	// IPv4 and IPv6 are the use of its addresses as the writer reports it; nil if it has not.
	IPv4 *Usage `json:"ipv4,omitempty"`
	IPv6 *Usage `json:"ipv6,omitempty"`
	// Conflicts counts the reasons that the writer reports why addresses of the pool cannot be used.
	Conflicts int `json:"conflicts"`
}

// Usage is how many addresses of a family a pool has, and how many of them Services have.
type Usage struct {
	Capacity float64 `json:"capacity"`
	Used     int64   `json:"used"`
}

// Service is one Service that is Herald's.
type Service struct {
	// Name is namespace/name.
	Name string `json:"name"`
	// Origin is the tenant's Service that it was derived from; empty if it was not.
	service.Origin
	// Addresses are those in its status.
	Addresses []ServiceAddress `json:"addresses"`
}

// ServiceAddress is an address of a Service: its announcement by BGP, and its part in a flat layer 2.
type ServiceAddress struct {
	announce.AddressStatus
	// Sent are the names of the peers that have been sent the route.
	Sent []string `json:"sent,omitempty"`
	// Holder is the node that is known to hold the address on a flat layer 2.
	Holder string `json:"holder,omitempty"`
	// Link, FlatStage and FlatReason are as a VIP's, if this node campaigns for the address.
	Link       string        `json:"link,omitempty"`
	FlatStage  speaker.Stage `json:"flatStage,omitempty"`
	FlatReason string        `json:"flatReason,omitempty"`
}

// ready reports whether the announcements for Services are complete, and if not, why.
func (s *Services) ready() (bool, string) {
	switch {
	case !s.Synced:
		return false, "services: the Kubernetes API has not sent all objects yet"
	case s.Unpeered != "":
		return false, "services: BGPPeers are not in force: " + s.Unpeered
	case s.Failing > 0:
		return false, fmt.Sprintf("services: the BGP speaker refuses %d routes", s.Failing)
	}
	return true, ""
}

// write renders s, errors first.
func (s *Services) write(t table) {
	fmt.Fprintln(t)
	k := s.Kubernetes
	t.warn("NO CONNECTION TO KUBERNETES", k.Unconnected)
	for _, trouble := range k.Troubles {
		fmt.Fprintf(t, "KUBERNETES DOES NOT ANSWER about %s for %s: %s\n", text.OneLine(trouble.About), t.ago(trouble.Since), text.OneLine(trouble.Reason))
	}
	if !s.Synced {
		fmt.Fprintln(t, "SERVICES NOT KNOWN YET: nothing is announced for them")
	}
	t.warn("BGPPEERS NOT IN FORCE", s.Unpeered)
	for _, l := range s.LeftOut {
		fmt.Fprintf(t, "BGPPEER NOT IN FORCE: %s: %s\n", text.OneLine(l.Peer), text.OneLine(l.Reason))
	}
	if s.Failing > 0 {
		fmt.Fprintf(t, "ROUTES REFUSED: %d\n", s.Failing)
	}
	if s.Obstructed > 0 {
		fmt.Fprintf(t, "ADDRESSES OBSTRUCTED on a flat layer 2: %d, see herald status --services\n", s.Obstructed)
	}
	fmt.Fprintf(t, "%d Services, %d routes, %d addresses held on a flat layer 2; addresses given %s\n", s.Total, s.Routes, s.Held, s.GivenBy())
	t.Row("POOL", "USED", "ANNOUNCED", "DRAINING", "WITHDRAWN", "FLAT", "WHY")
	for _, p := range s.Pools {
		t.Row(cmp.Or(p.Name, "in no pool"), p.Used(), fmt.Sprint(p.Announced), fmt.Sprint(p.Draining), fmt.Sprint(p.Withdrawn), fmt.Sprint(p.Flat), p.Why())
	}
}

// GivenBy names the node that gives Services their addresses, and counts the waiting Services by reason.
func (s *Services) GivenBy() string {
	w := s.Writer
	switch {
	case w == nil:
		return "by another node"
	case !w.Writes:
		return "by " + cmp.Or(text.OneLine(w.Holder), "nobody known") + " (Lease " + w.Lease + ")"
	}
	out := "by this node"
	for _, reason := range slices.Sorted(maps.Keys(w.Refused)) {
		out += fmt.Sprintf(", %s: %d", reason, w.Refused[reason])
	}
	return out
}

// Used returns the used and all addresses of the pool, by family.
func (p Pool) Used() string {
	var out string
	for _, u := range []*Usage{p.IPv4, p.IPv6} {
		if u == nil {
			continue
		}
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%d/%.9g", u.Used, u.Capacity)
	}
	return out
}

// byBGP returns the state of the announcement by BGP in short: nothing for a withdrawn address on a flat layer 2.
func (a ServiceAddress) byBGP() string {
	switch {
	case a.Flat && a.Stage == speaker.Withdrawn:
		return ""
	case a.Stage == speaker.Announced && len(a.Sent) == 0:
		return "announced to no peer"
	}
	return string(a.Stage)
}

// flat returns the state of the address on a flat layer 2 in short.
func (a ServiceAddress) flat() string {
	switch {
	case a.FlatStage == speaker.Announced && a.Error != "":
		return "blocked on " + a.Link
	case a.FlatStage == speaker.Announced:
		return "held on " + a.Link
	case a.FlatStage != "" && a.FlatStage != speaker.Withdrawn:
		return string(a.FlatStage)
	case a.Holder != "":
		return "held by " + a.Holder
	case a.FlatStage != "" && a.Error != "":
		return "blocked on " + a.Link
	case a.FlatStage != "":
		return "not held"
	case a.Flat:
		return "fit"
	}
	return ""
}

// Why describes an error of the pool; empty if all is well.
func (p Pool) Why() string {
	switch {
	case p.Conflicts == 0 || p.Error != "":
		return p.Error
	case p.Conflicts == 1:
		return "a conflict: kubectl describe addresspool " + p.Name
	}
	return fmt.Sprintf("%d conflicts: kubectl describe addresspool %s", p.Conflicts, p.Name)
}

// WriteServices renders services for people as of now, one row per address.
func WriteServices(w io.Writer, services []Service, now time.Time) error {
	t := newTable(w, now)
	t.Row("SERVICE", "ADDRESS", "POOL", "BGP", "FLAT", "FOR", "WHY")
	for _, s := range services {
		name := s.Name
		if s.Tenant != "" {
			name += fmt.Sprintf(" (tenant %s: %s)", s.Tenant, s.Origin.Service)
		}
		if len(s.Addresses) == 0 {
			t.Row(name, "", "", "", "", "", "it has been given no address")
		}
		for _, a := range s.Addresses {
			t.Row(name, a.Address.String(), a.Pool, a.byBGP(), a.flat(), t.ago(a.Since), cmp.Or(a.Error, a.FlatReason, a.Reason))
		}
	}
	return t.Flush()
}
