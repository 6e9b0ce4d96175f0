// Command film turns a recording of a terminal, an asciicast (version 2) on
// stdin, into an animated SVG on stdout: text, no scripts, for a README. A
// reader who wants no motion gets the last picture.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	columns = 118
	rows    = 27
	step    = 0.8 // seconds between two pictures, at least
	last    = 8.0 // seconds that the last one stays

	charWidth, lineHeight, margin = 7.83, 17.0, 14.0
)

// picture is what is on the screen from a time on.
type picture struct {
	at    float64
	lines [][]cell
}

func main() {
	pictures, err := watch(os.Stdin)
	if err == nil {
		err = write(os.Stdout, pictures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "film:", err)
		os.Exit(1)
	}
}

// watch plays a recording and takes pictures of it.
func watch(cast io.Reader) ([]picture, error) {
	var (
		out []picture
		t   terminal
	)
	scanner := bufio.NewScanner(cast)
	scanner.Buffer(nil, 1<<20)
	for header := true; scanner.Scan(); header = false {
		if header {
			continue
		}
		var event [3]any
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read the recording: %w", err)
		}
		at, timed := event[0].(float64)
		data, written := event[2].(string)
		if !timed || !written || event[1] != "o" {
			continue
		}
		t.write(data)
		now := picture{at, t.screen(rows)}
		if n := len(out); n > 0 && at-out[n-1].at < step {
			out[n-1].lines = now.lines // what comes soon after belongs to it
			continue
		}
		out = append(out, now)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the recording is empty")
	}
	return out, nil
}

func write(to io.Writer, pictures []picture) error {
	w := bufio.NewWriter(to)
	width, height := columns*charWidth+2*margin, rows*lineHeight+2*margin
	end := pictures[len(pictures)-1].at + last
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-label=\"A recording of make demo\">\n<style>\n", width, height, width, height)
	fmt.Fprint(w, "rect { fill: #14181d } text { font: 13px ui-monospace, \"DejaVu Sans Mono\", Menlo, Consolas, monospace; fill: #e3e7ec; white-space: pre }\n")
	fmt.Fprint(w, ".c1 { font-weight: bold } .c2 { fill: #7a8594 } .c31 { fill: #ff8a80 } .c32 { fill: #6fcf97 } .c33 { fill: #e5b25d } .c36 { fill: #6cc5d9 }\n")
	fmt.Fprintf(w, "g { visibility: hidden; animation: %.1fs step-end infinite }\n", end)
	for i, p := range pictures {
		from, until := 100*p.at/end, 100.0
		if i == 0 {
			from = 0
		}
		if i+1 < len(pictures) {
			until = 100 * pictures[i+1].at / end
		}
		fmt.Fprintf(w, "#p%d { animation-name: k%d } @keyframes k%d { 0%% { visibility: hidden } %.2f%% { visibility: visible } %.2f%% { visibility: hidden } }\n", i, i, i, from, until)
	}
	fmt.Fprintf(w, "@media (prefers-reduced-motion) { g { animation: none } #p%d { visibility: visible } }\n</style>\n", len(pictures)-1)
	fmt.Fprint(w, "<rect width=\"100%\" height=\"100%\" rx=\"8\"/>\n")
	for i, p := range pictures {
		fmt.Fprintf(w, "<g id=\"p%d\">\n", i)
		for row, line := range p.lines {
			if text(line) != "" {
				fmt.Fprintf(w, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", margin, margin+lineHeight*(float64(row)+0.8), spans(line))
			}
		}
		fmt.Fprint(w, "</g>\n")
	}
	fmt.Fprint(w, "</svg>\n")
	return w.Flush()
}

// spans is a line as SVG, one span for each run of a colour.
func spans(line []cell) string {
	line = line[:min(len(line), columns, len([]rune(text(line))))]
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	var b strings.Builder
	for len(line) > 0 {
		n := slices.IndexFunc(line, func(c cell) bool { return c.colour != line[0].colour })
		if n < 0 {
			n = len(line)
		}
		var run strings.Builder
		for _, c := range line[:n] {
			run.WriteRune(c.char)
		}
		if line[0].colour == 0 {
			b.WriteString(escape.Replace(run.String()))
		} else {
			fmt.Fprintf(&b, "<tspan class=\"c%d\">%s</tspan>", line[0].colour, escape.Replace(run.String()))
		}
		line = line[n:]
	}
	return b.String()
}
