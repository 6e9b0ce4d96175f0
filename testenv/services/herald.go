package services

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/testenv/lab"
)

// Herald is Herald with its defaults. The first three nodes vote; all take part in
// assigning addresses.
type Herald struct {
	// Binary is the path of herald.
	Binary string
	// CRDs is the folder of Herald's definitions, manifests/crds.
	CRDs string
	// Edit changes a node's configuration file; may be nil.
	Edit func(node, file string) string
}

// Name returns "herald".
func (h *Herald) Name() string { return "herald" }

// Configure writes each node's configuration and the key of the election.
func (h *Herald) Configure(l *Lab) error {
	key, err := election.NewKey()
	if err != nil {
		return err
	}
	for _, node := range l.Members() {
		file := h.file(l, node)
		if h.Edit != nil {
			file = h.Edit(node, file)
		}
		if err := os.WriteFile(filepath.Join(l.own(node), "herald.yaml"), []byte(file), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.own(node), "gossip.key"), []byte(key), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// file returns the configuration of a node.
func (h *Herald) file(l *Lab, node string) string {
	var voters []string
	for _, m := range l.Members()[:min(3, len(l.Members()))] {
		voters = append(voters, fmt.Sprintf(`%s: "%s:7946"`, m, l.Address(m)))
	}
	return fmt.Sprintf(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: %s
services:
  kubeconfig: /etc/herald/kubeconfig
bgp:
  asn: %d
  peers:
  - {address: %s, asn: %d, families: [ipv4, ipv6]}
election:
  bind: %s:7946
  members: {%s}
  keyFile: /etc/herald/gossip.key
`, node, NodeASN, RouterAddress, RouterASN, l.Address(node), strings.Join(voters, ", "))
}

// Speaker returns the image of "herald run".
func (h *Herald) Speaker(*Lab, string) lab.Image {
	return lab.Binary(h.Binary, "run", "--config", "/etc/herald/herald.yaml")
}

// Controller returns nil: the speakers include the address writer.
func (h *Herald) Controller(*Lab) lab.Image { return nil }

// Install creates Herald's kinds, and a pool for each way of announcing.
func (h *Herald) Install(ctx context.Context, l *Lab) error {
	files, err := filepath.Glob(filepath.Join(h.CRDs, "*.yaml"))
	if err != nil {
		return err
	}
	if err := l.API.Define(ctx, files...); err != nil {
		return err
	}
	for name, spec := range map[string]string{
		PoolBGP: fmt.Sprintf("{addresses: [%s], autoAssign: false, bgp: {}}", ByBGP),
		PoolARP: fmt.Sprintf("{addresses: [%s], autoAssign: false, arp: {}}", ByARP),
	} {
		pool := fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: %s}, spec: %s}", name, spec)
		if err := l.API.Create(ctx, "/apis/herald.dev/v1alpha1/addresspools", []byte(pool)); err != nil {
			return err
		}
	}
	return nil
}
