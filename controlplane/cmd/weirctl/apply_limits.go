package main

import (
	"fmt"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/limitwords"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// limitsOf returns an estimate of the requests that a plan's overrides would have denied, for the busiest keys that
// nodes report. The changes are made even if there is no estimate.
func (c *call) limitsOf(p plan.Plan) string {
	var changes []*controlv1.LimitChange
	left := 0
	for _, change := range p.Changes {
		switch {
		case change.Limit == nil:
		case len(changes) == limits.ChangesMax:
			left++
		default:
			changes = append(changes, change.Limit)
		}
	}
	if len(changes) == 0 {
		return ""
	}
	answer, err := apiclient.Ask(c.ctx, c.TopKeys.EstimateLimits, &controlv1.EstimateLimitsRequest{Changes: changes})
	switch {
	case connect.CodeOf(err) == connect.CodeUnimplemented: // an older weir-control
		return ""
	case err != nil:
		return limitwords.Unknown(len(changes), format.Plain(err.Error()))
	}
	words := format.Plain(limitwords.Say(answer, len(changes), format.Digits))
	if left > 0 {
		words += fmt.Sprintf("; %s left out of this estimate", format.Plural(int64(left), "further override"))
	}
	return words
}
