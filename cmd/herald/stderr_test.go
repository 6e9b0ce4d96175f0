package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Logging does not wait for a reader, and counts the dropped lines.
func TestWriterNeverWaits(t *testing.T) {
	read, write := io.Pipe()
	w := newWriter(write)
	const lines = queued + 100
	for i := range lines { // hangs here if Write waits
		fmt.Fprintf(w, "line %d\n", i)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.close()
		write.Close()
	}()
	seen, told := 0, false
	for text := bufio.NewScanner(read); text.Scan(); {
		if strings.HasPrefix(text.Text(), "line ") {
			seen++
		}
		told = told || strings.HasSuffix(text.Text(), "log lines were dropped: nobody read them")
	}
	<-done
	if seen < queued || seen >= lines || !told {
		t.Errorf("%d of %d lines written, told of the rest: %t", seen, lines, told)
	}
}

func TestWriterEndsWithAReaderThatIsStuck(t *testing.T) {
	_, write := io.Pipe()
	w := newWriter(write)
	fmt.Fprintln(w, "line")
	w.close()
	_ = write.Close()
	<-w.written
}
