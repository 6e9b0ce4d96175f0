// Package health watches endpoints, of HTTP, HTTPS, TCP and other kinds, and says
// whether each is healthy, within milliseconds of a change where a connection can tell.
//
// A [Monitor] runs one goroutine per [Check]. It probes at a fixed interval,
// with one deadline over the whole answer, and counts: Rise passes in a row
// make an endpoint healthy, Fall failures in a row unhealthy.
//
// Polling alone would find a dead server late, so the connection of the last
// probe stays open as a tripwire. A process that dies takes its sockets with
// it; the kernel reports the close, which calls for a probe at once, and a
// refused connection is proof rather than a sample: unhealthy now, whatever
// Fall says. A close alone proves nothing, because servers may hang up on idle
// clients. A server that hangs while its kernel still accepts costs at most
// Interval + Fall × Timeout.
//
// A verdict is only as good as it is fresh. After this process stood still, a
// healthy endpoint is unhealthy until Rise probes have passed anew.
//
// What a check cannot learn from the server is its own fault: a CA file that
// is missing, a client certificate that has expired. The reason then starts
// with "check's own:", so that nobody debugs a server that is fine.
package health

import (
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// Check is one endpoint to watch; exactly one of its kinds, HTTP to File, is set. Package
// config has refused what would make no sense, such as an interval of 0.
type Check struct {
	// Name tells checks apart; it must be unique within one [Monitor.Apply].
	Name string
	// HTTP asks an HTTP or HTTPS endpoint and judges its answer.
	HTTP *HTTP
	// TCP asks only that a port accepts connections.
	TCP *TCP
	// Exec runs a command.
	Exec *Exec
	// DNS asks a name server.
	DNS *DNS
	// GRPC asks a gRPC server for its health.
	GRPC *GRPC
	// ICMP asks whether a host answers.
	ICMP *ICMP
	// File asks whether a file is there.
	File *File
	// Not turns what the endpoint proves around: an answer that would pass fails, and one that would not, or a refused
	// connection, passes. What proves nothing fails as ever, such as silence and faults of this node.
	Not bool
	// Interval is the time between the starts of two probes. A probe that takes longer delays the next one: probes never overlap.
	Interval time.Duration
	// Timeout bounds one probe as a whole, from the dial to the end of the body.
	Timeout time.Duration
	// Rise is how many probes in a row must pass to become healthy, at least 1.
	Rise int
	// Fall is how many probes in a row must fail to become unhealthy, at least 1. A refused connection needs no second one.
	Fall int
}

// HTTP is a GET over HTTP/1.1. Redirects are not followed and the proxies of
// the environment are not used: the answer has to come from the endpoint. A
// connection serves several probes, for at most a second, and is the tripwire
// in between; a server that ends it after each answer is only polled.
//
// A 429 is overload, not death: it does not make a healthy endpoint unhealthy,
// nor any other healthy, and shows as a warning.
type HTTP struct {
	// URL is what to GET, http or https. An answer of 1 MiB or more fails.
	URL string
	// CAFile holds the PEM certificates that may have signed the server's; empty means the system's.
	CAFile string
	// ServerName is the name the server's certificate must carry; empty means the URL's host.
	ServerName string
	// InsecureSkipVerify accepts any server certificate.
	InsecureSkipVerify bool
	// ClientCertFile and ClientKeyFile are a PEM client certificate and its key. Like CAFile and TokenFile they are read
	// again when they change, and may appear after the check has started.
	ClientCertFile, ClientKeyFile string
	// TokenFile holds a bearer token (RFC 6750).
	TokenFile string
	// Status lists the statuses that pass; empty means 200 only.
	Status []int
}

// TCP is a connection that must be accepted. It stays open, as the tripwire,
// until the next probe. It cannot see a frozen server: the kernel completes the
// handshake on its behalf.
type TCP struct {
	// Address is host:port.
	Address string
}

// Exec is a command that must exit with status 0. It is started anew for each probe, in / and without an input, as a
// user without capabilities, and killed at the timeout with all that it has started. A status of 1 is another answer; any
// other, a signal and the timeout are none. The first line that it writes, to either output, is the reason. This process
// must have CAP_SETUID and CAP_SETGID.
type Exec struct {
	// Command is the absolute path of a program, and its arguments. No shell reads it.
	Command []string
	// User is the name or the number of a user other than root, whose primary group is the only one.
	User string
	// Environment is all of the command's, each as in NAME=value.
	Environment []string
}

// DNS is a question to a name server (RFC 1035), with recursion desired.
type DNS struct {
	// Server is host:port.
	Server string
	// Name is what to look up; it is taken for absolute, with or without the dot at its end.
	Name string
	// Type is that of the record, such as "A".
	Type string
	// Answer is the data of a record that must be among those of the answer, as in a zone file; any will do if it is empty.
	Answer string
	// TCP asks over TCP, else over UDP.
	TCP bool
}

// GRPC is a call of grpc.health.v1.Health/Check, which must say SERVING. NOT_SERVING is another answer, that the
// service is not known is none.
type GRPC struct {
	// Address is host:port.
	Address string
	// Service is the name to ask for; empty means the server as a whole.
	Service string
	// Plaintext does without TLS; then the other fields are empty. They are as those of [HTTP].
	Plaintext                     bool
	CAFile                        string
	ServerName                    string
	InsecureSkipVerify            bool
	ClientCertFile, ClientKeyFile string
}

// ICMP is an echo request that must be replied to. It takes CAP_NET_RAW.
type ICMP struct {
	// Address is the host's; a link-local one has a zone.
	Address netip.Addr
}

// File is a file that must be there, of any type, such as a flag that an administrator sets. Nothing is read of it.
type File struct {
	// Path is absolute.
	Path string
}

// State is what a check knows about its endpoint.
type State int

// The states of a check.
const (
	// Unknown is the state until Rise or Fall is first reached.
	Unknown State = iota
	// Healthy means the last Rise probes passed, and no later run of failures reached Fall.
	Healthy
	// Unhealthy means the endpoint refused a connection or failed Fall probes in a row, or was healthy before this process
	// stood still.
	Unhealthy
)

// String returns "unknown", "healthy" or "unhealthy".
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Unhealthy:
		return "unhealthy"
	default:
		return "unknown"
	}
}

