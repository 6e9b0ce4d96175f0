package flat

import "time"

// Lifetime returns how long addresses on a flat layer 2 outlive a killed or suspended
// process: the lease in whole seconds, and at least 2 s. The kernel counts in seconds and may
// expire an address early.
func Lifetime(lease time.Duration) time.Duration {
	const least = 2 * time.Second
	return max(least, (lease + time.Second - 1).Truncate(time.Second))
}
