package page

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/herald-vip/herald/testenv/bench/record"
)

// chart draws each trial of each unplanned fault as one router saw it. It shows the time
// until the route was gone or, on a flat layer 2, until another node had taken over.
// Planned changes are omitted: their duration does not matter if no connection fails.
func chart(run *record.Run, router string) ([]byte, error) {
	p := plot.New()
	p.X.Label.Text = "ms until the route was gone; large: the median"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	var names []string
	var dots, medians plotter.XYs
	list := slices.DeleteFunc(groups(run, router), func(g group) bool { return !strings.HasPrefix(g.name, "Fault/") })
	if len(list) == 0 {
		return nil, errors.New("no faults to draw behind the router " + router)
	}
	slices.Reverse(list) // the axis goes upwards
	for i, g := range list {
		names = append(names, g.fault+": "+g.speaker)
		sample := run.Sample("ms/gone", g.contains)
		if len(sample) == 0 {
			p.X.Label.Text = "ms until another node had taken over; large: the median"
			sample = run.Sample("ms/taken", g.contains)
		}
		add := func(list *plotter.XYs, v float64) {
			if v > 0 && !math.IsInf(v, 1) {
				*list = append(*list, plotter.XY{X: v, Y: float64(i)})
			}
		}
		for _, v := range sample {
			add(&dots, v)
		}
		add(&medians, sample.Median())
	}
	p.NominalY(names...)
	for _, part := range []struct {
		xys    plotter.XYs
		radius vg.Length
		colour color.Color
	}{{dots, 2, color.RGBA{0x00, 0x72, 0xb2, 0x90}}, {medians, 4, color.RGBA{0xd5, 0x5e, 0x00, 0xff}}} {
		s, err := plotter.NewScatter(part.xys)
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: part.colour, Radius: part.radius, Shape: draw.CircleGlyph{}}
		p.Add(s)
	}
	p.Add(plotter.NewGrid())
	canvas := vgsvg.New(9*vg.Inch, vg.Length(len(list)+4)*0.19*vg.Inch)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// A figure in a document is followed by a comment with its source:
//
//	**68 ms**<!-- 2026-11-25-failover.txt Fault/fault=apiserver_killed/speaker=herald/router=FRR ms/gone -->
//
// It names the file of a run, the results, and the unit of their values. The median
// counts, unless max or sum follows the unit.
var figures = regexp.MustCompile(`([^|\n]*?)<!-- (\S+\.txt) (\S+) (\S+)(?: (max|sum))? -->`)

// shown is a number and its unit at the end of a text.
var shown = regexp.MustCompile(`([0-9][0-9,]*(?:\.[0-9]+)?)(?: ?(ms|s|MB|%|µs))?\W*$`)

// Check compares the figures of a document with their runs in a folder, and returns
// the number of figures.
func Check(document, folder string) (n int, err error) {
	for _, match := range figures.FindAllStringSubmatch(document, -1) {
		n++
		if e := check(match[1], folder, match[2], match[3], match[4], match[5]); e != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", match[0], e))
		}
	}
	return n, err
}

func check(text, folder, file, name, unit, statistic string) error {
	run, err := record.Read(filepath.Join(folder, file))
	if err != nil {
		return err
	}
	sample := run.Sample(unit, func(r record.Result) bool { return r.Name == name })
	if len(sample) == 0 {
		return errors.New("the file has no such values")
	}
	measured := sample.Median()
	switch statistic {
	case "max":
		measured = slices.Max(sample)
	case "sum":
		measured = sample.Sum()
	}
	found := shown.FindStringSubmatch(text)
	if found == nil { // words, like "never" and "no connection lost"
		if measured != 0 {
			return fmt.Errorf("the file says %g", measured)
		}
		return nil
	}
	digits := strings.ReplaceAll(found[1], ",", "")
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return err
	}
	_, decimals, _ := strings.Cut(digits, ".")
	step := math.Pow10(-len(decimals))
	if found[2] == "s" && strings.HasPrefix(unit, "ms") {
		value, step = value*1000, step*1000
	}
	if math.Abs(value-measured) > step/2*1.001 {
		return fmt.Errorf("the file says %.4g", measured)
	}
	return nil
}
