// Package health checks endpoints by HTTP, HTTPS, TCP and other means, and reports whether each is
// healthy. Over HTTP and TCP it notices a dead server within milliseconds.
//
// A [Monitor] runs one goroutine per [Check]. It probes at a fixed interval, with one deadline over the whole answer,
// and counts: Rise passes in a row make an endpoint healthy, Fall failures in a row unhealthy.
//
// Polling alone would find a dead server late, so the connection of the last probe stays open, and a connection monitor
// watches it. When a process dies, the kernel closes its sockets: the monitor sees the close and triggers a probe at
// once. A refused connection is proof, so it makes the endpoint unhealthy regardless of Fall. A close alone proves
// nothing, because servers may hang up on idle clients. A server that hangs while its kernel still accepts is detected
// after at most Interval + Fall × Timeout.
//
// After this process was suspended, its verdicts are stale: a healthy endpoint
// becomes unhealthy until Rise further probes have passed.
//
// Some failures are the check's own, such as a missing CA file or an expired client certificate. Their reason starts
// with "check's own:", so that an operator looks at the check and not at the server.
package health

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/internal/yaml"
)

// Check is one health check; exactly one of its kinds is set: `http`, `tcp`, `exec`, `dns`, `grpc`, `icmp`, `file` or `link`.
type Check struct {
	// Name is what VIPs refer to: at most 63 lower-case letters and digits, with `-` and `.` between. Required.
	Name string `yaml:"name"`
	// HTTP checks an HTTP or HTTPS endpoint: the whole answer must arrive in time.
	HTTP *HTTP `yaml:"http"`
	// TCP checks that a port accepts connections. It cannot detect a frozen server: the kernel completes the handshake.
	TCP *TCP `yaml:"tcp"`
	// Exec checks that a command exits with status 0.
	Exec *Exec `yaml:"exec"`
	// DNS checks that a name server answers.
	DNS *DNS `yaml:"dns"`
	// GRPC asks a server for its status by gRPC's health protocol.
	GRPC *GRPC `yaml:"grpc"`
	// ICMP checks that a host, such as a gateway, answers an echo request.
	ICMP *ICMP `yaml:"icmp"`
	// File checks that a file exists; with `not: true`, that it does not. Such a file can be a flag that takes the node out of service.
	File *File `yaml:"file"`
	// Link checks that a link of this node is up and has a carrier.
	Link *Link `yaml:"link"`
	// Not inverts the result: the check passes on a wrong answer, a refused connection or a link that is not up, and fails when it would pass. It still fails on a timeout, a broken connection, and a fault of this node or of the check itself, as these prove nothing. Default: false.
	Not  bool `yaml:"not"`
	Pace `yaml:",inline"`
}

// Pace sets when a check probes, and how many results in a row change its verdict.
type Pace struct {
	// Interval is the time between the starts of two probes, 10ms to 1m. Probes never overlap: a slow one delays the next. Default: 200ms.
	Interval time.Duration `yaml:"interval" default:"200ms" want:"10ms to 1m"`
	// Timeout bounds one probe, from connecting to the end of the answer, 10ms to 1m. Default: 300ms.
	Timeout time.Duration `yaml:"timeout" default:"300ms" want:"10ms to 1m"`
	// Rise is how many probes in a row must pass to become healthy, 1 to 100. Default: 2.
	Rise int `yaml:"rise" default:"2" want:"1 to 100"`
	// Fall is how many probes in a row must fail to become unhealthy, 1 to 100; a refused connection or a link that is not up needs only one. Default: 2.
	Fall int `yaml:"fall" default:"2" want:"1 to 100"`
}

// checkKind is one kind of check. Each pointer field of [Check] implements it.
type checkKind interface {
	// Validate reports the mistakes in the kind's fields; p is its own path.
	Validate(r *yaml.Report, p yaml.Path)
	// prober makes a prober; each of its probes ends within timeout.
	prober(m *Monitor, timeout time.Duration) (prober, error)
}

// kinds returns the names of all kinds of checks, and by name the kinds that c has.
func (c *Check) kinds() (all []string, set map[string]checkKind) {
	set = make(map[string]checkKind)
	for f, v := range reflect.ValueOf(c).Elem().Fields() {
		k, ok := v.Interface().(checkKind)
		if !ok {
			continue
		}
		name := f.Tag.Get("yaml")
		all = append(all, name)
		if !v.IsNil() {
			set[name] = k
		}
	}
	return all, set
}

