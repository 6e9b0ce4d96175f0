package bench

import (
	"context"
	"errors"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// fault is something that happens to one master.
type fault struct {
	name string
	// planned says that it is done on purpose: the client's connections count
	// until all is as before.
	planned bool
	// slow takes many seconds.
	slow bool
	// identify makes clients ask for an answer, where a connection alone proves nothing.
	identify bool
	// limit is how long the effect is waited for.
	limit time.Duration
	// strike makes the fault, heal undoes it; nil if nothing is to be undone.
	strike, heal func(context.Context, *site, int) error
}

// The names of faults that are spoken of elsewhere too.
const (
	apiserverKilled = "apiserver killed"
	apiserverFrozen = "apiserver frozen"
	powerLoss       = "power loss"
)

// usualLimit is enough for a hold time of 3 s and for every health check.
const usualLimit = 10 * time.Second

// healthFaults are those that a health check has to find.
func healthFaults() []fault {
	return []fault{
		{name: apiserverKilled, strike: kill("apiserver"), heal: boot("apiserver")},
		{name: apiserverFrozen, identify: true, strike: freeze("apiserver"), heal: thaw("apiserver")},
		{name: "registry killed", strike: kill("registry"), heal: boot("registry")},
	}
}

// plannedFaults are those that are made on purpose, and in peace.
func plannedFaults() []fault {
	return []fault{
		{name: "drain", planned: true, strike: drain, heal: undrain},
		{name: "SIGTERM", planned: true, strike: stop, heal: boot("speaker")},
		{name: "upgrade", planned: true, strike: upgrade},
		{name: "attributes changed", planned: true, strike: alter(true), heal: alter(false)},
	}
}

// speakerFaults are those of the speaker and its machine, with the hold time of
// 3 s as the only means to find a dead one.
func speakerFaults() []fault {
	return append(plannedFaults(), []fault{
		{name: "speaker killed", strike: kill("speaker"), heal: boot("speaker")},
		{name: powerLoss + ", hold time 3 s", slow: true, strike: powerOff, heal: powerOn},
		{name: "cut, then healed, hold time 3 s", slow: true, strike: cut, heal: join},
	}...)
}

// bfd50Faults are those that BFD finds, with intervals of 50 ms.
func bfd50Faults() []fault {
	return []fault{
		{name: "speaker frozen, BFD 3 × 50 ms", strike: freezeSpeaker, heal: thaw("speaker")},
		{name: powerLoss + ", BFD 3 × 50 ms", strike: powerOff, heal: powerOn},
		{name: "cut, then healed, BFD 3 × 50 ms", strike: cut, heal: join},
	}
}

// bfd10Faults are the same with intervals of 10 ms.
func bfd10Faults() []fault {
	return []fault{
		{name: powerLoss + ", BFD 3 × 10 ms", strike: powerOff, heal: powerOn},
	}
}

func kill(kind string) func(context.Context, *site, int) error {
	return func(_ context.Context, s *site, m int) error { return s.node(m, kind).Kill() }
}

func boot(kind string) func(context.Context, *site, int) error {
	return func(ctx context.Context, s *site, m int) error { return s.node(m, kind).Boot(ctx) }
}

func freeze(kind string) func(context.Context, *site, int) error {
	return func(_ context.Context, s *site, m int) error { return s.node(m, kind).Freeze() }
}

func thaw(kind string) func(context.Context, *site, int) error {
	return func(_ context.Context, s *site, m int) error { return s.node(m, kind).Thaw() }
}

func freezeSpeaker(_ context.Context, s *site, m int) error {
	return s.speaker.freeze(s.node(m, "speaker"))
}

func drain(ctx context.Context, s *site, m int) error {
	return s.speaker.drain(ctx, s.node(m, "speaker"))
}

func undrain(ctx context.Context, s *site, m int) error {
	return s.speaker.undrain(ctx, s.node(m, "speaker"))
}

func stop(ctx context.Context, s *site, m int) error {
	return s.speaker.stop(ctx, s.node(m, "speaker"))
}

// upgrade ends the process as planned and starts its successor at once.
func upgrade(ctx context.Context, s *site, m int) error {
	n := s.node(m, "speaker")
	return errors.Join(s.speaker.stop(ctx, n), n.Boot(ctx))
}

func alter(altered bool) func(context.Context, *site, int) error {
	return func(ctx context.Context, s *site, m int) error {
		return s.speaker.alter(ctx, s.node(m, "speaker"), altered)
	}
}

func powerOff(_ context.Context, s *site, m int) error { return s.lab.Node(masterOf(m)).PowerOff() }

func powerOn(ctx context.Context, s *site, m int) error {
	return s.lab.Node(masterOf(m)).PowerOn(ctx)
}

// cut silences both links of the master, with the carrier up.
func cut(_ context.Context, s *site, m int) error { return links(s, m, (*lab.Link).Cut) }

func join(_ context.Context, s *site, m int) error { return links(s, m, (*lab.Link).Heal) }

func links(s *site, m int, change func(*lab.Link) error) error {
	var err error
	for _, l := range s.links(m) {
		err = errors.Join(err, change(l))
	}
	return err
}
