// Package tenants measures how fast, and at what cost, Services of other clusters are
// served: by Herald, and by a script that writes an HAProxy configuration with
// kubectl.
package tenants

import (
	"context"
	"errors"
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
	"github.com/herald-vip/herald/testenv/services"
	cluster "github.com/herald-vip/herald/testenv/tenants"
)

// Options select the measurements.
type Options struct {
	// Programs and Repository are the lab's. HAProxy is the path of the rival's binary.
	Programs   map[string]string
	Repository string
	HAProxy    string
	// Only names the parts to measure; empty means all.
	Only []string
	// Trials is the number of trials of each change. Quick measures everything with few and small
	// ones.
	Trials int
	Quick  bool
	// Dir is an existing folder for the labs' configurations and logs.
	Dir string
}

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
func Run(ctx context.Context, rec *record.Recorder, o Options) (err error) {
	for _, part := range []struct {
		name, how string
		run       func(*stage, context.Context) error
	}{
		{"speed", "herald", (*stage).speed},
		{"speed", byScript, (*stage).speed},
		{"scale", "herald", (*stage).scale},
		{"routes", "herald", (*stage).routes},
	} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, part.name) {
			continue
		}
		if e := o.stage(ctx, rec, part.name, part.how, part.run); e != nil {
			err = errors.Join(err, fmt.Errorf("%s, %s: %w", part.how, part.name, e))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// stage is a lab where one of the two serves the tenant acme.
type stage struct {
	*cluster.Lab
	Options
	rec  *record.Recorder
	how  string
	dir  string // of the lab
	acme *cluster.Cluster
	have int // Services
}

func (o Options) stage(ctx context.Context, rec *record.Recorder, part, how string, run func(*stage, context.Context) error) (err error) {
	dir := filepath.Join(o.Dir, part+"-"+strings.ReplaceAll(how, " ", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := cluster.Start(ctx, cluster.Options{Programs: o.Programs, Repository: o.Repository, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return run(&stage{Lab: l, Options: o, rec: rec, how: how, dir: dir, acme: l.Tenants[0]}, ctx)
}

// note records one value of a measure, among so many Services.
func (s *stage) note(measure string, services int, unit string, value float64) {
	s.rec.Add(s.name(measure, services), record.Value{Value: value, Unit: unit})
}

func (s *stage) name(measure string, services int) string {
	return record.Name("Tenants", "measure", measure, "by", s.how, "services", strconv.Itoa(services))
}

// serve starts the measured way of serving the tenant.
func (s *stage) serve(ctx context.Context) error {
	if s.how == byScript {
		return s.startScript(ctx)
	}
	if err := s.Serve(ctx); err != nil {
		return err
	}
	return s.Admit(ctx, s.acme, `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"]}, quota: {services: 200}}`)
}

// speed measures how long changes of Services and nodes take to have an effect, among
// few Services and among many.
func (s *stage) speed(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return err
	}
	vip, err := s.expose(ctx, "web", false)
	if err != nil {
		return err
	}
	// No endpoint is on the faulty node, because the time that its own cluster keeps
	// using it is not Herald's.
	if err := s.acme.SetEndpoints(ctx, "web", "acme1", "acme2"); err != nil {
		return err
	}
	more := []int{0, others}
	if s.Quick {
		more = []int{0, 9}
	}
	for _, n := range more {
		for ; s.have < n; s.have++ {
			if err := s.acme.Expose(ctx, fmt.Sprint("other", s.have), nil); err != nil {
				return err
			}
		}
		for i := range s.have {
			if _, err := s.vip(ctx, fmt.Sprint("other", i)); err != nil {
				return err
			}
		}
		for _, step := range []func() error{
			func() error { return s.creations(ctx) },
			func() error { return s.fault(ctx, "a node vanishes", vip, s.vanish) },
			func() error { return s.fault(ctx, "a node refuses", vip, s.refuse) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	if s.how == byScript { // it knows no local endpoints, and serves nothing while it restarts
		return nil
	}
	return errors.Join(s.localEndpoints(ctx), s.restarts(ctx, vip), s.atRest(ctx))
}

// expose creates a Service and waits until a client connects to it.
func (s *stage) expose(ctx context.Context, name string, local bool) (vip netip.Addr, err error) {
	err = s.acme.Expose(ctx, name, func(o *corev1.Service) {
		if local {
			o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	})
	if err != nil {
		return vip, err
	}
	if vip, err = s.vip(ctx, name); err != nil {
		return vip, err
	}
	_, err = s.connects(ctx, vip)
	return vip, err
}

func (s *stage) vip(ctx context.Context, name string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.acme.VIP(ctx, name)
}

func target(vip netip.Addr) string {
	return net.JoinHostPort(vip.String(), strconv.Itoa(services.Port))
}

// connects waits until the client can connect, and returns when that was.
func (s *stage) connects(ctx context.Context, vip netip.Addr) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 50*time.Millisecond)
		c, err := s.Node("c1").DialContext(attempt, "tcp", target(vip))
		done()
		if err == nil {
			return time.Now(), c.Close()
		}
		if err := observe.Pause(ctx, 2*time.Millisecond); err != nil {
			return at, fmt.Errorf("no server answers at %s: %w", vip, err)
		}
	}
}

// creations measures new Services, and counts the writes for each.
func (s *stage) creations(ctx context.Context) error {
	for i := range s.Trials {
		if err := errors.Join(s.awaitHealthy(ctx), s.apart(ctx)); err != nil {
			return err
		}
		name := fmt.Sprint("new", i)
		writes, err := s.writes()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := s.acme.Expose(ctx, name, nil); err != nil {
			return err
		}
		vip, err := s.vip(ctx, name)
		if err != nil {
			return err
		}
		s.note("a Service is created, until it has its VIP", s.have+1, "ms", time.Since(began).Seconds()*1e3)
		at, err := s.connects(ctx, vip)
		if err != nil {
			return err
		}
		s.note("a Service is created, until a client connects", s.have+1, "ms", at.Sub(began).Seconds()*1e3)
		if err := observe.Pause(ctx, time.Second); err != nil {
			return err
		}
		now, err := s.writes()
		if err != nil {
			return err
		}
		if s.how != byScript {
			s.note("writes for a Service that is created", s.have+1, "requests", float64(now-writes))
		}
		if err := s.acme.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// apart waits a varying time so that trials don't fall into step with timers.
func (s *stage) apart(ctx context.Context) error {
	return observe.Pause(ctx, time.Second+time.Duration(time.Now().UnixNano()%500)*time.Millisecond)
}

// vanish takes a node's power; refuse makes it refuse all connections to node ports,
// including probes.
func (s *stage) vanish(ctx context.Context) (heal func() error, err error) {
	return func() error { return s.Node(spare).PowerOn(ctx) }, s.Node(spare).PowerOff()
}

func (s *stage) refuse(ctx context.Context) (heal func() error, err error) {
	if err := s.Node(spare + "-proxy").Kill(); err != nil {
		return nil, err
	}
	_, err = s.Node(spare).Run(ctx, "nft", "flush", "ruleset")
	return func() error { return s.Boot(ctx, spare+"-proxy") }, err
}

// fault measures how long after a node's fault a client's connections still fail and,
// for Herald, until no Service uses the node any more.
func (s *stage) fault(ctx context.Context, name string, vip netip.Addr, fault func(context.Context) (func() error, error)) error {
	for done := 0; done < s.Trials; {
		var failing, out time.Duration
		err := observe.Undisturbed(func() (err error) { failing, out, err = s.trial(ctx, vip, fault); return err })
		if errors.Is(err, observe.ErrDisturbed) {
			s.rec.Discard(s.name(name+", until no connection fails", s.have+1), err)
			continue
		}
		if err != nil {
			return err
		}
		done++
		s.note(name+", until no connection fails", s.have+1, "ms", failing.Seconds()*1e3)
		if s.how != byScript {
			s.note(name+", until no Service has it", s.have+1, "ms", out.Seconds()*1e3)
		}
	}
	return nil
}

func (s *stage) trial(ctx context.Context, vip netip.Addr, fault func(context.Context) (func() error, error)) (failing, out time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.awaitHealthy(ctx); err != nil {
		return 0, 0, err
	}
	client := observe.Send(ctx, s.Node("c1"), target(vip), true)
	began := time.Now()
	result, err := func() (*probe.Result, error) {
		if err := errors.Join(observe.AwaitConnections(ctx, []*observe.Traffic{client}, 50), s.apart(ctx)); err != nil {
			return nil, err
		}
		began = time.Now()
		heal, err := fault(ctx)
		if err != nil {
			return nil, err
		}
		if s.how != byScript {
			if err := s.awaitHolding(ctx, spare, 0); err != nil {
				return nil, err
			}
			out = time.Since(began)
		}
		if err := observe.AwaitQuiet(ctx, []*observe.Traffic{client}, time.Now().Add(within)); err != nil {
			return nil, err
		}
		result, err := client.End()
		return result, errors.Join(err, heal())
	}()
	if err != nil {
		_, e := client.End()
		return 0, 0, errors.Join(err, e)
	}
	return lastFailure(result, began), out, nil
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
func (s *stage) awaitHealthy(ctx context.Context) error {
	if s.how != byScript {
		return s.awaitHolding(ctx, spare, s.have+1)
	}
	var web corev1.Service
	if err := s.acme.API.Get(ctx, services.Services+"/web", &web); err != nil {
		return err
	}
	err := services.Eventually(ctx, func() error {
		c, err := s.Node("c1").DialContext(ctx, "tcp", net.JoinHostPort(s.acme.Address(spare).String(), strconv.Itoa(int(web.Spec.Ports[0].NodePort))))
		if err != nil {
			return err
		}
		return c.Close()
	})
	return errors.Join(err, observe.Pause(ctx, 3*time.Second)) // HAProxy has detected that, too
}

// awaitHolding waits until that many slices have an address of the node.
func (s *stage) awaitHolding(ctx context.Context, node string, many int) error {
	return services.Eventually(ctx, func() error {
		var list discoveryv1.EndpointSliceList
		if err := s.Balancing.API.Get(ctx, "/apis/discovery.k8s.io/v1/namespaces/tenant-acme/endpointslices", &list); err != nil {
			return err
		}
		n := 0
		for _, slice := range list.Items {
			if slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == s.acme.Address(node).String() }) {
				n++
			}
		}
		if n != many {
			return fmt.Errorf("%d slices have %s, want %d", n, node, many)
		}
		return nil
	})
}

// localEndpoints measures how long connections still fail after a node's last endpoint
// of a Local Service is gone.
func (s *stage) localEndpoints(ctx context.Context) error {
	vip, err := s.expose(ctx, "local", true)
	if err != nil {
		return err
	}
	for range s.Trials {
		client := observe.Send(ctx, s.Node("c1"), target(vip), true)
		if err := errors.Join(observe.AwaitConnections(ctx, []*observe.Traffic{client}, 50), s.apart(ctx)); err != nil {
			return err
		}
		began := time.Now()
		if err := s.acme.SetEndpoints(ctx, "local", "acme1", "acme2"); err != nil {
			return err
		}
		err := observe.AwaitQuiet(ctx, []*observe.Traffic{client}, time.Now().Add(within))
		result, e := client.End()
		if err := errors.Join(err, e, s.acme.SetEndpoints(ctx, "local", s.acme.Nodes()...)); err != nil {
			return err
		}
		s.note("the last local endpoint of a node is gone, until no connection fails", s.have+1, "ms", lastFailure(result, began).Seconds()*1e3)
		if err := observe.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return s.acme.Remove(ctx, "local")
}

// restarts counts the connections that fail while each program in turn is restarted.
func (s *stage) restarts(ctx context.Context, vip netip.Addr) error {
	programs := []string{"acme-agent", "lb-manager"}
	for _, node := range s.Balancing.Nodes() {
		programs = append(programs, node+"-speaker")
	}
	for _, program := range programs {
		client := observe.Send(ctx, s.Node("c1"), target(vip), true)
		err := errors.Join(observe.AwaitConnections(ctx, []*observe.Traffic{client}, 200), s.Node(program).Stop(ctx), observe.Pause(ctx, time.Second), s.Boot(ctx, program), observe.Pause(ctx, 5*time.Second))
		result, e := client.End()
		if err := errors.Join(err, e); err != nil {
			return err
		}
		_, part, _ := strings.Cut(program, "-")
		s.rec.Add(s.name("the "+part+" restarts, connections that fail", s.have+1), record.Value{Value: float64(result.Failed), Unit: "failed"},
			record.Value{Value: float64(result.Total), Unit: "connections"})
	}
	return nil
}

// atRest counts the writes while nothing happens, without Leases, and the CPU time of
// agent and manager.
func (s *stage) atRest(ctx context.Context) error {
	took := time.Minute
	if s.Quick {
		took = 3 * time.Second
	}
	if err := observe.Pause(ctx, min(took, 15*time.Second)); err != nil {
		return err
	}
	writes, err := s.writes()
	if err != nil {
		return err
	}
	cpu, err := s.cpu()
	if err != nil {
		return err
	}
	if err := observe.Pause(ctx, took); err != nil {
		return err
	}
	now, err := s.writes()
	if err != nil {
		return err
	}
	spent, err := s.cpu()
	if err != nil {
		return err
	}
	s.note("at rest: writes a minute", s.have+1, "requests", float64(now-writes)/took.Minutes())
	s.note("at rest: CPU of agent and manager", s.have+1, "%", 100*(spent-cpu).Seconds()/took.Seconds())
	return nil
}

func (s *stage) cpu() (time.Duration, error) {
	return observe.CPUOf(s.Node("lb-manager").Daemon("herald").Pid(), s.Node("acme-agent").Daemon("herald").Pid())
}
