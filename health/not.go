package health

import "context"

// inverted probes for a check with not: true. It exposes no connection to monitor: the end of an
// unwanted server is no bad news.
type inverted struct{ prober }

func (p inverted) probe(ctx context.Context) outcome { return p.prober.probe(ctx).invert() }

func (inverted) monitored() *wire { return nil }

// invert returns the outcome for a check with not: true. It inverts only proof: any answer, and a
// refused connection. A timeout, a cut connection and a fault of this node prove nothing and
// fail either way, so that they never cause an announcement. Overload is not inverted. The result is
// never slow, as a timeout is no sign of the wanted state.
func (o outcome) invert() outcome {
	o.slow = false
	switch o.kind {
	case passed:
		o.kind, o.reason = failed, "not wanted: "+o.reason
	case negative, refused:
		o.kind, o.reason = passed, "as wanted: "+o.reason
	}
	return o
}
