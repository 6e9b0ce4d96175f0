package arp

import "time"

const (
	// maxFrame is the longest frame that is read, in bytes: statements fit any link's MTU.
	maxFrame = 1514

	// A wire is read so many times in each paceTime at most. What is more waits in the
	// socket's buffer, or is dropped by the kernel, which is cheap: a flood
	// says a thousand times a second what once would be enough.
	paceReads = 100
	paceTime  = 100 * time.Millisecond
)

// pace keeps a reader from taking the CPU.
type pace struct {
	start time.Time
	reads int
}

// wait is to be called after each read, and sleeps when there were too many.
func (p *pace) wait() {
	now := time.Now()
	if now.Sub(p.start) >= paceTime {
		p.start, p.reads = now, 0
	}
	if p.reads++; p.reads == paceReads {
		time.Sleep(paceTime - now.Sub(p.start))
	}
}
