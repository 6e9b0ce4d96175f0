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

// programs are the processes of the announcer: its speakers, and its controller if
// that is one of its own.
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

// spending is what the announcer needed for something: CPU time of all its processes, and
// requests, by their kind.
type spending struct {
	took, cpu time.Duration
	requests  map[request]int
}

// spent is what the announcer needs while something is done.
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

// log is the API server's audit log, the last line left out if it is not whole yet.
func (s *stage) log() ([]byte, error) {
	text, err := os.ReadFile(s.audit)
	return text[:bytes.LastIndexByte(text, '\n')+1], err
}

// cpu is the CPU time that the announcer's processes have taken since they began.
func (s *stage) cpu() (time.Duration, error) {
	speakers, controllers := s.programs()
	var pids []int
	for _, p := range append(speakers, controllers...) {
		pids = append(pids, p.Pid())
	}
	return observe.CPUOf(pids...)
}

// count adds up the requests of which match says so.
func (sp spending) count(match func(request) bool) (sum float64) {
	for r, n := range sp.requests {
		if match(r) {
			sum += float64(n)
		}
	}
	return sum
}

// request is one that the API server had of the announcer, as its audit log tells.
type request struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
}

// of reports whether the request is for this resource, writes whether it changes anything.
func (r request) of(resource string) bool { return r.ObjectRef.Resource == resource }

func (r request) writes() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }
