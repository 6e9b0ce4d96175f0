// Package channels implements the part of the module of this name that GoBGP uses: an unbounded queue between two
// goroutines. It replaces that module (see replace in Herald's go.mod) because of its behaviour at the end. There, a closed
// queue waits until all items are taken out, but GoBGP takes out only the available items when a session
// ends. Unsent items stayed in memory for ever, with a goroutine: about every second lost session
// left some, and a peer that did not read left all routes. Here, a closed queue is empty and ends.
package channels

// InfiniteChannel is an unbounded queue.
type InfiniteChannel struct {
	in, out chan any
	length  chan int
}

// NewInfiniteChannel returns an empty queue. Call Close to end it.
func NewInfiniteChannel() *InfiniteChannel {
	c := &InfiniteChannel{in: make(chan any), out: make(chan any), length: make(chan int)}
	go c.run()
	return c
}

// In returns the channel that adds items; it does not block for long.
func (c *InfiniteChannel) In() chan<- any { return c.in }

// Out returns the channel of items, oldest first. It is closed some time after Close.
func (c *InfiniteChannel) Out() <-chan any { return c.out }

// Len returns the number of items in the queue, 0 if it is closed.
func (c *InfiniteChannel) Len() int { return <-c.length }

// Close ends the queue and discards its items. Do not add items afterwards.
func (c *InfiniteChannel) Close() { close(c.in) }

func (c *InfiniteChannel) run() {
	defer close(c.out)
	defer close(c.length)
	var items []any
	for {
		var out chan any // nil, which blocks, while the queue is empty
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
			items[0] = nil // or it would stay in memory as long as the later items
			items = items[1:]
		case c.length <- len(items):
		}
	}
}
