package assign

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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

func newPools() *pools {
	return &pools{objects: make(map[string]*v1alpha1.AddressPool), changed: true, busy: make(map[string]bool)}
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

// refuse handles compiled pools that the allocator refuses: all report the error, and the
// previous pools stay in force until one is changed.
func (p *pools) refuse(err error) {
	for name := range p.objects {
		p.faults[name] = fault{reasonInvalid, err.Error()}
	}
	p.stale = true
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

// selects reports whether a Service may use a pool in force. namespace is the labels of
// the Service's namespace.
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
