package pool

import (
	"fmt"
	"strings"
)

// Reason is the reason of a refusal, one CamelCase word for conditions and events.
type Reason string

// The reasons.
const (
	// AddressConflict: an address belongs to a claim that it cannot be shared with.
	AddressConflict Reason = "AddressConflict"
	// PoolExhausted: the pools that serve the claim have no free address.
	PoolExhausted Reason = "PoolExhausted"
	// NoPool: no pool serves the claim, or the requested pool does not.
	NoPool Reason = "NoPool"
	// AddressNotInPool: a requested address is in no pool that the claim may use.
	AddressNotInPool Reason = "AddressNotInPool"
	// InvalidClaim: the claim is malformed or contradicts itself.
	InvalidClaim Reason = "InvalidClaim"
)

// Refusal is the error of an [Allocator] that assigns no address. Its message is
// the same for the same situation, so that callers can detect repetitions.
type Refusal struct {
	Reason Reason
	// Message is one sentence: the fault and its cure.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// enumerate lists names of pools in a phrase.
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
