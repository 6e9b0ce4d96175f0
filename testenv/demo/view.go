package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/step"
)

// view prints the story. Live, a few lines at the foot of the screen show the masters
// that each router uses, or the holder of the VIP, and the client's results. The story
// scrolls above them.
type view struct {
	live  bool
	width int      // no line is longer
	names []string // of the lines that show masters; without any there is no foot

	mu     sync.Mutex
	out    io.Writer
	drawn  bool
	last   time.Time
	users  map[string]string // the lines by name
	strip  []string          // one cell per attempt, the newest last
	failed int
}

const (
	stripWidth = 60
	redraw     = 50 * time.Millisecond

	// usualWidth is the assumed number of columns if the terminal does not report it, or
	// reports less than leastWidth.
	usualWidth = 80
	leastWidth = 20

	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	cyan   = "\x1b[36m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// newView returns a view that prints to out, which has width columns, or 0 if unknown.
// The names are the routers', or the LAN's.
func newView(out io.Writer, live bool, width int, names ...string) *view {
	if width < leastWidth {
		width = usualWidth
	}
	return &view{out: out, live: live, width: width, names: names, users: make(map[string]string)}
}

// title opens an act.
func (v *view) title(text string) { v.print("\n" + v.paint(bold, fold(text, v.width)) + "\n") }

// say prints one event.
func (v *view) say(format string, args ...any) {
	text := fold("  "+fmt.Sprintf(format, args...), v.width)
	if strings.HasPrefix(text, "  PROBLEM") {
		text = v.paint(red, text)
	}
	v.print(text + "\n")
}

func (v *view) printf(format string, args ...any) {
	v.print(fold(fmt.Sprintf(format, args...), v.width))
}

// fold breaks lines at spaces so that none is wider than width, and indents
// continuation lines like the first.
func fold(text string, width int) string {
	var out strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		rest := []rune(line)
		for len(rest) > width {
			at := width
			for at > len(indent) && rest[at] != ' ' {
				at--
			}
			if at == len(indent) { // one long word
				at = width
			}
			out.WriteString(strings.TrimRight(string(rest[:at]), " ") + "\n")
			rest = []rune(indent + strings.TrimLeft(string(rest[at:]), " "))
		}
		out.WriteString(string(rest))
	}
	return out.String()
}

func (v *view) print(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprint(v.out, text)
	v.draw()
}

// uses shows the masters that a router, or the LAN, uses.
func (v *view) uses(name string, use ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := ""
	for _, m := range masters {
		mark := v.paint(dim, "·"+m)
		if slices.Contains(use, m) {
			mark = v.paint(green, "●"+m)
		}
		line += " " + mark
	}
	v.users[name] = line
	v.refresh()
}

// attempt adds a connection of the client to the strip.
func (v *view) attempt(a probe.Attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	cell := v.paint(red, "✗")
	colours := map[string]string{"m1": cyan, "m2": green, "m3": yellow}
	if !a.Outcome.Failed() {
		cell = v.paint(colours[a.Server], strings.TrimPrefix(a.Server, "m"))
	} else {
		v.failed++
	}
	v.strip = append(v.strip, cell)
	if len(v.strip) > stripWidth {
		v.strip = v.strip[len(v.strip)-stripWidth:]
	}
	if time.Since(v.last) > redraw {
		v.refresh()
	}
}

// close removes the foot of the screen; later text is just printed.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	v.live = false
}

// pause gives spectators time to read.
func (v *view) pause(ctx context.Context) {
	if v.live {
		step.Pause(ctx, reading)
	}
}

func (v *view) paint(colour, text string) string {
	if !v.live {
		return text
	}
	return colour + text + reset
}

func (v *view) refresh() {
	v.erase()
	v.draw()
}

func (v *view) erase() {
	if v.drawn {
		footLines := len(v.names) + 2 // an empty line, and the client's
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", footLines)
		v.drawn = false
	}
}

func (v *view) draw() {
	if !v.live || len(v.names) == 0 {
		return
	}
	foot := "\n"
	for _, name := range v.names {
		foot += fmt.Sprintf("  %s %s\n", name, v.users[name])
	}
	cells := min(len(v.strip), max(0, v.width-len("  client   99999 failed")))
	fmt.Fprintf(v.out, "%s  client %s  %d failed\n", foot, strings.Join(v.strip[len(v.strip)-cells:], ""), v.failed)
	v.drawn = true
	v.last = time.Now()
}
