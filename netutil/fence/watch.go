package fence

import (
	"strings"

	"github.com/mdlayher/netlink"

	"github.com/herald-vip/herald/netutil/ruleset"
)

func (k *nft) Watch(changed chan<- struct{}) (stop func(), err error) {
	return ruleset.Watch(k.NetNS, changed, affectsTables)
}

// affectsTables reports whether the fence's tables may be incomplete after a change. It ignores
// elements of locks: openings change them several times a second.
func affectsTables(m netlink.Message) bool {
	c, ok := ruleset.Read(m)
	filter := strings.HasPrefix(c.Set, string(vips)) || strings.HasPrefix(c.Set, string(services))
	return ok && c.Table == tableName && (filter || c.Set == "")
}
