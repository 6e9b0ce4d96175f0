// Package advertise reports the state of this node to the members of the election.
package advertise

import (
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// Election carries advertisements. [election.Election] is one.
type Election interface {
	// Advertise sends this node's advertisement to all members.
	Advertise(election.Advertisement)
	// MemberStates returns the advertisements of all members.
	MemberStates() []election.MemberState
}

// Advertiser advertises the results of this node's checks, on the goroutine of the verdict, whether the node drains, and which
// VIPs with `whenAllFail: keep` it serves. Its methods may be called from any goroutine.
type Advertiser struct {
	election Election
	verdicts func() []health.Verdict // of all checks

	mu       sync.Mutex
	draining bool
	passing  bool
	serves   map[string]bool
	last     election.Advertisement // without a map before the first one
}

// New returns an advertiser of verdicts.
func New(e Election, verdicts func() []health.Verdict) *Advertiser {
	return &Advertiser{election: e, verdicts: verdicts}
}

// SetDraining advertises whether the node drains.
func (a *Advertiser) SetDraining(draining bool) { a.change(func() { a.draining = draining }) }

// SetPassing advertises whether this node can pass misrouted packets on.
func (a *Advertiser) SetPassing(passing bool) { a.change(func() { a.passing = passing }) }

// Tell implements [speaker.Members].
func (a *Advertiser) Tell(serves map[string]bool) { a.change(func() { a.serves = serves }) }

// Heard implements [speaker.Members].
func (a *Advertiser) Heard(vip string, checks []string) (last time.Time) {
	checks = a.advertised(checks)
	for _, m := range a.election.MemberStates() {
		if !m.Self && !m.TimedOut && !m.Advertisement.Draining && serves(m.Advertisement, vip, checks) && m.Received.After(last) {
			last = m.Received
		}
	}
	return last
}

// advertised filters checks for those in the last advertisement, which lists no links of this node.
func (a *Advertiser) advertised(checks []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(checks), func(name string) bool { _, ok := a.last.Checks[name]; return !ok })
}

// serves reports whether a member serves a VIP. An advertisement does not name the VIP if the member's file or version has
// no whenAllFail. Then the member serves it if it advertises all of the VIP's checks and they pass. A member with only
// some of them may be a worker without the VIP.
func serves(ad election.Advertisement, vip string, checks []string) bool {
	if ok, told := ad.Checks[config.AdvertisedVIP+vip]; told {
		return ok
	}
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(name string) bool { return !ad.Checks[name] })
}

// Publish advertises the present state, which the election sends if it is new. A node that has never had a check advertises
// nothing. A check that is unhealthy only because this process was suspended is left out.
func (a *Advertiser) Publish() { a.change(func() {}) }

// change makes a change and advertises the result.
func (a *Advertiser) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	verdicts := a.verdicts()
	if len(verdicts) == 0 && a.last.Checks == nil {
		return
	}
	a.last = election.Advertisement{Draining: a.draining, Passing: a.passing, Checks: make(map[string]bool)}
	for _, v := range verdicts {
		if v.State != health.Unknown && !v.Paused {
			a.last.Checks[v.Name] = v.State == health.Healthy
		}
	}
	for name, ok := range a.serves {
		a.last.Checks[config.AdvertisedVIP+name] = ok
	}
	a.election.Advertise(a.last)
}
