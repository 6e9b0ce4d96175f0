package page

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/testenv/bench/record"
)

// A figure in a document is followed by a comment with its source:
//
//	**68 ms**<!-- 2026-11-25-failover.txt Fault/fault=apiserver_killed/speaker=herald/router=FRR ms/gone -->
//
// It names the file of a run, the results, and the unit of their values. The median
// counts, unless max or sum follows the unit.
var figures = regexp.MustCompile(`([^|\n]*?)<!-- (\S+\.txt) (\S+) (\S+)(?: (max|sum))? -->`)

// shown is a number and its unit at the end of a text.
var shown = regexp.MustCompile(`([0-9][0-9,]*(?:\.[0-9]+)?)(?: ?(ms|s|MB|%|µs))?\W*$`)

// Check compares the figures of a document with their runs in a folder, and returns
// the number of figures.
func Check(document, folder string) (n int, err error) {
	for _, match := range figures.FindAllStringSubmatch(document, -1) {
		n++
		if e := check(match[1], folder, match[2], match[3], match[4], match[5]); e != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", match[0], e))
		}
	}
	return n, err
}

func check(text, folder, file, name, unit, statistic string) error {
	run, err := record.Read(filepath.Join(folder, file))
	if err != nil {
		return err
	}
	sample := run.Sample(unit, func(r record.Result) bool { return r.Name == name })
	if len(sample) == 0 {
		return errors.New("the file has no such values")
	}
	measured := sample.Median()
	switch statistic {
	case "max":
		measured = slices.Max(sample)
	case "sum":
		measured = sample.Sum()
	}
	found := shown.FindStringSubmatch(text)
	if found == nil { // words, like "never" and "no connection lost"
		if measured != 0 {
			return fmt.Errorf("the file says %g", measured)
		}
		return nil
	}
	digits := strings.ReplaceAll(found[1], ",", "")
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return err
	}
	_, decimals, _ := strings.Cut(digits, ".")
	step := math.Pow10(-len(decimals))
	if found[2] == "s" && strings.HasPrefix(unit, "ms") {
		value, step = value*1000, step*1000
	}
	if math.Abs(value-measured) > step/2*1.001 {
		return fmt.Errorf("the file says %.4g", measured)
	}
	return nil
}
