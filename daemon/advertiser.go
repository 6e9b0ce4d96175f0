package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// advertiser tells the members of the election what this node serves: what its checks say,
// on the goroutine of the verdict, whether it drains, and which VIPs it serves that the others
// may have to keep.
type advertiser struct {
	advertise func(election.Advertisement)  // to all members
	states    func() []election.MemberState // of all members
	verdicts  func() []health.Verdict       // of all checks

	mu       sync.Mutex
	draining bool
	passing  bool
	serves   map[string]bool
	last     election.Advertisement // without a map if there was none
}

// setDraining says that the node drains, or no longer does.
func (o *advertiser) setDraining(draining bool) {
	o.mu.Lock()
	o.draining = draining
	o.mu.Unlock()
	o.publish()
}

// setPassing says whether this node passes packets of others' connections on.
func (o *advertiser) setPassing(passing bool) {
	o.mu.Lock()
	o.passing = passing
	o.mu.Unlock()
	o.publish()
}

// Tell implements [speaker.Members].
func (o *advertiser) Tell(serves map[string]bool) {
	o.mu.Lock()
	o.serves = serves
	o.mu.Unlock()
	o.publish()
}

// Heard implements [speaker.Members].
func (o *advertiser) Heard(vip string, checks []string) (last time.Time) {
	checks = o.offered(checks)
	for _, m := range o.states() {
		if !m.Self && !m.TimedOut && !m.Advertisement.Draining && serves(m.Advertisement, vip, checks) && m.Received.After(last) {
			last = m.Received
		}
	}
	return last
}

// offered are those of some checks that this node offers the verdicts of: of its links it offers none.
func (o *advertiser) offered(checks []string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(checks), func(name string) bool { _, ok := o.last.Checks[name]; return !ok })
}

// serves reports whether a member serves a VIP by its offer. One that says nothing of the VIP, as its file or its version knows no
// whenAllFail, does if it has all of the VIP's checks and they pass: with some of them it may be a worker without the VIP.
func serves(o election.Advertisement, vip string, checks []string) bool {
	if ok, told := o.Checks[config.AdvertisedVIP+vip]; told {
		return ok
	}
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(name string) bool { return !o.Checks[name] })
}

// publish offers what is to be offered now, which is told if it is something new. A node that has
// never had a check has nothing to offer. A verdict that only this process is to blame for, since it
// stood still, is none.
func (o *advertiser) publish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	verdicts := o.verdicts()
	if len(verdicts) == 0 && o.last.Checks == nil {
		return
	}
	o.last = election.Advertisement{Draining: o.draining, Passing: o.passing, Checks: make(map[string]bool)}
	for _, v := range verdicts {
		if v.State != health.Unknown && !v.Paused {
			o.last.Checks[v.Name] = v.State == health.Healthy
		}
	}
	for name, ok := range o.serves {
		o.last.Checks[config.AdvertisedVIP+name] = ok
	}
	o.advertise(o.last)
}

// takeMemberStates takes in what members offer.
func (d *Daemon) takeMemberStates(offered []election.MemberState) {
	d.balancers.SetMemberStates(offered)
	d.speaker.MembersChanged()
}

// observe acts on a verdict before it returns: this node's own VIPs come first.
func (d *Daemon) observe(v health.Verdict) {
	d.speaker.Observe(v)
	d.advertiser.publish()
}
