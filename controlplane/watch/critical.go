package watch

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// criticalShown is how many findings the error names.
const criticalShown = 5

// RefuseCritical returns an error if the health of the fleet is critical. Then effects of a change could not be
// distinguished from earlier faults, so no change of tuning should start. The error names the findings, and wraps
// controlplane.ErrConflict.
func RefuseCritical(d HealthDocument) error {
	critical := criticalFindings(d)
	if critical == "" {
		return nil
	}
	return fmt.Errorf("%w: the health of the fleet is critical (%s); force starts it anyway", controlplane.ErrConflict,
		critical)
}

// Forced returns the critical findings that a rollout ignores if it starts by force, for rollout.Start.Forced. It
// returns "" if there are none, because then nothing was forced.
func Forced(d HealthDocument) string {
	return controlplane.Shorten(criticalFindings(d), rollout.ForcedBytesMax)
}

// criticalFindings returns the first critical findings, or "" if the health is not critical.
func criticalFindings(d HealthDocument) string {
	if d.Overall != SeverityCritical {
		return ""
	}
	var named []string
	more := d.LeftOut
	for _, f := range d.Findings {
		if f.Severity != SeverityCritical {
			continue
		}
		if len(named) == criticalShown {
			more++
			continue
		}
		named = append(named,
			strings.TrimSpace(string(f.Kind)+" "+f.Subject)+": "+strings.TrimSuffix(controlplane.Clip(f.What), "."))
	}
	if more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	if len(named) == 0 {
		return "it names no finding"
	}
	return strings.Join(named, "; ")
}
