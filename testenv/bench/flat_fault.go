package bench

import (
	"context"
	"errors"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// flatFault is something that happens to the master that has the VIP, on a flat
// layer 2.
type flatFault struct {
	name string
	// planned says that it is done on purpose: the clients' connections count
	// until all is as before.
	planned bool
	// slow takes many seconds, for some speakers.
	slow bool
	// identify makes clients ask for an answer, where a connection alone proves nothing.
	identify bool
	// limit is how long the effect is waited for.
	limit time.Duration
	// few says that it takes so long that a few trials have to do.
	few bool
	// strike makes the fault on the holder, heal undoes it; nil if nothing is to be undone.
	strike, heal func(ctx context.Context, f *flat, holder string) error
}

// The names of faults of a flat layer 2 that are spoken of elsewhere too.
const (
	drained       = "drain"
	terminated    = "SIGTERM"
	upgraded      = "upgrade"
	speakerKilled = "speaker killed"
	speakerFrozen = "speaker frozen"
	cutOff        = "cut, then healed"
	parted        = "parted, then healed"
)

// flatFaults are those that every speaker knows.
func flatFaults() []flatFault {
	flatBoot := func(kind string) func(context.Context, *flat, string) error {
		return func(ctx context.Context, f *flat, m string) error { return f.lab.Node(m + kind).Boot(ctx) }
	}
	each := func(kind string, do func(*lab.Node) error) func(context.Context, *flat, string) error {
		return func(_ context.Context, f *flat, m string) error { return do(f.lab.Node(m + kind)) }
	}
	stop := func(ctx context.Context, f *flat, m string) error { return f.lab.Node(m + "-speaker").Stop(ctx) }
	return []flatFault{
		{name: apiserverKilled, strike: each("-apiserver", (*lab.Node).Kill), heal: flatBoot("-apiserver")},
		{name: apiserverFrozen, identify: true, strike: each("-apiserver", (*lab.Node).Freeze), heal: each("-apiserver", (*lab.Node).Thaw)},
		{name: terminated, planned: true, strike: stop, heal: flatBoot("-speaker")},
		{name: upgraded, planned: true, strike: func(ctx context.Context, f *flat, m string) error {
			return errors.Join(stop(ctx, f, m), f.lab.Node(m+"-speaker").Boot(ctx))
		}},
		{name: speakerKilled, strike: each("-speaker", (*lab.Node).Kill), heal: flatBoot("-speaker")},
		{name: speakerFrozen, strike: each("-speaker", (*lab.Node).Freeze), heal: each("-speaker", (*lab.Node).Thaw)},
		{name: powerLoss, strike: each("", (*lab.Node).PowerOff),
			heal: func(ctx context.Context, f *flat, m string) error { return f.lab.Node(m).PowerOn(ctx) }},
		{name: cutOff, slow: true,
			strike: func(_ context.Context, f *flat, m string) error { return f.lab.Link(m, lan).Cut() },
			heal:   func(_ context.Context, f *flat, m string) error { return f.lab.Link(m, lan).Heal() }},
		{name: parted, slow: true,
			strike: func(_ context.Context, f *flat, m string) error { return f.part(m) },
			heal:   func(_ context.Context, f *flat, _ string) error { return f.lab.Part(lan) }},
	}
}
