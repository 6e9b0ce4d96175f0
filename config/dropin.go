package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// dropIn is the content of a drop-in file, which adds to the configuration.
type dropIn struct {
	VIPs   []VIP          `yaml:"vips"`
	Checks []health.Check `yaml:"checks"`
}

// dropInsOf returns the folder of the drop-ins to the configuration file at path, in the form for [ReadFile].
func dropInsOf(path string) string { return path + ".d/" }

// addDropIns adds the content of the drop-ins in folder. It returns false if validating the result would mislead.
func (c *Config) addDropIns(r *yaml.Report, folder string, read func(string) ([]byte, error)) bool {
	list, err := read(folder)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("", "%v", err)
		}
		return true
	}
	whole := true
	for _, name := range Names(list) {
		part, add := yaml.NewReport(name), dropIn{}
		if data, err := read(name); err != nil {
			part.Errorf("", "%v", err)
			whole = false
		} else if !yaml.Decode(part, data, &add) {
			whole = false
		}
		r.Append(part, map[yaml.Path]int{"vips": len(c.VIPs), "checks": len(c.Checks)})
		c.VIPs, c.Checks = append(c.VIPs, add.VIPs...), append(c.Checks, add.Checks...)
	}
	return whole
}

// list returns the paths of the drop-ins in folder: the files *.yaml that are not hidden, in order, each terminated by a zero byte.
func list(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder) // in order
	var out []byte
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".yaml") && name[0] != '.' {
			out = append(append(out, filepath.Join(folder, name)...), 0)
		}
	}
	return out, err
}

// Names returns the paths that [ReadFile] found in a folder.
func Names(list []byte) []string {
	return strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 })
}
