package limits

import (
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/estimate"
)

// validateEstimate refuses what a node would not run: an operator hears of it at once,
// and not from a heartbeat.
func validateEstimate(document string) error {
	if _, err := estimate.Parse(document); err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return nil
}
