package migrate

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fuzz converts whatever comes, twice, with and without members.
func fuzz(f *testing.F, folder string, convert func([]byte, Options) (*Result, error), seeds ...string) {
	for _, file := range inputsOf(f, folder) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		o := Options{File: "f", ConfigID: "m1"}
		r, err := convert([]byte(input), o)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		if !strings.Contains(input, "s3cret") { // it may be a name here
			checkHonest(t, r)
		}
		o.Members = map[string]netip.AddrPort{"m1": netip.MustParseAddrPort("10.3.0.1:7946")}
		o.KeyFile = "/key"
		with, err := convert([]byte(input), o)
		if err != nil {
			t.Fatalf("read without members, refused with them: %v", err)
		}
		again, err := convert([]byte(input), o)
		if err != nil || cmp.Diff(with, again) != "" {
			t.Errorf("the same input becomes something else the second time: %v\n%s", err, cmp.Diff(with, again))
		}
		if !strings.Contains(input, "s3cret") {
			checkHonest(t, with)
		}
	})
}

func inputsOf(f *testing.F, folder string) []string {
	entries, err := os.ReadDir("testdata/" + folder)
	if err != nil {
		f.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		files = append(files, "testdata/"+folder+"/"+e.Name())
	}
	return files
}

// Whatever the manifest or listing, it is converted honestly or refused, never a panic.
func FuzzKubeVIP(f *testing.F) {
	fuzz(f, "kube-vip", KubeVIP, pod, "vip_arp=true\ncp_enable=1\naddress=a,b", "- - -", "a: &a [*a]", "spec: &s {containers: [*s]}",
		"bgp_enable=1\ncp_enable=1\naddress=::1\nbgp_peers=[::1]:1:::::1;1;1;1,unnumbered:a:2,[x]:1\nmpbgp_nexthop=fixed\nmpbgp_ipv4=x")
}

// The same of keepalived.conf.
func FuzzKeepalived(f *testing.F) {
	fuzz(f, "keepalived", Keepalived, "{", "}", "a {{ } b", `"`, `a "b\`, "$A=${A}", "$A=\\", "@m1 @^m2 a", "~SEQ(a, 1)", "virtual_ipaddress { }",
		"vrrp_script a { script \"curl -o\" }\nvrrp_instance a { track_script { a } virtual_ipaddress { ::1 } }")
}

// Whatever the command, it becomes a check that Herald takes, or none.
func FuzzScript(f *testing.F) {
	for _, s := range []string{
		"curl -sf http://127.0.0.1/", "curl -o", "curl http://u:p@h/", "nc -z h 1", "nc -w", "</dev/tcp/::1/1", "bash -c '</dev/tcp/a/1'", "check_apiserver.sh", "sh -c", "curl -k https://[::1", "curl --cacert",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		s, ok := readScript(command)
		if !ok {
			return
		}
		if (s.check.HTTP == nil) == (s.check.TCP == nil) {
			t.Errorf("neither http nor tcp, or both: %+v", s.check)
		}
	})
}

// Whatever is taken for MetalLB's resources, it is converted honestly or refused, and twice the same.
func FuzzMetalLB(f *testing.F) {
	for _, file := range inputsOf(f, "metallb") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("spec: &a {spec: *a}")
	f.Add("kind: IPAddressPool\nspec: {addresses: [1.2.3.4/0, ::/0, 1-2, 10.0.0.9-10.0.0.1]}")
	f.Add("kind: ConfigMap\ndata: {config: \"peers: [{my-asn: x}]\\naddress-pools: [[]]\"}")
	f.Add("kind: BGPPeer\nspec: {peerAddress: fe80::1, myASN: 4294967295, bfdProfile: x, holdTime: -1s}")
	f.Fuzz(func(t *testing.T, input string) {
		files := []File{{"f", []byte(input)}}
		r, err := MetalLB(files, Options{File: "f"})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		if !strings.Contains(input, "s3cret") { // it may be a name here
			honest(t, r)
		}
		again, err := MetalLB(files, Options{File: "f"})
		if err != nil || cmp.Diff(r, again) != "" {
			t.Errorf("the same input becomes something else the second time: %v\n%s", err, cmp.Diff(r, again))
		}
	})
}
