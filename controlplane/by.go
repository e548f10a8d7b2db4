package controlplane

import "cmp"

const (
	// ActorBytesMax bounds By.Actor.
	ActorBytesMax = 191
	// ReasonBytesMax bounds By.Reason.
	ReasonBytesMax = 500

	// Itself is the actor, in the audit log, of changes without an operator.
	Itself = "weir-control"
)

// By identifies who makes a change, and the reason. Every change needs both, and records them in the audit table.
type By struct {
	Actor  string `json:"actor"`  // 1 to ActorBytesMax bytes of UTF-8
	Reason string `json:"reason"` // 1 to ReasonBytesMax bytes of UTF-8
}

// Validate reports the first field outside its bounds.
func (b By) Validate() error {
	return cmp.Or(ValidateText("actor", b.Actor, ActorBytesMax), ValidateText("reason", b.Reason, ReasonBytesMax))
}
