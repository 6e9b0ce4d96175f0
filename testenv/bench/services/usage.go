package services

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
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
func (s *stage) spent(do func() error) (sp spending, err error) {
	log, err := s.log()
	if err != nil {
		return sp, err
	}
	cpu, err := s.cpu()
	if err != nil {
		return sp, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return sp, err
	}
	now, err := s.cpu()
	if err != nil {
		return sp, err
	}
	sp.took, sp.cpu, sp.requests = time.Since(began), now-cpu, make(map[request]int)
	had := len(log)
	if log, err = s.log(); err != nil {
		return sp, err
	}
	for line := range bytes.Lines(log[had:]) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return sp, fmt.Errorf("audit log: %w", err)
		}
		sp.requests[r]++
	}
	return sp, nil
}

// log returns the API server's audit log, without an incomplete last line.
func (s *stage) log() ([]byte, error) {
	text, err := os.ReadFile(s.audit)
	return text[:bytes.LastIndexByte(text, '\n')+1], err
}

// cpu returns the CPU time of the announcer's processes since they began.
func (s *stage) cpu() (time.Duration, error) {
	speakers, controllers := s.programs()
	var pids []int
	for _, p := range append(speakers, controllers...) {
		pids = append(pids, p.Pid())
	}
	return observe.CPUOf(pids...)
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
