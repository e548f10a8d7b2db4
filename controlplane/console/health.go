package console

import (
	"net/http"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// healthView has the findings of the watch and, on request, the checks of the setup.
type healthView struct {
	*controlv1.Health
	Checked bool
	Checks  []*controlv1.Check
	Problem string // why there are no checks
}

func (c fleetPages) healthPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	found, err := apiclient.Ask(v.ctx, c.backend.Health.GetHealth, &controlv1.GetHealthRequest{})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page := healthView{Health: found.GetHealth(), Checked: r.URL.Query().Has("check")}
	code := http.StatusOK
	if page.Checked {
		checks, err := apiclient.Ask(v.ctx, c.backend.Health.Diagnose, &controlv1.DiagnoseRequest{})
		if err != nil {
			code, page.Problem = status(err), apiclient.Words(err)
		}
		page.Checks = checks.GetChecks()
	}
	c.render(w, r, v, code, "health", "Health", page)
}
