package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/window"
)

const (
	// ResetsPageMax is the most resets in a listing.
	ResetsPageMax = 1000
	// ResetsMax is how many resets there may be at a time: every node reads all of them
	// with each read of settings.
	ResetsMax = 100_000
)

// Reset makes all regions forget the earlier counts of an identifier.
type Reset struct {
	Workspace  string    `json:"workspace"`
	Namespace  string    `json:"namespace"`
	Identifier string    `json:"identifier"`
	Generation int64     `json:"generation"` // names the cells that count since the reset; differs from the last reset's
	SetAt      time.Time `json:"set_at"`     // by the clock of the database
	ExpiresAt  time.Time `json:"expires_at"` // when no earlier count can matter any more
}

// next returns the reset after r, made at now, for limits with windows of at most longest. It is later than r also if
// the database's clock has gone back, because nodes keep the latest reset.
//
// Generations begin, and continue, at random. Otherwise a database that was restored from a backup, and lacks recent
// resets, would use their generations again, and cost counted since these resets would still count. Generations repeat
// only after more resets of an identifier than can matter at the same time.
func (r Reset) next(now time.Time, longest time.Duration) Reset {
	stride := int64(strideMax)
	if r.Generation == 0 {
		stride = int64(window.GenerationMax)
	}
	r.Generation = (r.Generation+rand.Int64N(stride))%int64(window.GenerationMax) + 1
	r.SetAt = latest(now, r.SetAt.Add(time.Millisecond))
	r.ExpiresAt = latest(r.ExpiresAt, r.SetAt.Add(2*longest))
	return r
}

const strideMax = 64

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ResetKey makes all nodes forget the counts of an identifier, within two settings intervals. longest is the longest
// window by which the identifier is limited, or 0 for any. The reset is remembered for that long, so with too short a
// window old counts come back. For example, pass 24 h if its longest limit is a daily limit.
func (s *Settings) ResetKey(ctx context.Context, workspace, namespace, identifier string, longest time.Duration,
	by controlplane.By) (reset Reset, err error) {
	if longest == 0 {
		longest = window.DurationMax
	}
	if err := errors.Join(by.Validate(), validateReset(workspace, namespace, identifier, longest)); err != nil {
		return reset, err
	}
	err = s.store.ChangeReset(ctx, workspace, namespace, identifier,
		func(before *Reset, live int64, now time.Time) (Reset, audit.Entry, error) {
			reset = Reset{Workspace: workspace, Namespace: namespace, Identifier: identifier}
			if before != nil {
				reset = *before
			} else if live >= ResetsMax {
				return reset, audit.Entry{},
					fmt.Errorf("%w: there are %d resets, and %d is the most; name the longest window so "+
						"that they expire sooner", controlplane.ErrConflict, live, ResetsMax)
			}
			reset = reset.next(now, longest)
			e, err := settingEntry(by, "key.reset", fmt.Sprintf("key %s/%s/%s", workspace, namespace, identifier),
				before, &reset)
			return reset, e, err
		})
	return reset, err
}

func validateReset(workspace, namespace, identifier string, longest time.Duration) error {
	if err := validateSpace(workspace, namespace); err != nil {
		return err
	}
	if err := controlplane.ValidateText("identifier", identifier, window.IdentifierBytesMax); err != nil {
		return err
	}
	if strings.Contains(identifier, "*") {
		return fmt.Errorf("%w: identifier is %q (one identifier, not a pattern)", controlplane.ErrInvalid, identifier)
	}
	return controlplane.ValidateSpan("longest window", longest, window.DurationMin, window.DurationMax)
}

// Resets returns the resets of a namespace that still matter, newest first, at most ResetsPageMax.
func (s *Settings) Resets(ctx context.Context, workspace, namespace string) ([]Reset, error) {
	if err := validateSpace(workspace, namespace); err != nil {
		return nil, err
	}
	return s.store.Resets(ctx, workspace, namespace, ResetsPageMax)
}
