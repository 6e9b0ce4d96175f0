package admin

import "github.com/herald-vip/herald/speaker"

// States of an address that falls short of its stage.
const (
	Blocked speaker.Stage = "blocked" // something prevents the stage
	Unsent  speaker.Stage = "unsent"  // it is announced by BGP, and no peer was sent the route
)

// ServingState is what a backend, or a member that advertises its health, does with new connections.
type ServingState string

// Backends are serving, draining or dead, members serving, draining, silent or left.
const (
	ServingNew      ServingState = "serving"
	ServingDraining ServingState = "draining"
	ServingDead     ServingState = "dead"
	ServingSilent   ServingState = "silent"
	ServingLeft     ServingState = "left"
)
