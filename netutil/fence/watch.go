package fence

import (
	"strings"

	"github.com/mdlayher/netlink"

	"github.com/herald-vip/herald/netutil/ruleset"
)

func (k *nft) Watch(changed chan<- struct{}) (stop func(), err error) {
	return ruleset.Watch(k.NetNS, changed, affectsTables)
}

// affectsTables reports whether Herald's tables may be incomplete after a change. Of
// elements it counts only those of gated addresses: openings change the others several
// times a second.
func affectsTables(m netlink.Message) bool {
	c, ok := ruleset.Read(m)
	gated := strings.HasPrefix(c.Set, string(vips)) || strings.HasPrefix(c.Set, string(services))
	return ok && c.Table == tableName && (gated || c.Set == "")
}
