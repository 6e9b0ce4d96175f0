package ruleset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
		}
	}
}

// Watch subscribes to nftables and wakes changed after each change of the table by another socket, or after the kernel lost
// some. stop waits for the goroutine.
func (s *Socket) Watch(changed chan<- struct{}, table string) (stop func(), err error) {
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
			case !slices.ContainsFunc(messages, func(m netlink.Message) bool { return s.Foreign(m, table) }):
				continue
			}
			wake.Up(changed)
		}
	})
	return func() { _ = conn.Close(); reader.Wait() }, nil
}

// Foreign reports whether a message of the kernel is about a change of the table by another socket.
func (s *Socket) Foreign(m netlink.Message, table string) bool {
	const header = 4                                // size of netfilter's header before the attributes
	const tableAttr = unix.NFTA_SET_ELEM_LIST_TABLE // the first of every message except NFT_MSG_NEWGEN
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < header || m.Header.PID == s.port.Load() {
		return false
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[header:])
	return err == nil && slices.ContainsFunc(attributes, func(a netlink.Attribute) bool {
		return a.Type == tableAttr && strings.TrimRight(string(a.Data), "\x00") == table
	})
}
