//go:build e2e

package services

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// cost is the consumption of five speakers: memory in bytes, and processor time in
// clock ticks, until all Services are announced (grow) and then at rest. It includes
// the duration of the former, and how often etcd changed meanwhile.
type cost struct {
	memory, grow, rest, revisions int
	took                          time.Duration
}

// hour extrapolates the processor time to the hour when the Services come, with the
// consumption at rest for the remainder.
func (c cost) hour(rest time.Duration) int {
	return c.grow + int(float64(c.rest)*(time.Hour-c.took).Seconds()/rest.Seconds())
}

// TestNodeStatusCost announces ten thousand Services from five nodes, nightly, and a
// few otherwise, with and without NodeStatus in the API server. The reports cost at
// most a tenth of memory, and two more writes per Service. Nightly they also cost at
// most a tenth of processor time, at rest and in the hour when the Services come; with
// few Services, starting dominates. At rest nothing is written.
func TestNodeStatusCost(t *testing.T) {
	count, rest := 200, 6*time.Second
	if site.Nightly() {
		count, rest = 10000, 10*time.Minute // Go collects garbage every two minutes: one collection must not matter
	}
	var with, without cost
	t.Run("told", func(t *testing.T) { with = costOf(t, count, rest, true, 0) })
	t.Run("untold", func(t *testing.T) { without = costOf(t, count, rest, false, with.took) })
	t.Logf("%d Services on five nodes: without reports %+v, in an hour %d, with reports %+v, in an hour %d", count, without, without.hour(rest), with, with.hour(rest))
	if with.memory > without.memory*11/10 {
		t.Errorf("the memory of five speakers grew from %d to %d", without.memory, with.memory)
	}
	if more := with.revisions - without.revisions; more > 2*count {
		t.Errorf("%d writes more for %d Services", more, count)
	}
	if !site.Nightly() {
		return
	}
	if with.rest > without.rest*11/10 {
		t.Errorf("the processor time of five speakers at rest grew from %d to %d", without.rest, with.rest)
	}
	if w, wo := with.hour(rest), without.hour(rest); w > wo*11/10 {
		t.Errorf("the processor time of five speakers in the hour when Services come grew from %d to %d", wo, w)
	}
}

// costOf measures the cost of announcing all Services, for at least the duration
// least, and of the rest afterwards.
func costOf(t *testing.T, count int, rest time.Duration, told bool, least time.Duration) (c cost) {
	crds := t.TempDir()
	for _, file := range site.CrdFiles(t) {
		if told || !strings.Contains(file, "nodestatuses") {
			site.Must(t, os.WriteFile(filepath.Join(crds, filepath.Base(file)), []byte(site.ReadFile(t, file)), 0o600))
		}
	}
	dir := t.TempDir()
	l, err := services.Start(t.Context(), services.Options{
		Nodes: 5, Dir: dir, Announcer: &services.Herald{Binary: site.Part(t, "HERALD"), CRDs: crds},
		APIServer: site.Part(t, "KUBE_APISERVER"), Etcd: site.Part(t, "ETCD"), Testenv: site.Part(t, "TESTENV"), Log: site.Log(t),
	})
	site.Must(t, err)
	defer func() { site.Must(t, l.Close()) }()
	b := &balancers{Lab: l, dir: dir}
	start, began := time.Now(), b.ticks(t)
	c.revisions = -b.revision(t)
	var list []services.Service
	for i := range count {
		list = append(list, services.Service{Name: fmt.Sprintf("s%05d", i), Pool: services.PoolBGP, Endpoints: b.Members()})
	}
	site.Must(t, b.Create(t.Context(), list...))
	site.Eventually(t, 10*time.Minute, func() error {
		time.Sleep(time.Second) // the list is long
		var list corev1.ServiceList
		site.Must(t, b.API.Get(t.Context(), services.Services, &list))
		lacks := count
		for _, s := range list.Items {
			said := !told
			for _, c := range s.Status.Conditions {
				said = said || c.Type == service.ConditionAnnounced && c.Message == "announced by n1, n2, n3, n4 and n5"
			}
			if len(addressesOf(&s)) > 0 && said {
				lacks--
			}
		}
		return site.ErrorIf(lacks > 0, "%d Services lack something", lacks)
	})
	if told { // otherwise reports have no place, which is retried
		b.rests(t, 6*time.Second)
	}
	time.Sleep(least - time.Since(start))
	c.took, c.grow = time.Since(start), b.ticks(t)-began
	c.revisions += b.revision(t)
	began = b.ticks(t)
	before := len(b.allWrites(t))
	time.Sleep(rest)
	c.rest = b.ticks(t) - began
	if after := b.allWrites(t); told && len(after) > before {
		t.Errorf("written at rest: %s", after[before:])
	}
	for _, node := range b.Members() {
		c.memory += site.Memory(t, b.Speaker(node).Daemon("herald").Pid(), "VmRSS")
	}
	return c
}

// revision returns how often etcd has changed.
func (b *balancers) revision(t *testing.T) int {
	t.Helper()
	var list corev1.ServiceList
	site.Must(t, b.API.Get(t.Context(), services.Services, &list))
	n, err := strconv.Atoi(list.ResourceVersion)
	site.Must(t, err)
	return n
}

// ticks returns the processor time of all speakers.
func (b *balancers) ticks(t *testing.T) (sum int) {
	t.Helper()
	for _, node := range b.Members() {
		fields := strings.Fields(site.ReadFile(t, fmt.Sprintf("/proc/%d/stat", b.Speaker(node).Daemon("herald").Pid())))
		for _, field := range fields[13:15] {
			n, err := strconv.Atoi(field)
			site.Must(t, err)
			sum += n
		}
	}
	return sum
}
