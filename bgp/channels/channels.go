// Package channels is what GoBGP needs of the module of this name: a queue
// between two goroutines that takes all that is put in. It stands in for that
// module (see replace in Herald's go.mod) because of what happens at the end.
// There, a closed queue waits until everything in it is taken out, and GoBGP,
// when a session ends, takes out just what is at hand. What a peer had not been
// sent yet stayed in memory for good, with a goroutine: about every second lost
// session left some behind, and a peer that did not read left all routes.
// Here, a closed queue is empty and ends.
package channels

// InfiniteChannel is a queue without a bound.
type InfiniteChannel struct {
	in, out chan any
	length  chan int
}

// NewInfiniteChannel returns an empty queue. Close must be called to end it.
func NewInfiniteChannel() *InfiniteChannel {
	c := &InfiniteChannel{in: make(chan any), out: make(chan any), length: make(chan int)}
	go c.run()
	return c
}

// In puts an item into the queue; it does not block for long.
func (c *InfiniteChannel) In() chan<- any { return c.in }

// Out takes the oldest item out of the queue. It is closed some time after Close.
func (c *InfiniteChannel) Out() <-chan any { return c.out }

// Len is how many items are in the queue, 0 if it is closed.
func (c *InfiniteChannel) Len() int { return <-c.length }

// Close ends the queue and forgets what is in it. Nothing may be put in afterwards.
func (c *InfiniteChannel) Close() { close(c.in) }

func (c *InfiniteChannel) run() {
	defer close(c.out)
	defer close(c.length)
	var items []any
	for {
		var out chan any // blocks while there is nothing to take
		var next any
		if len(items) > 0 {
			out, next = c.out, items[0]
		}
		select {
		case item, open := <-c.in:
			if !open {
				return
			}
			items = append(items, item)
		case out <- next:
			items[0] = nil // or it would live as long as those behind it
			items = items[1:]
		case c.length <- len(items):
		}
	}
}
