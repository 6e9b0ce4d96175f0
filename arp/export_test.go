package arp

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// NewInside is New with a function that calls another in a network namespace.
func NewInside(log *slog.Logger, o Options, inside func(func() error) error) *Announcer {
	return newAnnouncer(log, o, host{new(rtnetlink.Watcher), inside})
}

// Frames returns the frames that announce addr at src.
func Frames(src net.HardwareAddr, addr netip.Addr) [][]byte { return announcement(mac(src), addr) }
