package yaml

import (
	"strconv"
	"strings"
)

// Path names a field from the root of the file: bgp.peers[0].address. The root is empty.
type Path string

// Field returns the path of a field of p.
func (p Path) Field(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + "." + Path(name)
}

// Item returns the path of an item of p.
func (p Path) Item(i int) Path {
	return p + Path("["+strconv.Itoa(i)+"]")
}

// Parent returns the path that contains p; the root contains itself.
func (p Path) Parent() Path {
	return p[:max(strings.LastIndexAny(string(p), ".["), 0)]
}
