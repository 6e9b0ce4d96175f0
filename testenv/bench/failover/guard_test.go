package failover

import (
	"io"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
)

// TestJudgeGuard checks that slow withdrawals are detected, and that a busy machine proves
// nothing.
func TestJudgeGuard(t *testing.T) {
	never := record.Never("").Value
	for name, tt := range map[string]struct {
		told, gone float64
		discarded  int
		want       Verdict
		fails      bool
	}{
		"as expected":      {told: 2, gone: 63, want: Passed},
		"slow to tell":     {told: 40, gone: 101, fails: true},
		"slow to be gone":  {told: 2, gone: 400, fails: true},
		"never":            {told: never, gone: never, fails: true},
		"busy":             {told: 2, gone: 63, discarded: 6, want: NoAnswer},
		"half of it, busy": {told: 2, gone: 63, discarded: 5, want: Passed},
	} {
		t.Run(name, func(t *testing.T) {
			r := record.New(io.Discard, nil)
			for i := range 10 {
				if i < tt.discarded {
					r.Discard("Guard", observe.ErrDisturbed)
					continue
				}
				r.Add("Guard", record.Value{Value: tt.told, Unit: guardTold}, record.Value{Value: tt.gone, Unit: guardGone}, record.Value{Value: 61, Unit: guardFloor})
			}
			got, err := judgeGuard(&r.Run, 10)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
