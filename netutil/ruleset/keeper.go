package ruleset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// retry is the longest time between a failed round and the next.
	retry = time.Second

	// pause is the least time between two rounds after changes by other programs. It bounds the load that a program that
	// keeps changing nftables causes.
	pause = 100 * time.Millisecond
)

// Keeper keeps the nftables tables of one owner: it orders the owner's changes, renews what expires, and has changes by other
// programs repaired.
//
// # Locks
//
// The owner holds the mutex while it changes its tables or their desired content, calls to the kernel included. So the tables
// change in one order. While an owner holds the mutex it takes no lock of its user and does not call its user back. An owner
// locks any mutex for longer changes first. [Keeper.Run] calls the owner without the mutex. It is not needed if only Run changes
// the tables.
type Keeper struct {
	sync.Mutex
	calls Calls
}

// NewKeeper returns a Keeper with a timeout of its calls to the kernel.
func NewKeeper(timeout time.Duration) *Keeper { return &Keeper{calls: NewCalls(timeout)} }

// Call calls f, which calls the kernel, as [Calls.Do] does.
func (k *Keeper) Call(f func() error) error { return k.calls.Do(f) }

// Rounds are an owner's part in [Keeper.Run].
type Rounds struct {
	// Round repairs and renews the tables. changed tells that other programs may have changed them since the last round.
	Round func(changed bool) error
	// Every is the time between two rounds; after an error it is a second at most.
	Every time.Duration
	// Wake asks for a round at once; nil never does.
	Wake <-chan struct{}
	// Watch subscribes to changes of the tables, like [Socket.Watch]; nil leaves finding them to the rounds.
	Watch func(changed chan<- struct{}) (stop func(), err error)
	// Delay returns the time between a change and its round; nil means none. The kernel also reports the owner's changes.
	Delay func() time.Duration
	// Failed and Recovered are logged once when an error begins or becomes another, and when it ends.
	Failed, Recovered string
}

// Run calls the owner's Round at once, at reported changes, when Wake asks, and in intervals, until ctx is done. If it
// cannot subscribe, it tells each round in the intervals of a change.
func (k *Keeper) Run(ctx context.Context, log *slog.Logger, r Rounds) {
	reported := make(chan struct{}, 1)
	unwatched := false
	if r.Watch != nil {
		if stop, err := r.Watch(reported); err == nil {
			defer stop()
		} else {
			unwatched = true
			log.Warn("cannot watch nftables: changes by other programs are repaired late", "every", r.Every, "err", err)
		}
	}
	var fault Fault
	changed := false
	for ctx.Err() == nil {
		err := r.Round(changed)
		fault.Log(log, err, r.Failed, r.Recovered)
		next := r.Every
		if err != nil {
			next = min(next, retry)
		}
		due := time.After(next)
		if changed {
			wake.Pause(ctx, pause)
		}
		select {
		case <-ctx.Done():
		case <-r.Wake:
			changed = false
		case <-due:
			changed = unwatched
		case <-reported:
			changed = true
			if r.Delay != nil {
				wake.Pause(ctx, r.Delay())
				select {
				case <-reported: // the round reads this change too
				default:
				}
			}
		}
	}
}

// Watch subscribes to nftables changes and wakes changed after each change that matters, or after the kernel
// lost some. stop waits for the goroutine.
func (s *Socket) Watch(changed chan<- struct{}, matters func(Change) bool) (stop func(), err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: s.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("subscribe to nftables changes: %w", err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			messages, err := conn.Receive()
			switch {
			case errors.Is(err, unix.ENOBUFS): // the kernel lost changes, and a lost one may matter
			case err != nil: // closed
				return
			case !slices.ContainsFunc(messages, func(m netlink.Message) bool { c, ok := Read(m); return ok && matters(c) }):
				continue
			}
			wake.Up(changed)
		}
	})
	return func() { _ = conn.Close(); reader.Wait() }, nil
}

// Change names the changed part of a table.
type Change struct {
	Table   string
	Set     string // set with changed elements; empty for any other change
	Deleted bool   // the table was deleted
}

// Read decodes a message of the kernel about a change. It reports false for messages of other subsystems.
func Read(m netlink.Message) (c Change, ok bool) {
	const (
		nftables = unix.NFNL_SUBSYS_NFTABLES << 8
		header   = 4 // size of netfilter's header before the attributes

		// The first attributes of every message except NFT_MSG_NEWGEN.
		tableAttr, setAttr = unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET
	)
	if m.Header.Type&^0xff != nftables || len(m.Data) < header {
		return Change{}, false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return Change{}, false
	}
	c.Deleted = m.Header.Type == nftables|unix.NFT_MSG_DELTABLE
	elements := m.Header.Type == nftables|unix.NFT_MSG_NEWSETELEM || m.Header.Type == nftables|unix.NFT_MSG_DELSETELEM
	for attributes.Next() {
		switch attributes.Type() {
		case tableAttr:
			c.Table = attributes.String()
		case setAttr:
			if elements {
				c.Set = attributes.String()
			}
		}
	}
	return c, true
}
