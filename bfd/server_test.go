package bfd_test

import (
	"testing"

	"github.com/herald-vip/herald/bfd"
)

// Two servers find each other in every family.
func TestComesUp(t *testing.T) {
	a, b := wire(t)
	sa, sb := a.speaker(), b.speaker()
	sa.keep(to("10.0.0.2"), to("fd00::2"), to("fe80::2%eth0"))
	sb.keep(to("10.0.0.1"), to("fd00::1"), to("fe80::1%eth0"))
	for _, peer := range []string{"10.0.0.2", "fd00::2", "fe80::2%eth0"} {
		sa.up(peer)
		st := sa.status(peer)
		t.Logf("%+v", st)
	}
	for _, peer := range []string{"10.0.0.1", "fd00::1", "fe80::1%eth0"} {
		sb.up(peer)
	}
	_ = bfd.Up
}
