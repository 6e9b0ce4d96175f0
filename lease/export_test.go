package lease

// WithoutAbstain breaks the rule that a started member does not vote: for tests
// of the tests.
func (m *Machine) WithoutAbstain() { m.broken.abstain = true }

// WithoutQuorum breaks the rule of the majority: one vote grants a lease.
func (m *Machine) WithoutQuorum() { m.broken.quorum = true }

// Identity is what messages name as their receiver.
func Identity(name string, incarnation uint64) uint64 { return identity(name, incarnation) }
