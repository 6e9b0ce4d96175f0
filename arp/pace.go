package arp

import "time"

const (
	// maxFrame is the size of the read buffer in bytes: statements fit any link's MTU.
	maxFrame = 1514

	// paceReads is the maximum number of reads of a wire in each paceTime. Further packets wait in the
	// socket's buffer, or the kernel drops them, which is cheap: a flood repeats the same
	// statements.
	paceReads = 100
	paceTime  = 100 * time.Millisecond
)

// pace limits a reader's use of the CPU.
type pace struct {
	start time.Time
	reads int
}

// wait sleeps after too many reads. Call it after each read.
func (p *pace) wait() {
	now := time.Now()
	if now.Sub(p.start) >= paceTime {
		p.start, p.reads = now, 0
	}
	if p.reads++; p.reads == paceReads {
		time.Sleep(paceTime - now.Sub(p.start))
	}
}
