package admin

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/text"
)

// Services is what a node does for the VIPs of Kubernetes Services: in short, as
// there may be thousands. [Client.Services] tells of each.
type Services struct {
	// Synced says whether everything has been heard from the API once. Until then
	// nothing is announced, and from then on everything, even if the API is away.
	Synced     bool       `json:"synced"`
	Kubernetes Kubernetes `json:"kubernetes"`
	// Writer is how this node gives Services addresses; nil if it never does.
	Writer *Writer `json:"writer,omitempty"`
	// Total is how many Services there are that are Herald's.
	Total int `json:"total"`
	// Routes is how many prefixes are announced for them, and Failing how many of
	// these the BGP speaker would not take, or take back.
	Routes  int `json:"routes"`
	Failing int `json:"failing"`
	// Stands is how many addresses on a flat layer 2 this node would answer for, Held
	// for how many it does, and Obstructed at how many of these something is in the way.
	Stands     int `json:"stands"`
	Held       int `json:"held"`
	Obstructed int `json:"obstructed"`
	// Pools are by name; that of the addresses which are in none is empty.
	Pools []Pool `json:"pools"`
	// LeftOut are the BGPPeers that are for this node but not in force.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Unpeered is why none of the changes of BGPPeers is in force; empty if they are.
	Unpeered string `json:"unpeered,omitempty"`
}

// Kubernetes is how the API answers.
type Kubernetes struct {
	// Unconnected is why there is not even a connection to try; empty if there is.
	Unconnected string    `json:"unconnected,omitempty"`
	Troubles    []Trouble `json:"troubles,omitempty"`
	// Answered is when the last request was answered. Changes come by watches, which
	// are not asked for.
	Answered time.Time `json:"answered,omitzero"`
	// Reads, Watches and Writes count requests, Failed those that were not granted.
	Reads   uint64 `json:"reads"`
	Watches uint64 `json:"watches"`
	Writes  uint64 `json:"writes"`
	Failed  uint64 `json:"failed"`
}

