package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
		err := errors.Join(os.WriteFile(l.own(node)+"/herald.yaml", []byte(file), 0o644), os.WriteFile(l.own(node)+"/gossip.key", []byte(key), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// file returns the configuration of a node.
func (h *Herald) file(l *Lab, node string) string {
	return SpeakerFile(node, "  kubeconfig: /etc/herald/kubeconfig\n", RouterAddress, l.Members()[:min(3, len(l.Members()))], l.Address)
}

// SpeakerFile returns the configuration of a node behind a router, with these lines in its
// section services, and these voters.
func SpeakerFile(node, services, router string, voters []string, address func(string) netip.Addr) string {
	var members []string
	for _, m := range voters {
		members = append(members, fmt.Sprintf(`%s: "%s:7946"`, m, address(m)))
	}
	return fmt.Sprintf(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: %s
services:
%sbgp:
  asn: %d
  peers:
  - {address: %s, asn: %d, families: [ipv4, ipv6]}
election:
  bind: %s:7946
  members: {%s}
  keyFile: /etc/herald/gossip.key
`, node, services, NodeASN, router, RouterASN, address(node), strings.Join(members, ", "))
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
