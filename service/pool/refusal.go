package pool

import (
	"fmt"
	"strings"
)

// Reason is why a claim is refused, as one word for conditions and events.
type Reason string

// The reasons.
const (
	// AddressConflict: an address belongs to a claim that it cannot be shared with.
	AddressConflict Reason = "AddressConflict"
	// PoolExhausted: the pools that serve the claim have no free address.
	PoolExhausted Reason = "PoolExhausted"
	// NoPool: no pool serves the claim, or the one that it asks for does not.
	NoPool Reason = "NoPool"
	// AddressNotInPool: an address asked for is in no pool that the claim may use.
	AddressNotInPool Reason = "AddressNotInPool"
	// InvalidClaim: the claim contradicts itself.
	InvalidClaim Reason = "InvalidClaim"
)

// Refusal is the error of an [Allocator] that does not give an address. The same
// situation has the same words, so that the caller can tell what it has said.
type Refusal struct {
	Reason Reason
	// Message is one sentence that says what is wrong and what to do.
	Message string
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// enumerate lists names as prose.
func enumerate(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	if len(quoted) == 1 {
		return "pool " + quoted[0]
	}
	last := len(quoted) - 1
	return "pools " + strings.Join(quoted[:last], ", ") + " and " + quoted[last]
}
