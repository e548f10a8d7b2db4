package nodecmd

import (
	"log/slog"

	"github.com/weirhq/weir/dataplane/node/routes"
)

// aloneRegion is the region of a node alone that keeps overrides: it has to have one,
// and no other process sees it.
const aloneRegion = "local"

// newRoutes are the HTTP routes of existing clients.
func newRoutes(config Config, limiter routes.Limiter, stores *stores, logger *slog.Logger) *routes.Service {
	return &routes.Service{Limiter: limiter, Overrides: stores.overrides, Workspace: config.V2Workspace, Logger: logger}
}
