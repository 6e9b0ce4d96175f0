package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
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

// cpu is the CPU time that the announcer's processes have taken since they began.
func (s *stage) cpu() (sum time.Duration, err error) {
	speakers, controllers := s.programs()
	for _, p := range append(speakers, controllers...) {
		d, err := balance.CPUOf(p.Pid())
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// rss is the resident memory of a process, in bytes.
func rss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of %d", pid)
}

// request is one that the API server had of the announcer, as its audit log tells.
type request struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
}

// what is the kind of a request: its verb and the resource.
func (r request) what() string {
	what := r.Verb + " " + r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return what
}

// writes reports whether the request changes anything.
func (r request) writes() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

// counted are the requests since the log had this many bytes, by kind, and how many it has now.
func (s *stage) counted(since int64) (counts map[request]int, now int64, err error) {
	text, err := os.ReadFile(s.audit)
	if err != nil {
		return nil, 0, err
	}
	// The last line may not be whole yet.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	counts = make(map[request]int)
	for lines := bufio.NewScanner(bytes.NewReader(text[since:])); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, 0, fmt.Errorf("audit log: %w", err)
		}
		counts[r]++
	}
	return counts, int64(len(text)), nil
}
