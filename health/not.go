package health

import "context"

// inverted asks for a check with not: true. It leaves no tripwire: that what is not wanted
// ends a connection is no bad news.
type inverted struct{ prober }

func (p inverted) probe(ctx context.Context) outcome { return p.prober.probe(ctx).invert() }

func (inverted) tripwire() *wire { return nil }

// invert is the outcome for a check with not: true. Only proof is inverted: an answer, be it the
// wanted one or another, and a refused connection. Silence, a connection that is cut and a fault of
// this node's prove nothing, and fail either way, so that nothing is announced on the strength of
// them. Overload says as little as ever. That nothing came in time is no sign of what is wanted.
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
