package bounded

import (
	"fmt"
	"net/http"
)

// Bound names what a call ran into.
type Bound string

// The bounds. Metrics publish a counter of refusals for each.
const (
	BoundConnections Bound = "connections" // a connection was closed in favor of another one
	BoundMemory      Bound = "memory"      // no bytes were left for the call
	BoundSlots       Bound = "slots"       // no slot was left for the call
	BoundCaller      Bound = "caller"      // none was left in the caller's part of the slots
	BoundBody        Bound = "body"        // the body is too long
	BoundUnpacked    Bound = "unpacked"    // what the body unpacks to is too long
	BoundItems       Bound = "items"       // the body holds too many items
	BoundTime        Bound = "time"        // the body did not arrive in time, or was cut off
	BoundHost        Bound = "host"        // the Host field is not known
)

// Bounds are all of them.
var Bounds = []Bound{BoundConnections, BoundMemory, BoundSlots, BoundCaller, BoundBody, BoundUnpacked, BoundItems,
	BoundTime, BoundHost}

// Refusal is a call that ran into a bound. Its text is for the caller.
type Refusal struct {
	Bound   Bound
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(bound Bound, format string, args ...any) *Refusal {
	return &Refusal{bound, fmt.Sprintf(format, args...)}
}

// Shed tells whether the call itself is without fault: another server, or this one in a moment,
// may answer it.
func (r *Refusal) Shed() bool {
	return r.Bound == BoundMemory || r.Bound == BoundSlots || r.Bound == BoundCaller
}

// Status is the refusal in HTTP.
func (r *Refusal) Status() int {
	switch r.Bound {
	case BoundMemory, BoundSlots, BoundCaller:
		return http.StatusServiceUnavailable
	case BoundBody, BoundUnpacked:
		return http.StatusRequestEntityTooLarge
	case BoundTime:
		return http.StatusRequestTimeout
	case BoundHost:
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}
