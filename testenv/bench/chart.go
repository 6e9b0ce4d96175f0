package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The measures of a chart, in pixels.
const (
	chartWidth  = 960
	labelWidth  = 250 // of the faults' names
	plotLeft    = labelWidth + 70
	plotRight   = chartWidth - 170
	lane        = 17 // one speaker
	bandGap     = 9  // between two faults
	panelHead   = 52
	panelFoot   = 34
	chartHead   = 74
	legendLeft  = 220
	legendRow   = 18
	dotRadius   = 3.2
	jitter      = 3.5
	zeroColumn  = labelWidth + 20 // where a time of zero is drawn
	neverColumn = plotRight + 56  // where one that never ended is drawn
)

// palette is told apart by everyone, the colour-blind too: that of Okabe and
// Ito, its light colours darker to be read as text.
func palette() []string {
	return []string{"#0072b2", "#d55e00", "#a87800", "#009e73", "#b0558a", "#3a8fc4", "#555555", "#8a7a00"}
}

// WriteSVG draws every trial of an unplanned fault: a panel for each router, a
// band for each fault, a lane for each speaker, a dot for each trial, on a
// logarithmic scale. What is drawn is the time until the route was gone; of a
// flat layer 2, where there is no route, the clients' outage, the time until
// another master had the VIP, and the outage after the end of the fault, in a
// panel each. (How long a planned change takes is of no concern as long as no
// connection fails.)
func (r *Results) WriteSVG(w io.Writer) error {
	c := &chart{results: r, colours: make(map[string]string)}
	c.summaries = slices.DeleteFunc(r.Summaries(), func(s Summary) bool { return s.Planned })
	for _, s := range c.summaries {
		if c.colours[s.Speaker] == "" {
			c.colours[s.Speaker] = palette()[len(c.speakers)%len(palette())]
			c.speakers = append(c.speakers, s.Speaker)
		}
	}
	panels := r.panels()
	c.scale(panels)
	y := c.legend()
	for _, p := range panels {
		y = c.panel(p, y)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%[1]d" height="%[2]g" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">
<rect width="100%%" height="100%%" fill="#fff"/>
%[3]s</svg>
`, chartWidth, y, c.svg.String())
	return err
}

// chart is a drawing under way.
type chart struct {
	results   *Results
	summaries []Summary
	speakers  []string
	colours   map[string]string
	low, high float64 // the decades at both ends of the axis, of milliseconds
	svg       strings.Builder
}

// panel is a part of the chart: one duration of all summaries of a router.
type panel struct {
	title, router string
	drawn         func(Summary) Sample
}

// panels are those of the routers in these results.
func (r *Results) panels() (list []panel) {
	for _, router := range r.Routers() {
		if router != NoRouter {
			list = append(list, panel{router + " router", router, func(s Summary) Sample { return s.Gone }})
			continue
		}
		list = append(list,
			panel{"Flat layer 2: time in which the clients' connections failed", router, func(s Summary) Sample { return s.Outage }},
			panel{"Flat layer 2: time until another master had the VIP", router, func(s Summary) Sample { return s.Taken }},
			panel{"Flat layer 2: time in which connections failed after the end of the fault", router, func(s Summary) Sample { return s.After }},
		)
	}
	return list
}

// scale has the axis reach from the decade below the shortest time to the one
// above the longest.
func (c *chart) scale(panels []panel) {
	c.low, c.high = math.Inf(1), math.Inf(-1)
	reach := func(d time.Duration) {
		if d > 0 {
			c.low = min(c.low, math.Floor(decade(d)))
			c.high = max(c.high, math.Ceil(decade(d)))
		}
	}
	for _, p := range panels {
		for _, s := range c.summaries {
			if s.Router != p.router {
				continue
			}
			for _, d := range p.drawn(s).Values {
				reach(d)
			}
		}
		floor, _ := c.results.Floor(p.router).Median()
		reach(floor)
	}
	if c.low >= c.high { // nothing to show, or all on one line
		c.low, c.high = 0, 4
	}
}

func decade(d time.Duration) float64 { return math.Log10(float64(d) / float64(time.Millisecond)) }

// x is where a time is drawn.
func (c *chart) x(d time.Duration) float64 {
	if d <= 0 {
		return zeroColumn
	}
	return plotLeft + (decade(d)-c.low)/(c.high-c.low)*(plotRight-plotLeft)
}

// legend names the speakers, and returns where the panels begin.
func (c *chart) legend() float64 {
	c.text(16, 26, `font-size="16" font-weight="bold"`, "How long a fault is felt: until the router leads elsewhere, or another master answers")
	c.text(16, 62, `fill="#555"`, "one dot a trial, median in bold")
	x, y := float64(legendLeft), 58.0
	for _, s := range c.speakers {
		width := 34 + 6.4*float64(len(s))
		if x > legendLeft && x+width > chartWidth {
			x, y = legendLeft, y+legendRow
		}
		c.dot(x, y, c.colours[s], 1)
		c.text(x+9, y+4, "", s)
		x += width
	}
	return y - 58 + chartHead
}

// panel draws one from y on, and returns where the next begins.
func (c *chart) panel(p panel, y float64) float64 {
	list := slices.DeleteFunc(slices.Clone(c.summaries), func(s Summary) bool { return s.Router != p.router })
	height := 0.0
	for i, s := range list {
		if i > 0 && s.Fault != list[i-1].Fault {
			height += bandGap
		}
		height += lane
	}
	top := y + panelHead
	c.text(16, y+26, `font-size="14" font-weight="bold"`, p.title)
	c.axis(top, height, list, p.drawn)
	if floor, ok := c.results.Floor(p.router).Median(); ok && p.router != NoRouter {
		x := c.x(floor)
		c.line(x, top-12, x, top+height+4, `stroke="#222" stroke-dasharray="3 3"`)
		c.text(x, top-16, `text-anchor="middle"`, "floor "+ms(floor)+" ms")
	}
	at := top
	for i, s := range list {
		if i == 0 || s.Fault != list[i-1].Fault {
			if i > 0 {
				at += bandGap
				c.line(16, at-bandGap/2, neverColumn+24, at-bandGap/2, `stroke="#eee"`)
			}
			c.text(16, at+lane-4, "", s.Fault)
		}
		c.strip(s, p.drawn(s), at+lane/2)
		at += lane
	}
	return top + height + panelFoot
}

// axis draws the lines of the decades and what they stand for, and names the
// columns at its ends where there is something in them.
func (c *chart) axis(top, height float64, list []Summary, drawn func(Summary) Sample) {
	for d := c.low; d <= c.high; d++ {
		at := time.Duration(math.Pow(10, d) * float64(time.Millisecond))
		x := c.x(at)
		c.line(x, top, x, top+height, `stroke="#ccc"`)
		c.text(x, top+height+16, `text-anchor="middle" fill="#555"`, tick(d))
		for step := 2.0; step < 10 && d < c.high; step++ {
			minor := x + math.Log10(step)/(c.high-c.low)*(plotRight-plotLeft)
			c.line(minor, top, minor, top+height, `stroke="#f2f2f2"`)
		}
	}
	if slices.ContainsFunc(list, func(s Summary) bool { low, ok := drawn(s).Min(); return ok && low == 0 }) {
		c.text(zeroColumn, top+height+16, `text-anchor="middle" fill="#555"`, "none")
	}
	if slices.ContainsFunc(list, func(s Summary) bool { return drawn(s).Never > 0 }) {
		c.text(neverColumn, top+height+16, `text-anchor="middle" fill="#555"`, "never")
	}
}

// tick names a decade of milliseconds.
func tick(decade float64) string {
	if decade >= 3 {
		return fmt.Sprintf("%g s", math.Pow(10, decade-3))
	}
	return fmt.Sprintf("%g ms", math.Pow(10, decade))
}

// strip draws a sample of one speaker on a line at y.
func (c *chart) strip(s Summary, sample Sample, y float64) {
	colour := c.colours[s.Speaker]
	end := 0.0
	for i := range sample.Len() {
		x := float64(neverColumn)
		if i < len(sample.Values) {
			x = c.x(sample.Values[i])
		}
		c.dot(x, y+jitter*float64(i%3-1), colour, 0.55)
		end = x
	}
	if median, ok := sample.Median(); ok {
		x := c.x(median)
		c.line(x, y-lane/2+1, x, y+lane/2-1, fmt.Sprintf(`stroke="%s" stroke-width="3"`, colour))
		c.text(max(end, x)+9, y+4, fmt.Sprintf(`fill="%s" font-size="11"`, colour), label(median))
	}
}

// label says a median.
func label(d time.Duration) string {
	switch {
	case d == 0:
		return "none"
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	default:
		return ms(d) + " ms"
	}
}

func (c *chart) dot(x, y float64, colour string, opacity float64) {
	fmt.Fprintf(&c.svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\" fill-opacity=\"%g\"/>\n", x, y, dotRadius, colour, opacity)
}

func (c *chart) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&c.svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style)
}

// text writes text; names come from files, so they are escaped.
func (c *chart) text(x, y float64, style, text string) {
	fmt.Fprintf(&c.svg, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style)
	_ = xml.EscapeText(&c.svg, []byte(text)) // a strings.Builder takes all
	c.svg.WriteString("</text>\n")
}
