package rtnetlink

// ErrQueueFull is the error of a subscription with a full queue.
var ErrQueueFull = errQueueFull

// FillQueue fills the queue of a subscription.
func FillQueue(s *Subscription) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	s.events = make([]Event, maxEvents)
}
