// Package disk replaces files so that their content survives a power loss.
package disk

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace puts b into a file, all or nothing, and returns when it is on the disk. It makes the folder if there is none.
func Replace(file string, b []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
