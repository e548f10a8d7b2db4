package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// ValidateID rejects IDs that are empty, too long, or have other characters than letters, digits, '-', '_' and '.'. A
// valid ID is, for example, "flush-50ms".
func ValidateID(id string) error {
	if err := controlplane.ValidateText("id", id, IDBytesMax); err != nil {
		return err
	}
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	if i := strings.IndexFunc(id, odd); i >= 0 {
		return fmt.Errorf("%w: id %q may have letters, digits, '-', '_' and '.' only", controlplane.ErrInvalid, id)
	}
	return nil
}

// Spec is the subject and the plan that an operator starts a rollout with. The subject is either a tuning or a change
// of limits.
type Spec struct {
	Tuning string           `json:"tuning"`           // a document of package tuning; empty with Limits
	Limits *settings.Change `json:"limits,omitempty"` // nil: the rollout has a tuning
	Plan   plan.Plan        `json:"plan"`
}

// Validate reports an error in the subject or the plan, or the first setting of the tuning that does not fit the plan's
// times.
func (s Spec) Validate() error {
	if s.Limits != nil {
		return s.validateLimits()
	}
	set, err := tuning.Parse([]byte(s.Tuning))
	if err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	if err := s.Plan.Validate(); err != nil {
		return err
	}
	if err := s.Plan.ValidateForTuning(); err != nil {
		return err
	}
	return checkTimes(set, tuning.Times{Lease: time.Duration(s.Plan.LeaseMs) * time.Millisecond,
		ApplyTimeout: time.Duration(s.Plan.ApplyTimeoutMs) * time.Millisecond})
}

// checkTimes is tuning.CheckTimes with an error that wraps controlplane.ErrInvalid.
func checkTimes(set tuning.Tuning, of tuning.Times) error {
	if err := set.CheckTimes(of); err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return nil
}

// WholeTuning returns the tuning with every field present, so that a later change of defaults does not change the
// tuning of this rollout.
func (s Spec) WholeTuning() (string, error) {
	t, err := tuning.Parse([]byte(s.Tuning))
	if err != nil {
		return "", fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	b, err := t.Document()
	return string(b), err
}
