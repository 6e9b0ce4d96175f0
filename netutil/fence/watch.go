package fence

import (
	"strings"

	"github.com/mdlayher/netlink"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// watch has the kernel tell of changes, each of which it passes on to told unless
// there is one to be looked at already. stop returns when nothing of it is left.
func (k *nft) watch(told chan<- struct{}) (stop func(), err error) {
	return ruleset.Watch(k.NetNS, told, touches)
}

// touches is whether a message tells of a change after which Herald's tables may be
// incomplete. Openings are not, which come several times a second: of all the
// elements only those of what is gated count.
func touches(m netlink.Message) bool {
	c, ok := ruleset.Read(m)
	gated := strings.HasPrefix(c.Set, string(vips)) || strings.HasPrefix(c.Set, string(services))
	return ok && c.Table == tableName && (gated || c.Set == "")
}
