package admin

import "github.com/herald-vip/herald/speaker"

// States of an address that falls short of its stage.
const (
	Blocked speaker.Stage = "blocked" // something prevents the stage
	Unsent  speaker.Stage = "unsent"  // it is announced by BGP, and no peer was sent the route
)

// ServingState tells whether a member that advertises its health takes new connections.
type ServingState string

// States of members.
const (
	ServingNew      ServingState = "serving"
	ServingDraining ServingState = "draining"
	ServingSilent   ServingState = "silent"
	ServingLeft     ServingState = "left"
)
