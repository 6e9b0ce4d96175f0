// Package tenants measures how fast, and at what cost, Services of other clusters are
// served: by Herald, and by a script that writes an HAProxy configuration with
// kubectl.
package tenants

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
	cluster "github.com/herald-vip/herald/testenv/tenants"
)

const (
	// others is the number of additional Services in the second round.
	others = 99
	// within bounds every wait.
	within = 2 * time.Minute
	// spare is the tenant's node that faults happen to.
	spare = "acme3"
)

// byScript is the other way to serve Services.
const byScript = "kubectl and HAProxy"

// Run takes all measurements of both.
func Run(ctx context.Context, rec *record.Recorder, o suite.Options) error {
	in := func(part, how string, run func(*stage, context.Context)) suite.Part {
		return suite.Part{Name: part, Who: how, Run: func(ctx context.Context) { stageOf(ctx, rec, o, part, how, run) }}
	}
	return o.Each(ctx,
		in("speed", "herald", (*stage).speed),
		in("speed", byScript, (*stage).speed),
		in("scale", "herald", (*stage).scale),
		in("routes", "herald", (*stage).routes))
}

// stage is a lab where one of the two serves the tenant acme.
type stage struct {
	*cluster.Lab
	suite.Options
	rec  *record.Recorder
	how  string
	dir  string // of the lab
	acme *cluster.Cluster
	have int // Services
}

// stageOf starts a lab, measures one part in it, and closes it.
func stageOf(ctx context.Context, rec *record.Recorder, o suite.Options, part, how string, run func(*stage, context.Context)) {
	dir := filepath.Join(o.Dir, part+"-"+strings.ReplaceAll(how, " ", "-"))
	step.Do(os.MkdirAll(dir, 0o755))
	l := step.Get(cluster.Start(ctx, cluster.Options{Programs: o.Programs, Repository: o.Repository, Dir: dir, Log: slog.New(slog.DiscardHandler)}))
	defer step.Close(l.Close)
	run(&stage{Lab: l, Options: o, rec: rec, how: how, dir: dir, acme: l.Tenants[0]}, ctx)
}

// note records one value of a measure, among the Services so far and one more.
func (s *stage) note(measure, unit string, value float64) {
	s.noteAmong(s.have+1, measure, unit, value)
}

// since records the time since an instant in milliseconds.
func (s *stage) since(began time.Time, measure string) {
	s.note(measure, "ms", time.Since(began).Seconds()*1e3)
}

// noteAmong records one value of a measure, among so many Services.
func (s *stage) noteAmong(services int, measure, unit string, value float64) {
	s.rec.Add(s.name(measure, services), record.Value{Value: value, Unit: unit})
}

func (s *stage) name(measure string, services int) string {
	return record.Name("Tenants", "measure", measure, "by", s.how, "services", strconv.Itoa(services))
}

// serve starts the measured way of serving the tenant.
func (s *stage) serve(ctx context.Context) {
	if s.how == byScript {
		s.startScript(ctx)
		return
	}
	step.Do(s.Serve(ctx))
	step.Do(s.Admit(ctx, s.acme, `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"]}, quota: {services: 200}}`))
}

// speed measures how long changes of Services and nodes take to have an effect, among
// few Services and among many.
func (s *stage) speed(ctx context.Context) {
	s.serve(ctx)
	vip := s.expose(ctx, "web", false)
	// No endpoint is on the faulty node, because the time that its own cluster keeps
	// using it is not Herald's.
	step.Do(s.acme.SetEndpoints(ctx, "web", "acme1", "acme2"))
	more := []int{0, others}
	if s.Quick {
		more = []int{0, 9}
	}
	for _, n := range more {
		for ; s.have < n; s.have++ {
			step.Do(s.acme.Expose(ctx, fmt.Sprint("other", s.have), nil))
		}
		for i := range s.have {
			s.vip(ctx, fmt.Sprint("other", i))
		}
		s.creations(ctx)
		s.fault(ctx, "a node vanishes", vip, s.vanish)
		s.fault(ctx, "a node refuses", vip, s.refuse)
	}
	if s.how != byScript { // it knows no local endpoints, and serves nothing while it restarts
		s.localEndpoints(ctx)
		s.restarts(ctx, vip)
		s.atRest(ctx)
	}
}

