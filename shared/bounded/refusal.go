package bounded

import (
	"fmt"
	"net/http"
)

// Bound is the bound that a call exceeded, for example BoundMemory.
type Bound string

// The bounds. Metrics publish a counter of refusals for each.
const (
	BoundConnections Bound = "connections" // a connection was closed in favor of another
	BoundMemory      Bound = "memory"      // no bytes were left for the call
	BoundSlots       Bound = "slots"       // no slot was left for the call
	BoundCaller      Bound = "caller"      // no slot was left in the caller's part
	BoundBody        Bound = "body"        // the body is too long
	BoundUnpacked    Bound = "unpacked"    // the decompressed body is too long
	BoundItems       Bound = "items"       // the body holds too many items
	BoundTime        Bound = "time"        // the body did not arrive in time, or was cut off
	BoundHost        Bound = "host"        // the Host field is unknown
)

// Bounds are all bounds.
var Bounds = []Bound{BoundConnections, BoundMemory, BoundSlots, BoundCaller, BoundBody, BoundUnpacked, BoundItems,
	BoundTime, BoundHost}

// Refusal is the error of a call that exceeded a bound. Its text is for the caller.
type Refusal struct {
	Bound   Bound
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(bound Bound, format string, args ...any) *Refusal {
	return &Refusal{bound, fmt.Sprintf(format, args...)}
}

// Shed reports whether the call itself is valid, so that another server, or this server later, may accept it.
func (r *Refusal) Shed() bool {
	return r.Bound == BoundMemory || r.Bound == BoundSlots || r.Bound == BoundCaller
}

// Status returns the refusal's HTTP status.
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
