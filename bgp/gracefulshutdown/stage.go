package gracefulshutdown

// Stage is how far the announcement of an address has come.
type Stage string

const (
	// Withdrawn: no route, no address.
	Withdrawn Stage = "withdrawn"
	// Announced: address bound, route advertised; on a flat layer 2 the kernel answers for it.
	Announced Stage = "announced"
	// Draining: as Announced, with the route marked by GRACEFUL_SHUTDOWN.
	Draining Stage = "draining"
	// Lingering: route withdrawn, or lease handed over, and the address still bound for packets on their way.
	Lingering Stage = "lingering"
	// Demoted: the checks fail, and the VIP stays as the last resort: address bound, route marked as the worst.
	Demoted Stage = "demoted"
)

// Bound reports whether the address is on its link in this stage.
func (s Stage) Bound() bool { return s != Withdrawn && s != "" }

// Advertised reports whether peers have the route in this stage.
func (s Stage) Advertised() bool { return s == Announced || s.Marked() }

// Marked reports whether the route asks peers to prefer any other in this stage.
func (s Stage) Marked() bool { return s == Draining || s == Demoted }
