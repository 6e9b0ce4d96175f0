package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Publish writes the results into a folder, named by the day of the run:
// DAY.json, DAY.md with the tables, and DAY.svg with the chart. If page is not
// empty, it is a Markdown file in which what is between the lines
// [BeginResults] and [EndResults] is replaced by the tables and the chart.
func (r *Results) Publish(dir, page string) error {
	return publish(dir, r.Began, map[string]func(io.Writer) error{".json": r.WriteJSON, ".md": r.WriteTable, ".svg": r.WriteSVG}, page, r.fillPage)
}

// publish writes the files of a run, by suffix, into a folder, named by its day, and, if
// page is not empty, has fill put the results into that.
func publish(dir string, began time.Time, files map[string]func(io.Writer) error, page string, fill func(page, files string) (string, error)) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	day := filepath.Join(dir, began.Format(time.DateOnly))
	for suffix, write := range files {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(day+suffix, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	return intoPage(page, day, fill)
}

// intoPage has fill write what it makes of a Markdown file into it; files are the path
// of the run's files without a suffix.
func intoPage(page, files string, fill func(page, files string) (string, error)) error {
	page, err := filepath.Abs(page)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(filepath.Dir(page), files)
	if err != nil {
		return err
	}
	filled, err := fill(string(text), relative)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(filled), 0o644)
}

// The lines around the results in a page.
const (
	BeginResults = "<!-- results: made by herald-testenv bench -->"
	EndResults   = "<!-- end of results -->"
)

// fillPage puts the results into the page; files are the path of the run's
// files without a suffix.
func (r *Results) fillPage(page, files string) (string, error) {
	chartAndTable := func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "![How long a fault is felt, by fault, speaker and router](%s.svg)\n\n", files); err != nil {
			return err
		}
		return r.WriteTable(w)
	}
	return r.fill(page, "[All trials]("+files+".json)", chartAndTable, "Herald", "FRR", "BIRD", "keepalived")
}

// around is what a page has before the results and after them, the marks included.
func around(page string) (before, after string, err error) {
	before, rest, ok := strings.Cut(page, BeginResults)
	_, after, closed := strings.Cut(rest, EndResults)
	if !ok || !closed {
		return "", "", errors.New("want the lines " + BeginResults + " and " + EndResults)
	}
	return before + BeginResults + "\n\n", "\n" + EndResults + after, nil
}
