// Package seconds has durations that are numbers of seconds in JSON.
package seconds

import (
	"encoding/json"
	"math"
	"time"
)

// Duration is a [time.Duration] that is a number of seconds in JSON.
type Duration time.Duration

// Seconds returns d in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// String formats d as [time.Duration.String] does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON implements [json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.Seconds()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s float64
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*d = Duration(math.Round(s * float64(time.Second)))
	return nil
}
