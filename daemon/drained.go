package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/herald-vip/herald/internal/disk"
)

// drained is the reason and the start of a drain. The zero value means that the node is not drained. A file records a
// drain that outlasts the process. A file that cannot be read counts as a drain, because the node may be under
// maintenance.
type drained struct {
	told drainRecord
	kept bool // in the file
}

// drainRecord is the content of the file.
type drainRecord struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// stateDir returns the folder of state that outlasts a reboot: as given by systemd, or its default.
func stateDir() string { return cmp.Or(os.Getenv("STATE_DIRECTORY"), "/var/lib/herald") }

// drainFile returns the path of the file.
func drainFile() string { return filepath.Join(stateDir(), "drained") }

// begin records a drain, unless there is one, and writes the file if it lasts until undrain.
func (d *drained) begin(reason string, untilUndrain bool) error {
	next := d.told
	if next.Reason == "" {
		next = drainRecord{reason, time.Now().Round(0)}
	}
	if untilUndrain {
		b, err := json.Marshal(next)
		if err == nil {
			err = disk.Replace(drainFile(), b)
		}
		if err != nil {
			return fmt.Errorf("a drain until undrain cannot be remembered, so it does not begin: %w", err)
		}
		d.kept = true
	}
	d.told = next
	return nil
}

// end removes the record.
func (d *drained) end() error {
	d.told = drainRecord{}
	if !d.kept {
		return nil
	}
	if err := os.Remove(drainFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the drain has ended, but a restart begins it again until the file is gone: %w", err)
	}
	d.kept = false
	return nil
}

// resume reads the record of an earlier process. It returns the reason of the drain, empty if there is none.
func (d *drained) resume() string {
	file := drainFile()
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err == nil {
		err = json.Unmarshal(b, &d.told)
	}
	if err == nil && d.told.Reason == "" {
		err = errors.New("it gives no reason")
	}
	if err != nil {
		d.told = drainRecord{fmt.Sprintf("%s cannot be read, which counts as a drain: %v", file, err), time.Now()}
	}
	d.kept = true
	return d.told.Reason
}
