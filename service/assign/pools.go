package assign

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Reasons of a pool's Ready condition.
const (
	reasonInForce = "InForce"
	reasonOverlap = "Overlap"
	reasonInvalid = "Invalid"
)

// pools are the AddressPools.
type pools struct {
	objects map[string]*v1alpha1.AddressPool
	changed bool // since the last compile

	inForce []pool.Pool
	chosen  map[string]selection // which Services may use the pools in force
	faults  map[string]fault     // why other pools are not in force

	stale bool // a status may be outdated
	after time.Time
	busy  map[string]bool // being written
}

// fault is why a pool is not in force.
type fault struct{ reason, message string }

// selection selects the Services that may use a pool.
type selection struct {
	services, namespaces service.Selectors
	names                []v1alpha1.Namespace
}

func (p *pools) set(o *v1alpha1.AddressPool) {
	prev := p.objects[o.Name]
	p.objects[o.Name] = o
	p.changed = p.changed || prev == nil || prev.UID != o.UID || !reflect.DeepEqual(prev.Spec, o.Spec)
	p.stale = true
}

func (p *pools) remove(name string) {
	delete(p.objects, name)
	p.changed = true
}

// compile puts pools in force, oldest first, except pools that overlap an older one. It
// reports whether the pools had changed.
func (p *pools) compile() bool {
	if !p.changed {
		return false
	}
	p.changed = false
	p.inForce, p.chosen, p.faults = nil, make(map[string]selection), make(map[string]fault)
	for _, o := range slices.SortedFunc(maps.Values(p.objects), service.Older) {
		spec, selected, err := read(o)
		if err != nil {
			p.faults[o.Name] = fault{reasonInvalid, err.Error()}
			continue
		}
		with := append(slices.Clone(p.inForce), spec)
		if overlaps := pool.Overlaps(with); len(overlaps) > 0 {
			p.faults[o.Name] = fault{reasonOverlap, overlaps[0].Error()}
			continue
		}
		p.inForce, p.chosen[o.Name] = with, selected
	}
	return true
}

// read parses the specification of a pool.
func read(o *v1alpha1.AddressPool) (pool.Pool, selection, error) {
	spec := pool.Pool{
		Name: o.Name, Priority: int(o.Spec.Priority), AvoidBuggyIPs: o.Spec.AvoidBuggyIPs,
		AutoAssign: o.Spec.AutoAssign == nil || *o.Spec.AutoAssign,
	}
	var mistakes []error
	for _, text := range o.Spec.Addresses {
		r, err := pool.ParseRange(string(text))
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		spec.Ranges = append(spec.Ranges, r)
	}
	services, err := service.SelectorsOf(o.Spec.ServiceSelectors)
	if err != nil {
		mistakes = append(mistakes, fmt.Errorf("serviceSelectors: %w", err))
	}
	namespaces, err := service.SelectorsOf(o.Spec.NamespaceSelectors)
	if err != nil {
		mistakes = append(mistakes, fmt.Errorf("namespaceSelectors: %w", err))
	}
	return spec, selection{services, namespaces, o.Spec.Namespaces}, errors.Join(mistakes...)
}

// selects reports whether a Service may use a pool in force. namespace is the labels of the Service's namespace.
func (p *pools) selects(name string, s *corev1.Service, namespace labels.Set) bool {
	by, ok := p.chosen[name]
	if !ok || !by.services.Match(s.Labels) {
		return false
	}
	if len(by.namespaces) == 0 {
		return len(by.names) == 0 || slices.Contains(by.names, v1alpha1.Namespace(s.Namespace))
	}
	return slices.Contains(by.names, v1alpha1.Namespace(s.Namespace)) || by.namespaces.Match(namespace)
}

const (
	// publishEvery is the minimum interval of writes of pools' statuses.
	publishEvery = time.Second
	// publishAgain is the pause after a failed write.
	publishAgain = 10 * time.Second
	// mostConflicts limits the sentences in a status.
	mostConflicts = 10
)

// poolWrite is a status of a pool to write.
type poolWrite struct {
	read   *v1alpha1.AddressPool
	status v1alpha1.AddressPoolStatus
}

// duePools returns the statuses of pools to write now, and when to call it again.
func (st *state) duePools(now time.Time) (writes []poolWrite, next time.Time) {
	p := st.pools
	switch {
	case !p.stale:
		return nil, time.Time{}
	case now.Before(p.after):
		return nil, p.after
	}
	p.stale, p.after = false, now.Add(publishEvery)
	conflicts := st.conflicts()
	for _, name := range slices.Sorted(maps.Keys(p.objects)) {
		o := p.objects[name]
		status := st.poolStatus(o, conflicts[name], now)
		if p.busy[name] || reflect.DeepEqual(o.Status, status) {
			continue
		}
		p.busy[name] = true
		writes = append(writes, poolWrite{o, status})
	}
	return writes, time.Time{}
}

// donePool handles the end of a write. It schedules another if the write failed or the pools have changed meanwhile.
func (st *state) donePool(name string, err error, now time.Time) {
	delete(st.pools.busy, name)
	st.pools.stale = true
	if err != nil && !outdated(err) {
		st.pools.after = now.Add(publishAgain)
	}
}

// conflicts returns, by pool, sentences about Services of other controllers that have addresses of the pool.
func (st *state) conflicts() map[string][]string {
	found := make(map[string][]string)
	for key, e := range st.entries {
		if st.ours(e.service) || hasCondition(e.service) {
			continue
		}
		for _, addr := range st.addresses.Addresses(key) {
			if name, ok := st.addresses.PoolOf(addr); ok {
				found[name] = append(found[name], fmt.Sprintf("Service %s of another controller has %s: no other Service gets it", key, addr))
			}
		}
	}
	for name, list := range found {
		slices.Sort(list)
		if more := len(list) - mostConflicts; more > 0 {
			found[name] = append(list[:mostConflicts], fmt.Sprintf("and %d more", more))
		}
	}
	return found
}

// poolStatus returns the desired status of a pool.
func (st *state) poolStatus(o *v1alpha1.AddressPool, conflicts []string, now time.Time) v1alpha1.AddressPoolStatus {
	s := v1alpha1.AddressPoolStatus{ObservedGeneration: o.Generation, Conflicts: conflicts}
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: o.Generation,
		Reason: reasonInForce, Message: "Services get addresses from it",
	}
	if f, faulty := st.pools.faults[o.Name]; faulty {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, f.reason, f.message
		s.Conflicts = append([]string{f.message}, conflicts...)
	} else {
		var texts []string
		for _, f := range []pool.Family{pool.IPv4, pool.IPv6} {
			known := st.addresses.Usage(o.Name, f)
			if known.Capacity.Sign() == 0 {
				continue
			}
			u := &v1alpha1.Usage{Capacity: known.Capacity.String(), Used: known.Used}
			texts = append(texts, fmt.Sprintf("%d/%s", u.Used, abbreviate(u.Capacity)))
			if f == pool.IPv4 {
				s.IPv4 = u
			} else {
				s.IPv6 = u
			}
		}
		s.Usage = strings.Join(texts, ", ")
	}
	ready.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	s.Conditions = slices.Clone(o.Status.Conditions)
	meta.SetStatusCondition(&s.Conditions, ready)
	return s
}

// abbreviate writes a long number as a power of two, if it is one.
func abbreviate(number string) string {
	n, ok := new(big.Int).SetString(number, 10)
	if !ok || len(number) <= 7 || n.BitLen() == 0 || n.TrailingZeroBits() != uint(n.BitLen()-1) {
		return number
	}
	return fmt.Sprintf("2^%d", n.BitLen()-1)
}