// expose creates a Service and waits until a client connects to it.
func (s *stage) expose(ctx context.Context, name string, local bool) netip.Addr {
	step.Do(s.acme.Expose(ctx, name, func(o *corev1.Service) {
		if local {
			o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}))
	vip := s.vip(ctx, name)
	s.connects(ctx, vip)
	return vip
}

func (s *stage) vip(ctx context.Context, name string) netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return step.Get(s.acme.VIP(ctx, name))
}

// send starts a client that connects to a VIP.
func (s *stage) send(ctx context.Context, vip netip.Addr) *observe.Traffic {
	return observe.Send(ctx, s.Node("c1"), target(vip), true)
}

func target(vip netip.Addr) string {
	return net.JoinHostPort(vip.String(), strconv.Itoa(services.Port))
}

// connects waits until the client can connect.
func (s *stage) connects(ctx context.Context, vip netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 50*time.Millisecond)
		c, err := s.Node("c1").DialContext(attempt, "tcp", target(vip))
		done()
		if err == nil {
			step.Do(c.Close())
			return
		}
		if err := step.Sleep(ctx, 2*time.Millisecond); err != nil {
			step.Do(fmt.Errorf("no server answers at %s: %w", vip, err))
		}
	}
}

// creations measures new Services, and counts the writes for each.
func (s *stage) creations(ctx context.Context) {
	for i := range s.Trials {
		s.awaitHealthy(ctx)
		s.apart(ctx)
		name, writes := fmt.Sprint("new", i), s.writes()
		began := time.Now()
		step.Do(s.acme.Expose(ctx, name, nil))
		vip := s.vip(ctx, name)
		s.since(began, "a Service is created, until it has its VIP")
		s.connects(ctx, vip)
		s.since(began, "a Service is created, until a client connects")
		step.Pause(ctx, time.Second)
		if s.how != byScript {
			s.note("writes for a Service that is created", "requests", float64(s.writes()-writes))
		}
		step.Do(s.acme.Remove(ctx, name))
	}
}

// apart waits a varying time so that trials don't fall into step with timers.
func (s *stage) apart(ctx context.Context) {
	step.Pause(ctx, time.Second+time.Duration(time.Now().UnixNano()%500)*time.Millisecond)
}

// vanish takes a node's power; refuse makes it refuse all connections to node ports,
// including probes.
func (s *stage) vanish(ctx context.Context) (heal func() error) {
	step.Do(s.Node(spare).PowerOff())
	return func() error { return s.Node(spare).PowerOn(ctx) }
}

func (s *stage) refuse(ctx context.Context) (heal func() error) {
	step.Do(s.Node(spare + "-proxy").Kill())
	step.Get(s.Node(spare).Run(ctx, "nft", "flush", "ruleset"))
	return func() error { return s.Boot(ctx, spare+"-proxy") }
}

// fault measures how long after a node's fault a client's connections still fail and,
// for Herald, until no Service uses the node any more.
func (s *stage) fault(ctx context.Context, name string, vip netip.Addr, fault func(context.Context) func() error) {
	observe.Trials(s.rec, s.name(name+", until no connection fails", s.have+1), s.Trials, func() func() {
		failing, out := s.trial(ctx, vip, fault)
		return func() {
			s.note(name+", until no connection fails", "ms", failing.Seconds()*1e3)
			if s.how != byScript {
				s.note(name+", until no Service has it", "ms", out.Seconds()*1e3)
			}
		}
	})
}

func (s *stage) trial(ctx context.Context, vip netip.Addr, fault func(context.Context) func() error) (failing, out time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s.awaitHealthy(ctx)
	client := s.send(ctx, vip)
	defer client.Stop()
	observe.AwaitConnections(ctx, 50, client)
	s.apart(ctx)
	began := time.Now()
	heal := fault(ctx)
	if s.how != byScript {
		s.awaitHolding(ctx, spare, 0)
		out = time.Since(began)
	}
	observe.AwaitQuiet(ctx, time.Now().Add(within), client)
	result := client.End()
	step.Do(heal())
	return lastFailure(result, began), out
}

// lastFailure returns how long after a moment the last failed connection began.
func lastFailure(result *probe.Result, since time.Time) (after time.Duration) {
	for _, a := range result.Attempts {
		if a.Outcome.Failed() {
			after = max(after, result.Began.Add(a.Start).Sub(since))
		}
	}
	return after
}

