package page

import (
	"bytes"
	"errors"
	"image/color"
	"math"
	"slices"
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
