package services

import (
	"context"

	"github.com/herald-vip/herald/testenv/lab"
)

// Announcer is a program that assigns addresses to Services and announces them from
// nodes: Herald, or a rival.
type Announcer interface {
	// Name is its short name. Its files are in the folder /etc/NAME: on a node the
	// kubeconfig and the files of Configure, for the controller the API server's files.
	Name() string
	// Configure writes the files of the nodes, before they are booted.
	Configure(l *Lab) error
	// Speaker returns the image of the program on each node.
	Speaker(l *Lab, node string) lab.Image
	// Controller returns the image of the single program beside the API server; nil if
	// the speakers include it.
	Controller(l *Lab) lab.Image
	// Install creates its kinds, pools and peers in the API server.
	Install(ctx context.Context, l *Lab) error
}
