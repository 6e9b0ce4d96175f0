package election

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/disk"
)

// saveAgain is the pause before another attempt to store the state.
const saveAgain = time.Second

// saved is the content of the state file.
type saved struct {
	// Identity distinguishes this member of an open electorate from all others, even of the same name. It is created at
	// the first start, so a member that has lost its disk is a different one.
	Identity string `json:",omitempty"`
	lease.State
}

// identify sets the identity of this member: the stored one or a new one. A committed member keeps its form, with an
// identity or without, as its file named it then.
func (n *node) identify(s *saved) error {
	c := n.config
	if c.Open() && s.Identity == "" && !s.Committed.Has(c.member()) {
		s.Identity = fmt.Sprintf("%08x", rand.Uint32())
		if err := s.write(c.State); err != nil {
			return err
		}
	}
	n.identity = s.Identity
	known := electorate.Member(c.Self, c.home(), s.Identity)
	if !s.Committed.Has(c.member()) && (c.Open() || s.Committed.Has(known)) {
		c.identity = s.Identity
	}
	return nil
}

func (s saved) write(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(file, append(b, '\n'))
}

// readState reads the state file. A missing file is an empty state. Invalid content is an error, because a member that
// forgets its votes can cause two holders.
func readState(file string) (s saved, err error) {
	if file == "" {
		return s, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && (s.Identity == "" || s.Committed.Number > 0) {
		err = s.Validate()
	}
	if err != nil {
		return s, fmt.Errorf("cannot read the committed electorate from %[2]s: %[1]w: with join, remove %[2]s; with members, first take this node out of the list on the others, and add it again afterwards", err, file)
	}
	return s, nil
}

// save stores the machine's state before any message that depends on it, and reports whether it is on disk. Until then,
// this member sends nothing. The mutex is held.
func (n *node) save() bool {
	if s, changed := n.machine.Unsaved(); changed {
		n.unsaved = &s
	}
	if n.unsaved == nil {
		return true
	}
	now := time.Now()
	if now.Before(n.saveAt) {
		return false
	}
	if err := (saved{n.identity, *n.unsaved}).write(n.config.State); err != nil {
		n.saveAt = now.Add(saveAgain)
		n.mute = fmt.Sprintf("the electorate cannot be written to disk, so this node sends nothing: %v", err)
		n.network.Warn(n.mute)
		return false
	}
	n.unsaved, n.mute, n.saveAt = nil, "", time.Time{}
	return true
}
