package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Setting is when a run was made, on what, and with which programs.
type Setting struct {
	// Began is when the run began, Took how long it lasted.
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"tookNs"`
	// Machine is what it ran on.
	Machine Machine `json:"machine"`
	// Versions are those of the programs, by name.
	Versions map[string]string `json:"versions"`
}

// fill puts a run into a page, between the marks: a line on its setting, with the versions
// of these programs and a link to all that was measured, and what write writes.
func (s Setting) fill(page, link string, write func(io.Writer) error, programs ...string) (string, error) {
	before, after, err := around(page)
	if err != nil {
		return "", err
	}
	var versions []string
	for _, name := range programs {
		versions = append(versions, name+" "+s.Versions[name])
	}
	var b strings.Builder
	b.WriteString(before)
	m := s.Machine
	fmt.Fprintf(&b, "Run of %s, %s long, on %d cores of %s with %.0f GiB of memory, Linux %s; %s. %s.\n\n",
		s.Began.Format("2006-01-02 15:04 MST"), s.Took.Round(time.Second), m.Cores, m.CPU, float64(m.Memory)/(1<<30), m.Kernel,
		strings.Join(versions, ", "), link)
	if err := write(&b); err != nil {
		return "", err
	}
	b.WriteString(after)
	return b.String(), nil
}
