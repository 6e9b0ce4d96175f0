package admin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/speaker"
)

// lasts says which event ends the drain, and when it began.
func (s Status) lasts() string {
	end := "undrain or a restart"
	if s.UntilUndrain {
		end = "undrain"
	}
	return fmt.Sprintf("until %s, since %s", end, s.DrainingSince.UTC().Format(time.RFC3339))
}

// Drained returns the reason, the end and the start of the drain; empty without a drain.
func (s Status) Drained() string {
	if s.Draining == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", s.Draining, s.lasts())
}

// Left lists the addresses that a drain has yet to withdraw.
func (s Status) Left() (left []string) {
	for _, v := range s.VIPs {
		if v.Stage != speaker.Withdrawn || v.State == Blocked {
			left = append(left, v.Name+" "+v.Address.String())
		}
	}
	if s.Services != nil && s.Services.Routes+s.Services.Held > 0 {
		left = append(left, fmt.Sprintf("%d routes and %d held addresses of Services", s.Services.Routes, s.Services.Held))
	}
	return left
}

// WriteDrain renders the result of a drain for people; before is the status before it.
func (s Status) WriteDrain(w io.Writer, before Status) error {
	complete := len(s.Left()) == 0
	if complete && before.Draining != "" {
		_, err := fmt.Fprintf(w, "drained already, %s: %s\n", s.lasts(), text.OneLine(s.Draining))
		return err
	}
	t := newTable(w, time.Time{})
	if len(s.VIPs) > 0 {
		t.Row("VIP", "ADDRESS", "LINK", "WAS", "IS")
	}
	for _, v := range s.VIPs {
		i := slices.IndexFunc(before.VIPs, func(b VIP) bool { return b.Address == v.Address && b.Interface == v.Interface })
		previous := ""
		if i >= 0 {
			previous = before.VIPs[i].Told()
		}
		current := cmp.Or(v.Error, string(v.Stage))
		if holder := s.Election.Holder(v.Name); current == string(speaker.Withdrawn) && previous == string(speaker.Announced) && holder != "" && holder != s.Node {
			current = "handed over to " + holder
		}
		t.Row(v.Name, v.Address.String(), v.Interface, previous, current)
	}
	if b := before.Services; b != nil && s.Services != nil {
		fmt.Fprintf(t, "Services: %d of %d routes and %d of %d held addresses withdrawn\n",
			b.Routes-s.Services.Routes, b.Routes, b.Held-s.Services.Held, b.Held)
	}
	if complete {
		fmt.Fprintf(t, "drained %s: %s\n", s.lasts(), text.OneLine(s.Draining))
	}
	return t.Flush()
}

// Holder returns the holder of a VIP's lease; empty if it is not known.
func (e *Election) Holder(vip string) string {
	if e != nil {
		for _, l := range e.Leases {
			if l.Lease == vip {
				return l.Holder
			}
		}
	}
	return ""
}
