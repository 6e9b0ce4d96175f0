package health

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// rotated is a value read from files that may be replaced at any time. A bad or
// half-written new version leaves the last good value in place.
type rotated[T any] struct {
	what  string
	paths []string // if the first is empty, value stays zero
	parse func(data [][]byte) (T, error)

	value T
	good  bool          // value has been read
	err   error         // of the last read
	seen  []os.FileInfo // of the files that value came from; nil after an error
}

// refresh reads the files again if they changed, and reports whether value did.
func (r *rotated[T]) refresh() bool {
	if r.paths[0] == "" {
		return false
	}
	// Stat before reading: a write in between shows as a change at the next call.
	infos, err := statAll(r.paths)
	if err == nil && slices.EqualFunc(infos, r.seen, sameFile) {
		return false
	}
	var value T
	if err == nil {
		value, err = r.read()
	}
	if err != nil {
		// Read again at the next call: the fault may be this process's, such as a lack of
		// descriptors, and not the file's.
		r.err, r.seen = fmt.Errorf("%s %w", r.what, err), nil
		return false
	}
	r.value, r.good, r.err, r.seen = value, true, nil, infos
	return true
}

func (r *rotated[T]) read() (value T, err error) {
	data := make([][]byte, len(r.paths))
	for i, path := range r.paths {
		if data[i], err = readSmall(path); err != nil {
			return value, err
		}
	}
	if value, err = r.parse(data); err != nil {
		return value, fmt.Errorf("%s: %w", strings.Join(r.paths, ", "), err)
	}
	return value, nil
}

// missing returns the last error while no value has been read.
func (r *rotated[T]) missing() error {
	if r.good {
		return nil
	}
	return r.err
}

// stale returns the last error while an older value is in use.
func (r *rotated[T]) stale() error {
	if !r.good {
		return nil
	}
	return r.err
}

func statAll(paths []string) ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		if !info.Mode().IsRegular() { // a FIFO would block, a device never end
			return nil, fmt.Errorf("%s: not a regular file", path)
		}
		infos[i] = info
	}
	return infos, nil
}

func sameFile(x, y os.FileInfo) bool {
	return os.SameFile(x, y) && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}

func readSmall(path string) ([]byte, error) {
	const maxFile = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, pathError(path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than 1 MiB", path)
	}
	return data, nil
}

// pathError adds the path to an error and drops the name of the system call.
func pathError(path string, err error) error { return fmt.Errorf("%s: %w", path, bare(err)) }

// bare returns err without the path and the system call.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
