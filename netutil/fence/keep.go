package fence

import (
	"context"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// round is the time between two checks of the tables without a reported change.
const round = time.Second

// Keep puts the tables back after other programs change them, until ctx is done. It checks them when
// the kernel reports a change, and every second.
//
// Putting the tables back may close addresses, so Keep then calls closed for the caller to open them again, also if
// another method put them back. It also calls closed before it checks a reported change.
func (f *Fence) Keep(ctx context.Context, closed func()) {
	var restored uint64
	f.keeper.Run(ctx, f.log, ruleset.Rounds{
		Every: round, Watch: f.kernel.Watch,
		Failed: "cannot check or put back the fence's tables", Recovered: "the fence's tables are intact again",
		Round: func(changed bool) error {
			if changed {
				closed() // an opening puts the tables back itself, without closing addresses in between
			}
			err := f.Check()
			if now := f.timesRestored(); now != restored {
				restored = now
				closed()
			}
			return err
		},
	})
}

func (k *nft) Watch(changed chan<- struct{}) (stop func(), err error) {
	return k.Socket.Watch(changed, tableName)
}
