package console

import (
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// heldView is what is held longest.
type heldView struct {
	*controlv1.ListHeldResponse
	Problem string
}

// heldShown is how much of it a page shows.
const heldShown = 20

func (c keyPages) listHeld(v *viewer, page keyView) heldView {
	found, err := apiclient.Ask(v.ctx, c.backend.TopKeys.ListHeld, &controlv1.ListHeldRequest{Workspace: page.Workspace,
		Namespace: page.Namespace, Identifier: page.Identifier, Limit: heldShown})
	if err != nil {
		return heldView{Problem: apiclient.Words(err)}
	}
	return heldView{ListHeldResponse: found}
}

// For is how long something has been held, in milliseconds.
func (h heldView) For(held *controlv1.Held) int64 { return max(0, h.GetNowMs()-held.GetSinceMs()) }

// Left is when it ends, in milliseconds from now.
func (h heldView) Left(held *controlv1.Held) int64 { return max(0, held.GetEndsMs()-h.GetNowMs()) }
