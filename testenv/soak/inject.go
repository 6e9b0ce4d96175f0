package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

// patience bounds any one act of breaking or mending.
const patience = 60 * time.Second

// injector breaks and mends what a fault says, and tells crashes from the ends
// of processes that it brought about.
type injector struct {
	site *site
	rec  *recorder
	obs  *observers // nil in the flat topology

	schedule Schedule
	// planned, if set, makes a planned change of a master, for the record.
	planned  func(master string, change func() error) error
	watching sync.WaitGroup

	mu    sync.Mutex
	ended map[int]bool           // PIDs of speakers that were made to end
	parts map[string]*sync.Mutex // held by the fault that claims the part
}

func newInjector(s *site, rec *recorder, obs *observers, sched Schedule) *injector {
	return &injector{site: s, rec: rec, obs: obs, schedule: sched, ended: make(map[int]bool), parts: make(map[string]*sync.Mutex)}
}

func (j *injector) node(name string) *lab.Node { return j.site.Node(name) }

func (j *injector) speaker(master string) *lab.Node { return j.site.Node(master + "-speaker") }

// inflict makes the fault, leaves it for its time, or until ctx ends, and
// undoes it.
func (j *injector) inflict(ctx context.Context, f Fault) error {
	for _, part := range j.schedule.claims(f) {
		lock := j.part(part)
		lock.Lock()
		defer lock.Unlock()
	}
	if ctx.Err() != nil {
		return nil
	}
	number := j.rec.begin(f)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	do := func() error { return j.do(bounded, f) }
	if j.planned != nil && j.schedule.traitOf(f.Kind).planned {
		change := do
		do = func() error { return j.planned(f.Master, change) }
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	j.rec.progress(number, func(i *Incident, now time.Duration) { i.Broken = now })
	if f.Kind == LinkFlaps {
		if err := j.flap(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	} else {
		pause(ctx, f.For)
	}
	j.rec.progress(number, func(i *Incident, now time.Duration) { i.Mending = now })
	bounded, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := j.undo(bounded, f); err != nil {
		return fmt.Errorf("undo %s: %w", f, err)
	}
	j.rec.progress(number, func(i *Incident, now time.Duration) { i.Mended = now })
	return nil
}

// part returns the lock of a part. Faults take the locks of several parts in
// the same order.
func (j *injector) part(name string) *sync.Mutex {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.parts[name] == nil {
		j.parts[name] = new(sync.Mutex)
	}
	return j.parts[name]
}

// do makes the fault.
func (j *injector) do(ctx context.Context, f Fault) error {
	server := func() *lab.Node { return j.node(f.Master + "-" + string(f.Part)) }
	link := func() *lab.Link { return j.site.Link(f.Master, f.Router) }
	switch f.Kind {
	case APIServerKilled, RegistryKilled:
		return server().Kill()
	case APIServerFrozen, RegistryFrozen:
		return server().Freeze()
	case APIServerHangs:
		return j.tell(ctx, f, "?hang=headers")
	case APIServerErrors, RegistryErrors:
		return j.tell(ctx, f, "?status=500")
	case APIServerSlow:
		return j.tell(ctx, f, "?delay=700ms")
	case RegistryLogin:
		return j.tell(ctx, f, "?status=401")
	case SpeakerKilled:
		j.ending(f.Master)
		return j.speaker(f.Master).Kill()
	case SpeakerFrozen:
		return j.speaker(f.Master).Freeze()
	case SpeakerStopped:
		j.ending(f.Master)
		return j.speaker(f.Master).Stop(ctx)
	case SpeakerDrained:
		return j.herald(ctx, f.Master, "drain")
	case MEDRaised, Recoloured, BadFile:
		c := j.site.speakerConfig(f.Master)
		c.change(f.Kind)
		return j.configure(f.Master, c)
	case AddressDeleted:
		return j.deleteAddress(f.Master)
	case AddressesGone:
		_, err := j.node(f.Master).Run(ctx, "ip", "address", "flush", "dev", "lo", "scope", "global")
		return err
	case LinkCut:
		return link().Cut()
	case LinkCutOut:
		return link().CutFrom(f.Master)
	case LinkCutIn:
		return link().CutFrom(f.Router)
	case LinkDown, LinkFlaps:
		return link().Down()
	case BGPKilled:
		return j.node(f.Router).Daemon("bgpd").Kill()
	case RouterFrozen:
		return j.node(f.Router).Freeze()
	case RouterRebooted:
		return j.node(f.Router).Kill()
	case PowerCut:
		j.ending(f.Master)
		j.obs.powerCut(f.Master)
		return j.node(f.Master).PowerOff()
	}
	return j.doFlat(ctx, f)
}

// undo mends what do broke.
func (j *injector) undo(ctx context.Context, f Fault) error {
	switch f.Kind {
	case APIServerKilled, RegistryKilled:
		return j.node(f.Master + "-" + string(f.Part)).Boot(ctx)
	case APIServerFrozen, RegistryFrozen:
		return j.node(f.Master + "-" + string(f.Part)).Thaw()
	case APIServerHangs, APIServerErrors, APIServerSlow, RegistryErrors, RegistryLogin:
		return j.tell(ctx, f, "")
	case SpeakerKilled, SpeakerStopped:
		return j.boot(ctx, f.Master)
	case SpeakerFrozen:
		return j.speaker(f.Master).Thaw()
	case SpeakerDrained:
		return j.herald(ctx, f.Master, "undrain")
	case MEDRaised, Recoloured, BadFile:
		return j.configure(f.Master, j.site.speakerConfig(f.Master))
	case LinkCut, LinkCutOut, LinkCutIn, LinkDown, LinkFlaps:
		return j.site.Link(f.Master, f.Router).Heal()
	case RouterRebooted:
		return errors.Join(j.forget(ctx, f.Router), j.node(f.Router).Boot(ctx))
	case BGPKilled: // what is left of it ends, too
		return errors.Join(j.node(f.Router).Kill(), j.forget(ctx, f.Router), j.node(f.Router).Boot(ctx))
	case RouterFrozen:
		return j.node(f.Router).Thaw()
	case PowerCut:
		err := j.node(f.Master).PowerOn(ctx)
		j.watchSpeaker(f.Master)
		return errors.Join(err, j.obs.powerOn(j.node(f.Master)))
	}
	return j.undoFlat(ctx, f)
}

// forget removes what an FRR that was killed left in its kernel, as a reboot
// does. A new one is to sweep it; once an IPv6 route stayed that outlived even
// the session it came from, which looks as if it was not swept. A route that
// Herald failed to withdraw before the router was killed is not seen after it.
func (j *injector) forget(ctx context.Context, router string) error {
	for _, family := range []string{"-4", "-6"} {
		if _, err := j.node(router).Run(ctx, "ip", family, "route", "flush", "proto", "bgp"); err != nil {
			return err
		}
	}
	return nil
}

// boot starts a speaker and watches over it.
func (j *injector) boot(ctx context.Context, master string) error {
	err := j.speaker(master).Boot(ctx)
	j.watchSpeaker(master)
	return err
}

// watchSpeaker notes a crash if the speaker's process ends unasked.
func (j *injector) watchSpeaker(master string) {
	for _, p := range j.speaker(master).Daemons() {
		j.watching.Go(func() {
			<-p.Done()
			j.mu.Lock()
			asked := j.ended[p.Pid()]
			j.mu.Unlock()
			if !asked {
				j.rec.add(func(t *Trace, now time.Duration) {
					t.Crashes = append(t.Crashes, Crash{now, master, fmt.Sprint(p.Wait(context.Background()))})
				})
			}
		})
	}
}

// ending notes that the speaker is about to be made to end.
func (j *injector) ending(master string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.speaker(master).Daemons() {
		j.ended[p.Pid()] = true
	}
}

// tell has a stub server answer its check as the query says.
func (j *injector) tell(ctx context.Context, f Fault, query string) error {
	url := "http://127.0.0.1:6443/stub/readyz"
	if f.Part == Registry {
		url = "http://127.0.0.1:5001/stub/v2"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+query, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: j.node(f.Master).DialContext, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stub answers %s", resp.Status)
	}
	return nil
}

// herald runs the command line of the binary under test on a master.
func (j *injector) herald(ctx context.Context, master string, args ...string) error {
	n := j.speaker(master)
	name := n.Daemons()[0].Name()
	_, err := n.Run(ctx, append([]string{"/usr/local/bin/" + name}, args...)...)
	return err
}

// configure writes the configuration and tells the speaker.
func (j *injector) configure(master string, c speakerConfig) error {
	path := filepath.Join(j.site.config(master), "herald.yaml")
	if err := c.write(path + ".new"); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return j.speaker(master).Daemons()[0].Signal(unix.SIGHUP)
}

// deleteAddress deletes the IPv4 address of the VIP, if it is there.
func (j *injector) deleteAddress(master string) error {
	name, ip := "lo", vip(4)
	if j.site.flat {
		name, ip = "eth1", flatVIPs()[0]
	}
	h, err := j.node(master).Handle()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	err = h.AddrDel(link, &netlink.Addr{IPNet: hostNet(ip)})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// flap takes the carrier from the link and gives it back, over and over.
func (j *injector) flap(ctx context.Context, f Fault) error {
	const phase = 300 * time.Millisecond
	link := j.site.Link(f.Master, f.Router)
	for end := time.Now().Add(f.For); time.Now().Before(end) && ctx.Err() == nil; {
		for _, change := range []func() error{link.Heal, link.Down} {
			pause(ctx, phase)
			if err := change(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
