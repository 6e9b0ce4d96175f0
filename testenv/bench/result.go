package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Results are what a run measured. They marshal to JSON, durations in
// nanoseconds, and everything that is told of a run is made from them.
type Results struct {
	Setting
	// Trials are in the order in which they were made.
	Trials []Trial `json:"trials"`
}

// Trial is one fault as one router and the client behind it saw it.
type Trial struct {
	// Speaker, Fault and Router name what was measured. The router of a flat
	// layer 2 is [NoRouter].
	Speaker string `json:"speaker"`
	Fault   string `json:"fault"`
	Router  string `json:"router"`
	// Planned says that the fault is done on purpose, and that the client's
	// connections were counted until all was as before.
	Planned bool `json:"planned,omitempty"`
	// Number counts the trials of one fault on one speaker, from 1. Routers that
	// saw the same fault have the same number.
	Number int `json:"number"`
	// Master is where the fault was made.
	Master string `json:"master"`

	// Told is the time from the fault to the first that the router heard of it
	// on the BGP session, and Word what that was; nil if it heard nothing.
	Told *time.Duration `json:"toldNs,omitempty"`
	Word Word           `json:"word,omitempty"`
	// Gone is the time from the fault until the router's kernel no longer had a
	// route to the master; nil if it still had when Limit was over.
	Gone  *time.Duration `json:"goneNs,omitempty"`
	Limit time.Duration  `json:"limitNs"`
	// Back is the time from the end of the fault until the route, and BFD where
	// there is any, was back; nil if it was not measured.
	Back *time.Duration `json:"backNs,omitempty"`

	// Attempts and Failed count the client's connections, those of Starved left out.
	Attempts int `json:"attempts"`
	Failed   int `json:"failed"`
	// Outage is the time from the first failed connection to the first good one
	// after the last failed one, 0 if none failed; where the fault and its end
	// have an outage each, the longer. Open says that it went on when the trial's
	// Limit was over.
	Outage time.Duration `json:"outageNs"`
	Open   bool          `json:"open,omitempty"`
	// Those that follow are of a flat layer 2. Its clients are two, one for each
	// family: their connections are added up, and the outages are the longer ones.

	// Taken is the time from the fault until another master had claimed the VIP on
	// the wire; nil if none had when Limit was over.
	Taken *time.Duration `json:"takenNs,omitempty"`
	// After is the outage after the end of an unplanned fault; nil if it was not measured.
	After *time.Duration `json:"afterNs,omitempty"`
	// Holders is how many masters had the VIP at the same time, Split for how
	// long: as an observer on the segment saw it, from the fault to the end of
	// the trial.
	Holders int           `json:"holders,omitempty"`
	Split   time.Duration `json:"splitNs,omitempty"`
	// Starved counts the attempts that say nothing, since the prober itself did
	// not get to run; Late is the longest delay of its schedule. Both tell how busy
	// the machine was with other things.
	Starved int           `json:"starved,omitempty"`
	Late    time.Duration `json:"lateNs"`
}

// NoRouter is the router of a flat layer 2.
const NoRouter = "layer 2"

// Floor is the time that the router itself took, from the withdrawal's arrival
// to the change of its kernel route. It is known only where a plain withdrawal
// was the first that the router heard.
func (t Trial) Floor() (time.Duration, bool) {
	if t.Told == nil || t.Gone == nil || t.Word != Withdrawal || *t.Gone < *t.Told {
		return 0, false
	}
	return *t.Gone - *t.Told, true
}

// WriteJSON writes the results such that ReadJSON reads them, a trial a line.
func (r *Results) WriteJSON(w io.Writer) error { return writeJSON(w, r, `{"speaker":`) }

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(in io.Reader) (*Results, error) { return readJSON[Results](in, "a benchmark") }

// writeJSON writes results, each object that begins like this on a line of its own.
func writeJSON(w io.Writer, results any, begin string) error {
	text, err := json.Marshal(results)
	if err != nil {
		return err
	}
	// Within a string the quotes would be escaped.
	text = bytes.ReplaceAll(text, []byte(begin), []byte("\n"+begin))
	_, err = w.Write(append(text, '\n'))
	return err
}

// readJSON reads what writeJSON wrote; of says what that was, for the error.
func readJSON[T any](in io.Reader, of string) (*T, error) {
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	r := new(T)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("these are no results of %s: %w", of, err)
	}
	return r, nil
}