// Verdict is what a check has found so far.
type Verdict struct {
	// Check is the name of the check.
	Check string
	// State is the endpoint's state.
	State State
	// Reason says in words why the check is in this state.
	Reason string
	// OwnFault says that the last probe failed for a reason that lies with this node or the check's files, not with the server.
	OwnFault bool
	// Warning is what needs attention but does not change the state, such as an overloaded server or a certificate about
	// to expire; empty if nothing does.
	Warning string
	// Paused says that State is Unhealthy only because this process stood still, which is no fault of the endpoint's.
	Paused bool
	// Slow says that State is Unhealthy and that the endpoint may be alive nevertheless, with too much to do: the last probe
	// that did not pass had no answer in time, or one with a status of 5xx or 429. A refused or broken connection, a wrong
	// answer and a fault of this node's are not slow.
	Slow bool
	// Since is when State last changed, or when the check started.
	Since time.Time
	// Cause is when the first evidence of the last state change was seen: the tripwire's close, or the start of the first
	// probe of the deciding run. Zero before the first change.
	Cause time.Time
	// Latency is how long the last probe took.
	Latency time.Duration
	// Passes and Failures count the probes since the check started. An overloaded answer (429) is neither.
	Passes, Failures uint64
}

// clone makes a check safe from later changes by the caller, with the default status filled in.
func (c Check) clone() Check {
	c.HTTP, c.TCP, c.Exec, c.DNS, c.File = copied(c.HTTP), copied(c.TCP), copied(c.Exec), copied(c.DNS), copied(c.File)
	c.GRPC, c.ICMP = copied(c.GRPC), copied(c.ICMP)
	if e := c.Exec; e != nil {
		e.Command, e.Environment = slices.Clone(e.Command), slices.Clone(e.Environment)
	}
	if h := c.HTTP; h != nil {
		h.Status = slices.Clone(h.Status)
		if len(h.Status) == 0 {
			h.Status = []int{http.StatusOK}
		}
	}
	return c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
