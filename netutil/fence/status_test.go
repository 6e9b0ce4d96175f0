package fence

import "net/netip"

// status counts what happened to a Fence.
type status struct {
	Gated    int    // addresses, open or closed
	Restored uint64 // times that it put back its tables
	Late     uint64 // attempts to open that came too late
}

func (f *Fence) status() status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return status{Gated: len(f.gated), Restored: f.restored, Late: f.late}
}

// ungated are the addresses that are to be gated once they have been opened again.
func (f *Fence) ungated() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return keys(f.bare)
}
