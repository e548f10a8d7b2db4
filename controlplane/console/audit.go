package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// auditView is a page of the audit log.
type auditView struct {
	Fields   []field // of the search form
	Entries  []*controlv1.AuditEntry
	Before   int64 // the page begins after this entry; 0: with the newest entry
	Next     int64 // the next page begins after this entry; 0: this is the last page
	Searched bool  // the search stopped at its bound, so there may be more entries
	Wrong    bool  // the search was rejected
}

// field is an input of a form, with the problem of its value.
type field struct {
	Name, Label, Kind, Hint string
	Max                     int // bytes
	Value, Problem          string
}

const auditShown = 50

// auditFields are the fields of the search form, under the API's names.
var auditFields = []field{
	{Name: "actor", Label: "Who", Kind: "search", Hint: "anybody", Max: 191},
	{Name: "action", Label: "Action", Kind: "search", Hint: "override, or override.set", Max: 64},
	{Name: "subject", Label: "Object", Kind: "search", Hint: "a part of its name", Max: 800},
	{Name: "workspace", Label: "Workspace", Kind: "search", Hint: "all", Max: 191},
	{Name: "namespace", Label: "Namespace", Kind: "search", Hint: "all", Max: 255},
	{Name: "since", Label: "From (UTC)", Kind: "datetime-local"},
	{Name: "until", Label: "Until (UTC)", Kind: "datetime-local"},
}

func (c fleetPages) auditPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	page := readAuditForm(r.URL.Query())
	msg, err := page.request()
	code := http.StatusBadRequest
	var found *controlv1.ListAuditResponse
	if err == nil {
		found, err = apiclient.Ask(v.ctx, c.backend.Audit.ListAudit, msg)
		code = status(err)
	}
	switch {
	case err == nil:
		code = http.StatusOK
		page.fill(found)
	case code != http.StatusBadRequest:
		c.broken(w, r, v, err)
		return
	default:
		page.blame(apiclient.Words(err))
	}
	problem := ""
	if page.Wrong && !page.blamed() {
		problem = apiclient.Words(err)
	}
	c.renderWith(w, r, v, code, "audit", "Audit", problem, page)
}

func readAuditForm(q url.Values) *auditView {
	page := &auditView{}
	for _, f := range auditFields {
		f.Value = strings.TrimSpace(q.Get(f.Name))
		page.Fields = append(page.Fields, f)
	}
	page.Before, _ = typedInt(q.Get("before")) // 0, the newest entry, if it is not a number
	return page
}

func (a *auditView) value(name string) string {
	for _, f := range a.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// request returns the API request of the form. Its errors begin with the name of the field.
func (a *auditView) request() (*controlv1.ListAuditRequest, error) {
	msg := &controlv1.ListAuditRequest{
		BeforeId: a.Before, Limit: auditShown, Actor: a.value("actor"), Action: a.value("action"),
		Subject:   a.value("subject"),
		Workspace: a.value("workspace"), Namespace: a.value("namespace"),
	}
	for name, to := range map[string]*int64{"since": &msg.SinceMs, "until": &msg.UntilMs} {
		text := a.value(name)
		if text == "" {
			continue
		}
		at, err := time.Parse("2006-01-02T15:04", text)
		if err != nil {
			at, err = time.Parse("2006-01-02T15:04:05", text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s is %q, want a moment like 2026-01-31T15:04, in UTC", name, text)
		}
		*to = at.UnixMilli()
	}
	if msg.UntilMs != 0 && msg.UntilMs <= msg.SinceMs {
		return nil, fmt.Errorf("until is %s, want a moment after %s", a.value("until"), a.value("since"))
	}
	return msg, nil
}

func (a *auditView) fill(found *controlv1.ListAuditResponse) {
	a.Entries = found.GetEntries()
	a.Next = found.GetSearchedToId()
	last := int64(0)
	if n := len(a.Entries); n > 0 {
		last = a.Entries[n-1].GetId()
	}
	a.Searched = a.Next > 0 && a.Next != last
	if a.Next == 0 && len(a.Entries) == auditShown {
		a.Next = last
	}
}

// blame shows a problem at the field whose name the problem begins with.
func (a *auditView) blame(problem string) {
	a.Wrong = true
	said := strings.TrimPrefix(problem, "invalid: ")
	name, _, _ := strings.Cut(said, " ")
	for i := range a.Fields {
		if a.Fields[i].Name == name || a.Fields[i].Name+"_ms" == name {
			a.Fields[i].Problem = said
		}
	}
}

func (a *auditView) blamed() bool {
	for _, f := range a.Fields {
		if f.Problem != "" {
			return true
		}
	}
	return false
}

// Filtered reports whether the form restricts the search.
func (a *auditView) Filtered() bool {
	for _, f := range a.Fields {
		if f.Value != "" {
			return true
		}
	}
	return false
}

// At returns the address of the page of the same search that begins after an entry; 0 is the newest page.
func (a *auditView) At(before int64) string {
	q := make(url.Values)
	for _, f := range a.Fields {
		if f.Value != "" {
			q.Set(f.Name, f.Value)
		}
	}
	if before > 0 {
		q.Set("before", strconv.FormatInt(before, 10))
	}
	if len(q) == 0 {
		return "/console/audit"
	}
	return "/console/audit?" + q.Encode()
}
