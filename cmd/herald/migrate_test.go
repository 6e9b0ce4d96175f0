package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/testenv/must"
)

const keepalivedConf = `vrrp_instance VI_1 {
  unicast_src_ip 10.3.0.1
  unicast_peer { 10.3.0.2 }
  virtual_ipaddress { 10.3.0.100 }
  track_script { api }
  state MASTER
}
vrrp_script api { script "curl -f https://127.0.0.1:6443/readyz" }
`

// The configuration goes to standard output, the notes to standard error, and
// the exit code says whether something is left to do.
func TestMigrate(t *testing.T) {
	for _, test := range []struct {
		name, input string
		args        []string
		code        int
		out, err    string
	}{
		{"complete", keepalivedConf, []string{"keepalived", "FILE", "--key-file", "/etc/herald/key"}, 0, "keyFile: /etc/herald/key", "FILE:6: state: "},
		{"by hand", keepalivedConf, []string{"keepalived", "FILE"}, exitByHand, "keyFile: /etc/herald/gossip.key", "election.keyFile: to do: "},
		{"members", keepalivedConf, []string{"keepalived", "FILE", "--key-file=/k", "--member", "a=10.3.0.1", "--member=b=10.3.0.2:9"}, 0, `b: "10.3.0.2:9"`, ""},
		{"nothing to announce", "global_defs { }\n", []string{"keepalived", "FILE"}, exitFailed, "", "no vrrp_instance"},
		{"another configuration identifier", "@x " + keepalivedConf, []string{"keepalived", "FILE", "--config-id", "x"}, exitByHand, "vi-1", "FILE:6"},
		{"kube-vip", "cp_enable=true\nbgp_enable=true\naddress=10.99.0.10\nbgp_peers=10.0.0.1:65001\n", []string{"kube-vip", "FILE"}, 0, "asn: 65001", ""},
		{"ExaBGP's", "neighbor 10.0.0.1 { local-as 1; peer-as 2; api { processes [ a ]; } }\nprocess a { run healthcheck --cmd 'nc -z 127.0.0.1 53' --ip 10.3.0.1; }\n", []string{"exabgp", "FILE"}, 0, "onFailure: demote", ""},
		{"several files", "[a]\nip_prefix = 10.3.0.1\ncheck_cmd = /bin/a\ncheck_disabled = no\n", []string{"anycast-healthchecker", "FILE", "FILE"}, exitByHand, "announce: kernel", "have BIRD read table 201"},
		{"binary", "\x00", []string{"kube-vip", "FILE"}, exitFailed, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "in")
			must.Do(t, os.WriteFile(file, []byte(test.input), 0o600))
			for i, a := range test.args {
				test.args[i] = strings.ReplaceAll(a, "FILE", file)
			}
			code, out, stderr := runMigrate(t, test.args)
			if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(stderr, strings.ReplaceAll(test.err, "FILE", file)) {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, out, stderr)
			}
		})
	}
}

const metalLBPools = `kind: IPAddressPool
metadata: {name: public}
spec: {addresses: [198.51.100.0/24]}
---
kind: BGPAdvertisement
`

const metalLBService = `kind: Service
metadata: {name: shop, namespace: web, annotations: {metallb.io/address-pool: public}}
spec: {type: LoadBalancer, loadBalancerClass: metallb}
`

// Files of MetalLB's belong together, and commands for Services are a mode of their own.
func TestMigrateMetalLB(t *testing.T) {
	for _, test := range []struct {
		name, first, second string
		args                []string
		code                int
		out, err            string
	}{
		{"complete", metalLBPools, "", []string{"FIRST"}, 0, "kind: AddressPool\nmetadata:\n  name: public", ""},
		{"Services besides", metalLBPools, metalLBService, []string{"FIRST", "SECOND", "--lb-class=metallb", "--to=vips"}, exitByHand, "namespace: vips", "1 of 1 Services have annotations of MetalLB"},
		{"commands", metalLBPools, metalLBService, []string{"--services", "--lb-class", "metallb", "SECOND", "FIRST"}, 0, "kubectl -n web annotate --overwrite service shop herald.dev/pool=public\n", ""},
		{"Services alone", "", metalLBService, []string{"--lb-class=metallb", "SECOND"}, exitByHand, "", "1 of 1 Services"},
		{"another's Services", metalLBPools, metalLBService, []string{"--services", "FIRST", "SECOND"}, 0, "", ""},
		{"nothing", "kind: Pod\n", "", []string{"FIRST"}, exitFailed, "", "these files have no IPAddressPool"},
		{"no YAML", "a: b: c\n", metalLBPools, []string{"SECOND", "FIRST"}, exitFailed, "", "FIRST: line 1: not valid YAML"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			places := strings.NewReplacer("FIRST", filepath.Join(dir, "1"), "SECOND", filepath.Join(dir, "2"))
			for i, input := range []string{test.first, test.second} {
				must.Do(t, os.WriteFile(filepath.Join(dir, string(rune('1'+i))), []byte(input), 0o600))
			}
			args := []string{"metallb"}
			for _, a := range test.args {
				args = append(args, places.Replace(a))
			}
			code, out, stderr := runMigrate(t, args)
			if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(stderr, places.Replace(test.err)) {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, out, stderr)
			}
		})
	}
}

// runMigrate is `herald migrate` with args.
func runMigrate(t *testing.T, args []string) (code int, out, stderr string) {
	t.Helper()
	var cli struct {
		Migrate migrateCommand `cmd:""`
	}
	command, err := kong.Must(&cli).Parse(append([]string{"migrate"}, args...))
	must.Do(t, err)
	out = captured(t, &os.Stdout, func() {
		stderr = captured(t, &os.Stderr, func() {
			if err := command.Run(); err != nil {
				code = report(err)
			}
		})
	})
	return code, out, stderr
}

// captured is what f writes to *to.
func captured(t *testing.T, dst **os.File, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must.Do(t, err)
	defer file.Close()
	before := *dst
	*dst = file
	defer func() { *dst = before }()
	f()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(file)
	must.Do(t, err)
	return string(data)
}

// A member without an address, or with two, is wrong usage.
func TestMigrateUsage(t *testing.T) {
	for _, test := range []struct {
		members []string
		want    string
	}{
		{[]string{"--member", "m1=somewhere"}, "--member m1=somewhere: want NAME=ADDRESS"},
		{[]string{"--member", "10.3.0.1"}, "--member 10.3.0.1: want NAME=ADDRESS"},
		{[]string{"--member", "m1=10.3.0.1", "--member", "m1=10.3.0.2"}, "--member m1 is there twice"},
	} {
		var cli struct {
			Migrate migrateCommand `cmd:""`
		}
		_, err := kong.Must(&cli).Parse(append([]string{"migrate", "kube-vip", "f"}, test.members...))
		var parse *kong.ParseError
		if !errors.As(err, &parse) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %s", test.members, err, test.want)
		}
	}
}
