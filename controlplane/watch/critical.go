package watch

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// criticalShown is how many findings a refusal names.
const criticalShown = 5

// RefuseCritical refuses a change of tuning while the health of the fleet is critical, and names the findings: what the
// change does to a fleet that does not work cannot be told from what was broken before. The error wraps
// controlplane.ErrConflict.
func RefuseCritical(d HealthDocument) error {
	critical := criticalFindings(d)
	if critical == "" {
		return nil
	}
	return fmt.Errorf("%w: the health of the fleet is critical (%s); force starts it anyway", controlplane.ErrConflict,
		critical)
}

// Forced is what a rollout that starts by force leaves out of account, for rollout.Start.Forced: the
// critical findings. Empty: none are, so nothing was forced.
func Forced(d HealthDocument) string {
	return controlplane.Shorten(criticalFindings(d), rollout.ForcedBytesMax)
}

// criticalFindings names the first critical findings; empty: the health is not critical.
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
