package fence

import "net/netip"

// status holds counters of a Fence.
type status struct {
	Filtered int    // addresses, open or closed
	Restored uint64 // times that it put its tables back
	Late     uint64 // renewals that came too late
}

func (f *Fence) status() status {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return status{Filtered: len(f.filtered), Restored: f.restored, Late: f.late}
}

// unfiltered returns the addresses with a pending filter.
func (f *Fence) unfiltered() []netip.Addr {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return keys(f.pending)
}
