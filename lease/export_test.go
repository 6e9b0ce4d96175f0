package lease

// Identity is what messages name as their receiver.
func Identity(name string, incarnation uint64) uint64 { return identity(name, incarnation) }
