package console

import (
	"net/http"
	"strconv"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// healthView is what the watch has found, and, where it was asked for, how all is set up.
type healthView struct {
	*controlv1.Health
	Checked bool
	Checks  []*controlv1.Check
	Problem string // why there are no checks
}

func (c *Console) healthPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	found, err := ask(v.ctx, c.backend.health.GetHealth, &controlv1.GetHealthRequest{})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page := healthView{Health: found.GetHealth(), Checked: r.URL.Query().Has("check")}
	code := http.StatusOK
	if page.Checked {
		checks, err := ask(v.ctx, c.backend.health.Diagnose, &controlv1.DiagnoseRequest{})
		if err != nil {
			code, page.Problem = status(err), words(err)
		}
		page.Checks = checks.GetChecks()
	}
	c.render(w, r, v, code, "health", "Health", page)
}

// auditView is a page of what was changed.
type auditView struct {
	Entries []*controlv1.AuditEntry
	Before  int64 // the page comes after this entry; 0: it is the newest
	Next    int64 // 0: this is the last
}

const auditShown = 50

func (c *Console) auditPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	before, err := strconv.ParseInt(r.URL.Query().Get("before"), 10, 64)
	if err != nil {
		before = 0 // from the newest
	}
	list, err := ask(v.ctx, c.backend.audit.ListAudit, &controlv1.ListAuditRequest{BeforeId: before, Limit: auditShown})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page := auditView{Entries: list.GetEntries(), Before: before}
	if len(page.Entries) == auditShown {
		page.Next = page.Entries[auditShown-1].GetId()
	}
	c.render(w, r, v, http.StatusOK, "audit", "Audit", page)
}
