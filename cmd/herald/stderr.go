package main

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// queued is the size of the queue in lines.
	queued = 4096
	// parting is how long the end of the process waits for the queue.
	parting = time.Second
)

// writer writes in the background, and drops lines when its queue is full: logging never blocks. A stopped terminal, or
// a pipe without a reader, must not keep a VIP announced.
type writer struct {
	lines   chan []byte // nil is the last
	dropped atomic.Uint64
	written chan struct{} // closed when all is
}

func newWriter(dst io.Writer) *writer {
	w := &writer{lines: make(chan []byte, queued), written: make(chan struct{})}
	go w.run(dst)
	return w
}

func (w *writer) run(dst io.Writer) {
	defer close(w.written)
	for line := range w.lines {
		if n := w.dropped.Swap(0); n > 0 {
			fmt.Fprintf(dst, "%d log lines were dropped: nobody read them\n", n)
		}
		if line == nil {
			return
		}
		_, _ = dst.Write(line) // there is nowhere to tell of a failure
	}
}

// Write implements [io.Writer]. It never fails.
func (w *writer) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

// close waits a moment for the queue to empty. Later lines are lost.
func (w *writer) close() {
	timeout := time.After(parting)
	select {
	case w.lines <- nil:
	case <-timeout:
		return
	}
	select {
	case <-w.written:
	case <-timeout:
	}
}
