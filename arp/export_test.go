package arp

import (
	"log/slog"
	"net"
	"net/netip"
)

// NewInside is New for another network namespace.
func NewInside(log *slog.Logger, o Options, inside func(func() error) error) *Announcer {
	return newAnnouncer(log, o, host{inside})
}

// Frames are those that announce addr at src.
func Frames(src net.HardwareAddr, addr netip.Addr) [][]byte { return announcement(mac(src), addr) }
