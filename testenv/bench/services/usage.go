package services

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// programs returns the processes of the announcer: its speakers, and its controller if
// that is a separate process.
func (s *stage) programs() (speakers, controllers []*lab.Process) {
	for _, n := range s.Nodes() {
		switch name := n.Name(); {
		case strings.HasSuffix(name, "-speaker"):
			speakers = append(speakers, n.Daemons()...)
		case strings.HasSuffix(name, "-controller"):
			controllers = append(controllers, n.Daemons()...)
		}
	}
	return speakers, controllers
}

// spending is the announcer's consumption: CPU time of all its processes, and requests by kind.
type spending struct {
	took, cpu time.Duration
	requests  map[request]int
}

// spent returns the announcer's consumption while do runs.
func (s *stage) spent(do func()) spending {
	had, cpu, began := len(observe.AuditLog(s.audit)), s.cpu(), time.Now()
	do()
	sp := spending{took: time.Since(began), cpu: s.cpu() - cpu, requests: make(map[request]int)}
	for line := range bytes.Lines(observe.AuditLog(s.audit)[had:]) {
		var r request
		step.Named("audit log", func() { step.Do(json.Unmarshal(line, &r)) })
		sp.requests[r]++
	}
	return sp
}

// cpu returns the CPU time of the announcer's processes since they began.
func (s *stage) cpu() time.Duration {
	speakers, controllers := s.programs()
	var pids []int
	for _, p := range append(speakers, controllers...) {
		pids = append(pids, p.Pid())
	}
	return step.Get(observe.CPUOf(pids...))
}

// count adds up the requests that match.
func (sp spending) count(match func(request) bool) (sum float64) {
	for r, n := range sp.requests {
		if match(r) {
			sum += float64(n)
		}
	}
	return sum
}

// request is a request of the announcer to the API server, from its audit log.
type request struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
}

// concerns reports whether the request is for this resource, writes whether it changes anything.
func (r request) concerns(resource string) bool { return r.ObjectRef.Resource == resource }

func (r request) writes() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }
