package config_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/testenv/must"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(content), 0o600))
}

// withPassword writes the base with a password file, and the password unless it is empty, into a new folder.
func withPassword(t *testing.T, content string) (configFile, passwordFile string) {
	t.Helper()
	dir := t.TempDir()
	configFile, passwordFile = filepath.Join(dir, "herald.yaml"), filepath.Join(dir, "password")
	write(t, configFile, replace(t, "asn: 64500", "asn: 64500\n    passwordFile: "+passwordFile))
	write(t, passwordFile, content)
	return configFile, passwordFile
}

func TestLoadPassword(t *testing.T) {
	long := strings.Repeat("p", 80)
	for content, want := range map[string]string{
		"secret\n":  "secret",
		"secret":    "secret",
		" secret ":  " secret ",
		long + "\n": long,
	} {
		file, _ := withPassword(t, content)
		c, err := config.Load(file)
		if err != nil {
			t.Errorf("password %q: %v", content, err)
		} else if got := c.BGP.Peers[0].Password; got != want {
			t.Errorf("password of %q is %q, want %q", content, got, want)
		}
	}
}

func TestLoadRefusesPassword(t *testing.T) {
	for content, want := range map[string]string{
		"":                        "the password is empty: give one",
		"\n":                      "the password is empty: give one",
		"secret\n\n":              "there is more than one line: keep only the password",
		"secret\r\n":              "there is more than one line: keep only the password",
		strings.Repeat("p", 81):   "the password has 81 bytes: TCP MD5 allows at most 80",
		"sec\x00ret":              "there is more than one line: keep only the password",
		strings.Repeat("€", 80):   "the password has 240 bytes: TCP MD5 allows at most 80",
		strings.Repeat("p", 2e+6): "the password has 1048577 bytes: TCP MD5 allows at most 80",
	} {
		file, _ := withPassword(t, content)
		_, err := config.Load(file)
		if want := file + ":17:19: bgp.peers[0].passwordFile: " + want; err == nil || err.Error() != want {
			t.Errorf("error is\n%v\nwant\n%s", err, want)
		}
	}
}

func TestLoadKeys(t *testing.T) {
	a, b := key(1, 16), key(2, 32)
	load := func(content string) ([][]byte, error) {
		dir := t.TempDir()
		file, keys := filepath.Join(dir, "herald.yaml"), filepath.Join(dir, "gossip.key")
		write(t, file, strings.Replace(flat, "/etc/herald/gossip.key", keys, 1))
		write(t, keys, content)
		c, err := config.Load(file)
		if err != nil {
			return nil, err
		}
		return c.Election.Keys, nil
	}
	for content, want := range map[string][][]byte{
		a + "\n":                     {raw(1, 16)},
		key(1, 24):                   {raw(1, 24)},
		b + "\r\n":                   {raw(2, 32)},
		"# new\n" + b + "\n\n" + a:   {raw(2, 32), raw(1, 16)},
		b + "\n  # old\n " + a + " ": {raw(2, 32), raw(1, 16)},
	} {
		got, err := load(content)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("keys %q: %v (-want +got):\n%s", content, err, diff)
		}
	}
	for content, want := range map[string]string{
		"":                                  "the file has no key: write one with herald keygen",
		"# none\n\n":                        "the file has no key: write one with herald keygen",
		a + "\nsecret\n":                    "line 2 is not base64: write the file with herald keygen",
		a + " " + b:                         "line 1 is not base64: write the file with herald keygen",
		"AAAAAAAAAAAAAAAAAAAAAB==":          "line 1 is not base64: write the file with herald keygen", // trailing bits that belong to no byte
		"\nc2hvcnQ=\n":                      "line 2 holds a key of 5 bytes, want 16, 24 or 32: write the file with herald keygen",
		"# one\n" + a + "\n" + b + "\n" + a: "line 4 repeats the key of line 2: remove it",
	} {
		if _, err := load(content); err == nil || !strings.HasSuffix(err.Error(), ":14:12: election.keyFile: "+want) {
			t.Errorf("keys %q: %v, want %s", content, err, want)
		}
	}
}

// raw is a key of n bytes; key is its line in a key file.
func raw(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func key(b byte, n int) string { return base64.StdEncoding.EncodeToString(raw(b, n)) }

func TestLoadSharedPassword(t *testing.T) {
	file, passwordFile := withPassword(t, "secret")
	content := must.Get[[]byte](t)(os.ReadFile(file))
	write(t, file, string(content)+"  - {interface: eth1, asn: 64500, passwordFile: "+passwordFile+"}\n")
	c, err := config.Load(file)
	must.Do(t, err)
	for _, peer := range c.BGP.Peers {
		if peer.Password != "secret" {
			t.Errorf("password of %s is %q, want secret", peer.Name(), peer.Password)
		}
	}
	write(t, passwordFile, "")
	_, err = config.Load(file)
	if err == nil || strings.Count(err.Error(), "the password is empty: give one") != 2 {
		t.Errorf("error is %v, want one for each peer", err)
	}
}

// Passwords are read even if the file has mistakes, so that all are reported at once.
func TestLoadReportsEverythingAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "herald.yaml")
	write(t, file, replace(t, "asn: 64500", "asn: 64500\n    passwordFile: "+dir+"/none\n    holdTime: 1s\n  - {asn: 64500, address: 10.0.1.253, passwordFile: "+dir+"}\n"))
	_, err := config.Load(file)
	var all config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("error is %v, want config.Errors", err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.Field+": "+e.Message)
	}
	want := []string{
		"bgp.peers[0].passwordFile: open " + dir + "/none: no such file or directory",
		"bgp.peers[0].holdTime: want 3s to 65535s, got 1s",
		"bgp.peers[1].passwordFile: read " + dir + ": is a directory",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// The files of checks may appear later, as nodes boot in any order.
func TestLoadWithoutFilesOfChecks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "herald.yaml")
	write(t, file, replace(t, `readyz"}`, `readyz", caFile: /nowhere/ca, clientCertFile: /nowhere/c, clientKeyFile: /nowhere/k, tokenFile: /nowhere/t}`))
	if _, err := config.Load(file); err != nil {
		t.Error(err)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "herald.yaml"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, want that the file does not exist", err)
	}
}

func TestLoadHostname(t *testing.T) {
	hostname, err := os.Hostname()
	must.Do(t, err)
	want, wantErr := config.Parse("f", []byte(replace(t, "nodeName: m1\n", "")), config.Hostname(hostname))
	file := filepath.Join(t.TempDir(), "herald.yaml")
	write(t, file, replace(t, "nodeName: m1\n", ""))
	got, err := config.Load(file)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error is %v, want %v", err, wantErr)
	}
	if err == nil && got.NodeName != want.NodeName {
		t.Errorf("node name is %q, want %q", got.NodeName, want.NodeName)
	}
}

// Every default and limit in a tag is a value of its field's type; another text would count as 0.
func TestTags(t *testing.T) {
	seen := 0
	var read func(reflect.Type)
	read = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			read(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		for _, f := range yaml.FieldsOf(typ, "yaml") {
			field := typ.FieldByIndex(f.Index).Type
			read(field)
			if field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
				field = field.Elem()
			}
			if field == reflect.TypeFor[metav1.Duration]() {
				field = reflect.TypeFor[time.Duration]()
			}
			texts := []string{f.Default}
			if least, most, limited := strings.Cut(f.Want, " to "); limited {
				texts = append(texts, least, most)
			}
			for _, text := range texts {
				var err error
				switch {
				case text == "" || field.Kind() == reflect.String:
					continue
				case field == reflect.TypeFor[time.Duration]():
					_, err = time.ParseDuration(text)
				case field.Kind() == reflect.Bool:
					_, err = strconv.ParseBool(text)
				case field.Kind() >= reflect.Uint && field.Kind() <= reflect.Uint64:
					_, err = strconv.ParseUint(text, 10, field.Bits())
				default:
					_, err = strconv.ParseInt(text, 10, field.Bits())
				}
				if seen++; err != nil {
					t.Errorf("%s.%s: %v", typ, f.Name, err)
				}
			}
		}
	}
	read(reflect.TypeFor[config.Config]())
	if seen < 40 {
		t.Errorf("%d values in tags were read, want 40 at least", seen)
	}
}