// Validate reports the mistakes in c, which is at path p. The caller validates its name, and [yaml.Report.Limits] its tags.
func (c *Check) Validate(r *yaml.Report, p yaml.Path) {
	all, set := c.kinds()
	given := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return set[name] == nil })
	switch len(given) {
	case 0:
		r.Errorf(p, "give it one of %s", strings.Join(all, ", "))
	case 1:
	default:
		r.Errorf(p, "has %s: make each a check of its own", strings.Join(given, " and "))
	}
	for name, k := range set {
		k.Validate(r, p.Field(name))
	}
	if c.ICMP != nil && c.Not {
		r.Errorf(p.Field("not"), "has no effect with icmp, as the silence of a host proves nothing: remove it")
	}
}

// Files returns the files that the check reads while it runs.
func (c *Check) Files() []string {
	switch {
	case c.HTTP != nil:
		return c.HTTP.Files()
	case c.GRPC != nil:
		return c.GRPC.TLS().Files()
	}
	return nil
}

// State is the state of a check's endpoint.
type State int

// The states of a check.
const (
	// Unknown is the state until Rise or Fall is first reached.
	Unknown State = iota
	// Healthy means the last Rise probes passed, and no later run of failures reached Fall.
	Healthy
	// Unhealthy means the endpoint refused a connection, failed Fall probes in a row, or was healthy before this process
	// was suspended.
	Unhealthy
)

// String returns "unknown", "healthy" or "unhealthy".
func (s State) String() string { return [...]string{"unknown", "healthy", "unhealthy"}[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Any other text is Unknown.
func (s *State) UnmarshalText(text []byte) error {
	*s = Unknown
	for _, state := range []State{Healthy, Unhealthy} {
		if string(text) == state.String() {
			*s = state
		}
	}
	return nil
}

// Verdict is the result of a check so far. Its JSON is part of the output of `herald status -o json`.
type Verdict struct {
	// Name is the check's.
	Name string `json:"name"`
	// State is the endpoint's state.
	State State `json:"state"`
	// Reason says in words why the check is in this state.
	Reason string `json:"reason"`
	// Warning is a problem that does not change the state, such as an overloaded server or a certificate about to expire;
	// empty if there is none.
	Warning string `json:"warning,omitempty"`
	// Since is when State last changed, or when the check started.
	Since time.Time `json:"since,omitzero"`
	// Latency is the duration of the last probe.
	Latency seconds.Duration `json:"latencySeconds"`
	// Passes and Failures count the probes since the check started. An overloaded answer (429) is neither.
	Passes   uint64 `json:"passes"`
	Failures uint64 `json:"failures"`

	// OwnFault reports that the last probe failed because of this node or the check's files, not because of the server.
	OwnFault bool `json:"-"`
	// Paused reports that State is Unhealthy only because this process was suspended.
	Paused bool `json:"-"`
	// Slow reports that State is Unhealthy but the endpoint may be alive and overloaded. The last probe that did not pass
	// timed out or was answered with a status of 5xx or 429, though a 429 never makes State Unhealthy. A refused or broken
	// connection, a wrong answer, a link that is not up and a fault of this node do not count as slow.
	Slow bool `json:"-"`
	// Cause is when the first evidence of the last state change appeared: the close of the watched connection, or the start
	// of the first probe of the deciding run. Zero before the first change.
	Cause time.Time `json:"-"`
}

// clone returns a copy of c that later changes by the caller do not affect.
func (c Check) clone() Check {
	for _, v := range reflect.ValueOf(&c).Elem().Fields() {
		if v.Kind() != reflect.Pointer || v.IsNil() {
			continue
		}
		copied := reflect.New(v.Type().Elem())
		copied.Elem().Set(v.Elem())
		v.Set(copied)
		for _, list := range copied.Elem().Fields() {
			if list.Kind() == reflect.Slice {
				list.Set(reflect.AppendSlice(reflect.Zero(list.Type()), list))
			}
		}
	}
	return c
}
