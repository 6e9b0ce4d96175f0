package health

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// fileProber looks whether a file is there.
type fileProber struct {
	path string
	kept // none
}

func (p *fileProber) probe(context.Context) outcome {
	_, err := os.Stat(p.path)
	switch {
	case err == nil:
		return outcome{kind: passed, reason: p.path + " is there"}
	case errors.Is(err, fs.ErrNotExist):
		return wrongAnswer(p.path + " is not there")
	default: // whether it is there is unknown
		return ownFailure(pathError(p.path, err).Error())
	}
}
