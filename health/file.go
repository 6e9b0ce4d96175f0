package health

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// fileProber looks whether a file is there.
type fileProber struct {
	path    string
	looking chan error // of the look that has not been heard of yet; nil if there is none
	kept               // none
}

func (p *fileProber) probe(ctx context.Context) outcome {
	if p.looking == nil {
		p.looking = make(chan error, 1)
		go func(seen chan<- error) { // it hangs where the file system does
			_, err := os.Stat(p.path)
			seen <- err
		}(p.looking)
	}
	var err error
	select {
	case err = <-p.looking:
		p.looking = nil
	case <-ctx.Done():
		return ownFailure(p.path + ": the file system does not answer")
	}
	switch {
	case err == nil:
		return outcome{kind: passed, reason: p.path + " is there"}
	case errors.Is(err, fs.ErrNotExist):
		return wrongAnswer(p.path + " is not there")
	default: // whether it is there is unknown
		return ownFailure(pathError(p.path, err).Error())
	}
}