// awaitHealthy waits until all nodes serve.
func (s *stage) awaitHealthy(ctx context.Context) {
	if s.how != byScript {
		s.awaitHolding(ctx, spare, s.have+1)
		return
	}
	var web corev1.Service
	step.Do(s.acme.API.Get(ctx, services.Services+"/web", &web))
	step.Do(services.Eventually(ctx, func() error {
		c, err := s.Node("c1").DialContext(ctx, "tcp", net.JoinHostPort(s.acme.Address(spare).String(), strconv.Itoa(int(web.Spec.Ports[0].NodePort))))
		if err != nil {
			return err
		}
		return c.Close()
	}))
	step.Pause(ctx, 3*time.Second) // HAProxy has detected that, too
}

// awaitHolding waits until that many slices have an address of the node.
func (s *stage) awaitHolding(ctx context.Context, node string, many int) {
	s.awaitSlices(ctx, "tenant-acme", func(list []discoveryv1.EndpointSlice) error {
		with := slices.DeleteFunc(list, func(slice discoveryv1.EndpointSlice) bool {
			return !slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == s.acme.Address(node).String() })
		})
		if len(with) != many {
			return fmt.Errorf("%d slices have %s, want %d", len(with), node, many)
		}
		return nil
	})
}

// awaitSlices waits until the EndpointSlices of a namespace are right.
func (s *stage) awaitSlices(ctx context.Context, namespace string, wrong func([]discoveryv1.EndpointSlice) error) {
	step.Do(services.Eventually(ctx, func() error {
		var list discoveryv1.EndpointSliceList
		if err := s.Balancing.API.Get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices", &list); err != nil {
			return err
		}
		return wrong(list.Items)
	}))
}

// localEndpoints measures how long connections still fail after a node's last endpoint
// of a Local Service is gone.
func (s *stage) localEndpoints(ctx context.Context) {
	vip := s.expose(ctx, "local", true)
	for range s.Trials {
		failing := func() time.Duration {
			client := s.send(ctx, vip)
			defer client.Stop()
			observe.AwaitConnections(ctx, 50, client)
			s.apart(ctx)
			began := time.Now()
			step.Do(s.acme.SetEndpoints(ctx, "local", "acme1", "acme2"))
			observe.AwaitQuiet(ctx, time.Now().Add(within), client)
			return lastFailure(client.End(), began)
		}()
		step.Do(s.acme.SetEndpoints(ctx, "local", s.acme.Nodes()...))
		s.note("the last local endpoint of a node is gone, until no connection fails", "ms", failing.Seconds()*1e3)
		step.Pause(ctx, 2*time.Second)
	}
	step.Do(s.acme.Remove(ctx, "local"))
}

// restarts counts the connections that fail while each program in turn is restarted.
func (s *stage) restarts(ctx context.Context, vip netip.Addr) {
	programs := []string{"acme-agent", "lb-manager"}
	for _, node := range s.Balancing.Nodes() {
		programs = append(programs, node+"-speaker")
	}
	for _, program := range programs {
		s.restart(ctx, program, vip)
	}
}

func (s *stage) restart(ctx context.Context, program string, vip netip.Addr) {
	client := s.send(ctx, vip)
	defer client.Stop()
	observe.AwaitConnections(ctx, 200, client)
	step.Do(s.Node(program).Stop(ctx))
	step.Pause(ctx, time.Second)
	step.Do(s.Boot(ctx, program))
	step.Pause(ctx, 5*time.Second)
	result := client.End()
	_, part, _ := strings.Cut(program, "-")
	s.rec.Add(s.name("the "+part+" restarts, connections that fail", s.have+1), record.Failed(result.Failed, result.Total)...)
}

// atRest counts the writes while nothing happens, without Leases, and the CPU time of
// agent and manager.
func (s *stage) atRest(ctx context.Context) {
	took := time.Minute
	if s.Quick {
		took = 3 * time.Second
	}
	step.Pause(ctx, min(took, 15*time.Second))
	writes, cpu := s.writes(), s.cpu("lb-manager", "acme-agent")
	step.Pause(ctx, took)
	s.note("at rest: writes a minute", "requests", float64(s.writes()-writes)/took.Minutes())
	s.note("at rest: CPU of agent and manager", "%", 100*(s.cpu("lb-manager", "acme-agent")-cpu).Seconds()/took.Seconds())
}

// cpu returns the CPU time of the Heralds of these nodes.
func (s *stage) cpu(nodes ...string) time.Duration {
	var pids []int
	for _, n := range nodes {
		pids = append(pids, s.Node(n).Daemon("herald").Pid())
	}
	return step.Get(observe.CPUOf(pids...))
}
