package config

import (
	"strconv"
	"strings"
)

// path names a field from the root of the file: bgp.peers[0].address. The root is empty.
type path string

func (p path) field(name string) path {
	if p == "" {
		return path(name)
	}
	return p + "." + path(name)
}

func (p path) item(i int) path {
	return p + path("["+strconv.Itoa(i)+"]")
}

// parent is what contains p; the root contains itself.
func (p path) parent() path {
	return p[:max(strings.LastIndexAny(string(p), ".["), 0)]
}
