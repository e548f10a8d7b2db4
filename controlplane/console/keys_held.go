package console

import (
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// heldView has the leases and reservations that have been held longest.
type heldView struct {
	*controlv1.ListHeldResponse
	Problem string
}

// heldShown is the number of leases and reservations on a page.
const heldShown = 20

func (c keyPages) listHeld(v *viewer, page keyView) heldView {
	found, err := apiclient.Ask(v.ctx, c.backend.TopKeys.ListHeld, &controlv1.ListHeldRequest{Workspace: page.Workspace,
		Namespace: page.Namespace, Identifier: page.Identifier, Limit: heldShown})
	if err != nil {
		return heldView{Problem: apiclient.Words(err)}
	}
	return heldView{ListHeldResponse: found}
}

// For returns how long a lease or reservation has been held, in milliseconds.
func (h heldView) For(held *controlv1.Held) int64 { return max(0, h.GetNowMs()-held.GetSinceMs()) }

// Left returns the time until a lease or reservation ends, in milliseconds.
func (h heldView) Left(held *controlv1.Held) int64 { return max(0, held.GetEndsMs()-h.GetNowMs()) }
