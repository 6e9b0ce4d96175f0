package rtnetlink

// ErrQueueFull is what ends a subscription whose queue is full.
var ErrQueueFull = errQueueFull

// FillQueue gives a subscription as many events as it may have waiting.
func FillQueue(s *Subscription) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	s.events = make([]Event, maxEvents)
}
