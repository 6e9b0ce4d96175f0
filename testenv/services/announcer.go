package services

import (
	"context"

	"github.com/herald-vip/herald/testenv/lab"
)

// Announcer is a program that assigns addresses to Services and announces them from
// nodes: Herald, or one to compare it with.
type Announcer interface {
	// Name is what it is called. The folder of its files in a node is /etc/NAME: a
	// node's has its kubeconfig and what Configure wrote, the controller's those of
	// the API server.
	Name() string
	// Configure writes the files of the nodes, before there are any.
	Configure(l *Lab) error
	// Speaker is the image of what runs on each node.
	Speaker(l *Lab, node string) lab.Image
	// Controller is the image of what runs once, beside the API server; nil if it is
	// part of the speakers.
	Controller(l *Lab) lab.Image
	// Install has the API server know its kinds, pools and peers.
	Install(ctx context.Context, l *Lab) error
}
