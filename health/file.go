package health

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/herald-vip/herald/internal/yaml"
)

// File is a file, folder or anything else with a path that must exist. The check fails, with `not: true` as well, if that cannot be found out, as in a folder without read permission.
type File struct {
	// Path is the absolute path of a file on a local file system: the check fails while the file system hangs. Required.
	Path string `yaml:"path"`
}

// Validate implements [Check.Validate] for this kind.
func (f *File) Validate(r *yaml.Report, p yaml.Path) { r.RequiredFile(p.Field("path"), f.Path) }

func (f *File) prober(*Monitor, time.Duration) (prober, error) {
	return &fileProber{path: f.Path}, nil
}

// fileProber checks whether a file exists.
type fileProber struct {
	path     string
	looking  chan error // receives the result of the running stat; nil if none runs
	idleConn            // always empty
}

func (p *fileProber) probe(ctx context.Context) outcome {
	if p.looking == nil {
		p.looking = make(chan error, 1)
		go func(seen chan<- error) { // stat hangs if the file system does
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
	default: // it may or may not exist
		return ownFailure(pathError(p.path, err).Error())
	}
}
