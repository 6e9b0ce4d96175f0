package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const cast = `{"version": 2, "width": 80, "height": 24}
[0.1, "o", "one\r\n\u001b[32mtw"]
[0.2, "o", "o\u001b[0m <&>\r\nfoot\r\n"]
[1.5, "i", "typed"]
[2.0, "o", "\u001b[1A\u001b["]
[2.1, "o", "Jthree\r\nfoot\r\n"]
`

func TestPictures(t *testing.T) {
	pictures, err := watch(strings.NewReader(cast))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pictures {
		for _, line := range p.lines {
			got = append(got, text(line))
		}
		got = append(got, "--")
	}
	if s, want := strings.Join(got, "|"), "one|two <&>|foot|--|one|two <&>|three|foot|--"; s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	if pictures[0].at != 0.1 || pictures[1].at != 2.0 {
		t.Errorf("at %v and %v", pictures[0].at, pictures[1].at)
	}
	var svg bytes.Buffer
	if err := write(&svg, pictures); err != nil {
		t.Fatal(err)
	}
	if want := `<tspan class="c32">two</tspan> &lt;&amp;&gt;`; !strings.Contains(svg.String(), want) {
		t.Errorf("no %s in:\n%s", want, &svg)
	}
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoRecording(t *testing.T) {
	for _, s := range []string{"", "{}\n", "{}\nnot JSON\n"} {
		if p, err := watch(strings.NewReader(s)); err == nil {
			t.Errorf("%q: %d pictures", s, len(p))
		}
	}
}
