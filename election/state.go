package election

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/herald-vip/herald/election/disk"
	"github.com/herald-vip/herald/election/lease"
)

// saveAgain is how long after a failure the state is written once more.
const saveAgain = time.Second

// readState reads what an earlier process of this member has left to remember. A file that is not there is nothing; one
// that says nothing sensible is an error, as a member that forgets what it agreed to can make two holders.
func readState(file string) (s lease.State, err error) {
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
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return s, fmt.Errorf("the electorate that this node agreed to cannot be read from %[2]s: %[1]w: take this node out of the members on the others, remove %[2]s, and add the node again", err, file)
	}
	return s, nil
}

// save writes what the machine must remember, before anything leaves that was made after that, and reports whether it
// is on the disk. Until it is, this member says nothing. The mutex is held.
func (n *node) save() bool {
	if s, changed := n.machine.Unsaved(); changed {
		n.unsaved = &s
	}
	if n.unsaved == nil || n.config.State == "" {
		n.unsaved = nil
		return true
	}
	now := time.Now()
	if now.Before(n.saveAt) {
		return false
	}
	b, err := json.MarshalIndent(n.unsaved, "", "  ")
	if err == nil {
		err = disk.Replace(n.config.State, append(b, '\n'))
	}
	if err != nil {
		n.saveAt = now.Add(saveAgain)
		n.mute = fmt.Sprintf("what this node agreed to cannot be written down, so it says nothing: %v", err)
		n.network.Warn(n.mute)
		return false
	}
	n.unsaved, n.mute, n.saveAt = nil, "", time.Time{}
	return true
}
