package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// fault happens to one master; on a flat layer 2 to the holder of the VIP.
type fault struct {
	name string
	// planned marks a deliberate change: the clients' connections count until the state is as before.
	planned bool
	// slow takes many seconds.
	slow bool
	// identify makes clients ask for an answer, where a connection alone proves nothing.
	identify bool
	// limit bounds the wait for the effect.
	limit time.Duration
	// strike makes the fault, heal undoes it; nil if there is nothing to undo.
	strike, heal action
}

// action is done to a master.
type action func(ctx context.Context, s *site, master string) error

// The names of faults; behind routers some have a suffix.
const (
	apiserverKilled = "apiserver killed"
	apiserverFrozen = "apiserver frozen"
	registryKilled  = "registry killed"
	drained         = "drain"
	terminated      = "SIGTERM"
	upgraded        = "upgrade"
	altered         = "attributes changed"
	speakerKilled   = "speaker killed"
	speakerFrozen   = "speaker frozen"
	powerLoss       = "power loss"
	cutOff          = "cut, then healed"
	parted          = "parted, then healed"
)

// The detection of a dead speaker behind routers.
const (
	byHoldTime = ", hold time 3 s"
	byBFD50    = ", BFD 3 × 50 ms"
	byBFD10    = ", BFD 3 × 10 ms"
)

// usualLimit suffices for a hold time of 3 s and for most health checks. slowLimit
// suits ExaBGP's defaults: three failures, each after 2 s of silence, take up to 13 s
// after a freeze. documentedLimit suits kubeadm's documented check: ten failures, 3 s
// apart.
const usualLimit, slowLimit, documentedLimit = 10 * time.Second, 20 * time.Second, 45 * time.Second

// healthFaults returns the faults that a health check has to detect.
func healthFaults() []string { return []string{apiserverKilled, apiserverFrozen, registryKilled} }

// plannedFaults returns the planned changes.
func plannedFaults() []string { return []string{drained, terminated, upgraded, altered} }

// flatFaults returns the faults of a flat layer 2 that apply to every speaker.
func flatFaults() []string {
	return []string{apiserverKilled, apiserverFrozen, terminated, upgraded, speakerKilled, speakerFrozen, powerLoss, cutOff, parted}
}

// named returns the faults of these names, in their order.
func named(names ...string) (list []fault) {
	kinds := []fault{
		{name: apiserverKilled, strike: kill("apiserver"), heal: boot("apiserver")},
		{name: apiserverFrozen, identify: true, strike: onNode("apiserver", (*lab.Node).Freeze), heal: onNode("apiserver", (*lab.Node).Thaw)},
		{name: registryKilled, strike: kill("registry"), heal: boot("registry")},
		{name: drained, planned: true, strike: drain(true), heal: drain(false)},
		{name: terminated, planned: true, strike: stop, heal: boot("speaker")},
		{name: upgraded, planned: true, strike: upgrade},
		{name: altered, planned: true, strike: alter(true), heal: alter(false)},
		{name: speakerKilled, strike: kill("speaker"), heal: boot("speaker")},
		{name: speakerFrozen, strike: freezeSpeaker, heal: onNode("speaker", (*lab.Node).Thaw)},
		{name: powerLoss,
			strike: func(_ context.Context, s *site, m string) error { return s.Node(m).PowerOff() },
			heal:   func(ctx context.Context, s *site, m string) error { return s.Node(m).PowerOn(ctx) }},
		{name: cutOff, strike: links((*lab.Link).Cut), heal: links((*lab.Link).Heal)},
		{name: parted,
			strike: func(_ context.Context, s *site, m string) error { return s.Part(lan, []string{m}, others(m)) },
			heal:   func(_ context.Context, s *site, _ string) error { return s.Part(lan) }},
	}
	for _, name := range names {
		f := kinds[slices.IndexFunc(kinds, func(f fault) bool { return strings.HasPrefix(name, f.name) })]
		f.slow = name == cutOff || name == parted || strings.HasSuffix(name, byHoldTime)
		f.name, f.limit = name, usualLimit
		list = append(list, f)
	}
	return list
}

// onNode returns an action on the master's node of a kind: "speaker", "apiserver" or "registry".
func onNode(kind string, do func(*lab.Node) error) action {
	return func(_ context.Context, s *site, m string) error { return do(s.Node(m + "-" + kind)) }
}

func kill(kind string) action { return onNode(kind, (*lab.Node).Kill) }

func boot(kind string) action {
	return func(ctx context.Context, s *site, m string) error { return s.Node(m + "-" + kind).Boot(ctx) }
}

func freezeSpeaker(ctx context.Context, s *site, m string) error {
	return onNode("speaker", s.speaker.freeze)(ctx, s, m)
}

func stop(ctx context.Context, s *site, m string) error {
	return s.speaker.stop(ctx, s.Node(speakerOf(m)))
}

// upgrade stops the process as planned and starts its successor immediately.
func upgrade(ctx context.Context, s *site, m string) error {
	return errors.Join(stop(ctx, s, m), boot("speaker")(ctx, s, m))
}

// drain drains a master, or ends the drain.
func drain(off bool) action {
	return func(ctx context.Context, s *site, m string) error {
		return s.speaker.drain(ctx, s.Node(speakerOf(m)), off)
	}
}

// alter announces the VIP with a MED and a community, or without them again.
func alter(on bool) action {
	return func(ctx context.Context, s *site, m string) error { return s.speaker.alter(ctx, s, m, on) }
}

// links returns an action on the links of a master; a cut link is silent, with the carrier up.
func links(change func(*lab.Link) error) action {
	return func(_ context.Context, s *site, m string) (err error) {
		for _, far := range s.neighbours() {
			err = errors.Join(err, change(s.Link(m, far)))
		}
		return err
	}
}

// masters returns the masters of both topologies.
func masters() []string { return []string{masterOf(1), masterOf(2), masterOf(3)} }

// numbers returns the numbers of the masters.
func numbers() []int { return []int{1, 2, 3} }

func masterOf(number int) string     { return fmt.Sprintf("m%d", number) }
func speakerOf(master string) string { return master + "-speaker" }

// others returns the other masters.
func others(master string) []string {
	return slices.DeleteFunc(masters(), func(m string) bool { return m == master })
}