// Trouble is what goes wrong with requests that are tried again.
type Trouble struct {
	// About is the kind, or the object, that was asked for.
	About  string    `json:"about"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Writer is the part of a node that may be the one that gives Services their
// addresses, of all nodes that stand for it.
type Writer struct {
	// Writes says whether this node is the one.
	Writes bool `json:"writes"`
	// Holder is the node that holds the Lease of that name, empty if nobody is known to.
	Holder string `json:"holder,omitempty"`
	Lease  string `json:"lease"`
	// Refused counts, where this node is the one, the Services that have not got all
	// they ask for, by the reason in their condition.
	Refused map[string]int `json:"refused,omitempty"`
	// Assignments and Refusals count the statuses of Services written since the start
	// with other addresses, and with another reason why there are none.
	Assignments uint64 `json:"assignments"`
	Refusals    uint64 `json:"refusals"`
	// ServiceWrites, PoolWrites and EventWrites count what was sent for all that.
	ServiceWrites uint64 `json:"serviceWrites"`
	PoolWrites    uint64 `json:"poolWrites"`
	EventWrites   uint64 `json:"eventWrites"`
}

// Pool is an address pool as this node sees it, and what it announces of it.
type Pool struct {
	Name string `json:"name"`
	// Error is why the pool as it is now is not used; empty if it is.
	Error string `json:"error,omitempty"`
	// Announced, Draining and Withdrawn count the addresses of Services by how far
	// their announcement by BGP has come, Flat those that this node may hold on a
	// flat layer 2.
	Announced int `json:"announced"`
	Draining  int `json:"draining"`
	Withdrawn int `json:"withdrawn"`
	Flat      int `json:"flat"`
	// IPv4 and IPv6 are what the writer says of its addresses; nil if it has not.
	IPv4 *Usage `json:"ipv4,omitempty"`
	IPv6 *Usage `json:"ipv6,omitempty"`
	// Conflicts counts what the writer says keeps addresses of it from being used.
	Conflicts int `json:"conflicts"`
}

// Usage is how many addresses of a family a pool has, and Services have of it.
type Usage struct {
	Capacity float64 `json:"capacity"`
	Used     int64   `json:"used"`
}

// LeftOut is a BGPPeer that is for this node but not in force, as it is now.
type LeftOut struct {
	Peer   string `json:"peer"`
	Reason string `json:"reason"`
}

// Service is one Service that is Herald's.
type Service struct {
	// Name is namespace/name.
	Name string `json:"name"`
	// Tenant is the one that it was derived for, and Origin the Service of that tenant which it
	// was derived from, namespace/name; empty if it is no tenant's.
	Tenant string `json:"tenant,omitempty"`
	Origin string `json:"origin,omitempty"`
	// Addresses are those that its status says it has.
	Addresses []ServiceAddress `json:"addresses"`
}

// ServiceAddress is an address of a Service as this node announces it.
type ServiceAddress struct {
	Address netip.Addr `json:"address"`
	Pool    string     `json:"pool,omitempty"`
	// Stage is that by BGP.
	Stage Stage     `json:"stage"`
	Since time.Time `json:"since,omitzero"`
	// Route is what is announced for it.
	Route netip.Prefix `json:"route,omitzero"`
	// Peers are the names of the peers to which it is; none is all. Sent are those that have
	// been sent it.
	Peers []string `json:"peers,omitempty"`
	Sent  []string `json:"sent,omitempty"`
	// Flat says that this node may hold it on a flat layer 2, and Holder which node is
	// known to. Link, FlatStage and FlatReason are those of a VIP, where this node is one
	// of the few that stand for it.
	Flat       bool   `json:"flat,omitempty"`
	Holder     string `json:"holder,omitempty"`
	Link       string `json:"link,omitempty"`
	FlatStage  Stage  `json:"flatStage,omitempty"`
	FlatReason string `json:"flatReason,omitempty"`
	// Reason is why it is not announced, Error what stands in the way of its stage.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

// ready says whether what there is to announce of Services is, and if not, why.
func (s *Services) ready() (bool, string) {
	switch {
	case !s.Synced:
		return false, "services: not everything has been heard from the Kubernetes API yet"
	case s.Unpeered != "":
		return false, "services: BGPPeers are not in force: " + s.Unpeered
	case s.Failing > 0:
		return false, fmt.Sprintf("services: the BGP speaker refuses %d routes", s.Failing)
	}
	return true, ""
}

// write renders s, with what stands in its way first.
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
	fmt.Fprintf(t, "%d Services, %d routes, %d addresses held on a flat layer 2; addresses given %s\n", s.Total, s.Routes, s.Held, s.Writer.Who())
	t.row("POOL", "USED", "ANNOUNCED", "DRAINING", "WITHDRAWN", "FLAT", "WHY")
	for _, p := range s.Pools {
		t.row(cmp.Or(p.Name, "in no pool"), p.Used(), fmt.Sprint(p.Announced), fmt.Sprint(p.Draining), fmt.Sprint(p.Withdrawn), fmt.Sprint(p.Flat), p.Why())
	}
}

// Who says by whom Services are given their addresses, and who of them waits.
func (w *Writer) Who() string {
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

// Used is in short how many addresses of how many Services have, by family.
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

// byBGP is in short how an address is by BGP: of one that is for a flat layer 2, and not
// announced by BGP, there is nothing to say.
func (a ServiceAddress) byBGP() string {
	switch {
	case a.Flat && a.Stage == Withdrawn:
		return ""
	case a.Stage == Announced && len(a.Sent) == 0:
		return "announced to no peer"
	}
	return string(a.Stage)
}

// flat is in short how an address is on a flat layer 2.
func (a ServiceAddress) flat() string {
	switch {
	case a.FlatStage == Announced && a.Error != "":
		return "blocked on " + a.Link
	case a.FlatStage == Announced:
		return "held on " + a.Link
	case a.FlatStage != "" && a.FlatStage != Withdrawn:
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

// Why is what is wrong with the pool; empty if nothing is.
func (p Pool) Why() string {
	switch {
	case p.Conflicts == 0 || p.Error != "":
		return p.Error
	case p.Conflicts == 1:
		return "a conflict: kubectl describe addresspool " + p.Name
	}
	return fmt.Sprintf("%d conflicts: kubectl describe addresspool %s", p.Conflicts, p.Name)
}

// WriteServices renders services for people as of now, a row for each address.
func WriteServices(w io.Writer, services []Service, now time.Time) error {
	t := newTable(w, now)
	t.row("SERVICE", "ADDRESS", "POOL", "BGP", "FLAT", "FOR", "WHY")
	for _, s := range services {
		name := s.Name
		if s.Tenant != "" {
			name += fmt.Sprintf(" (tenant %s: %s)", s.Tenant, s.Origin)
		}
		if len(s.Addresses) == 0 {
			t.row(name, "", "", "", "", "", "it has been given no address")
		}
		for _, a := range s.Addresses {
			t.row(name, a.Address.String(), a.Pool, a.byBGP(), a.flat(), t.ago(a.Since), cmp.Or(a.Error, a.FlatReason, a.Reason))
		}
	}
	return t.Flush()
}
