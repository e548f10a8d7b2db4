package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// keyView is what operators have set for one identifier.
type keyView struct {
	Workspace, Namespace, Identifier string
	Asked                            bool
	Problem                          string
	Resets                           []*controlv1.Reset
	Reset                            *controlv1.Reset    // of the identifier; nil: none that matters
	Override                         *controlv1.Override // that applies to it; nil: none
	Window                           string

	Hot, Denied ranking
	Seen        []seenKey // the identifier, by its durations, where it is among the hot
}

func (c *Console) keysPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	q := r.URL.Query()
	c.showKey(w, r, v, http.StatusOK, "", keyView{Workspace: strings.TrimSpace(q.Get("workspace")), Namespace: strings.TrimSpace(q.Get("namespace")), Identifier: q.Get("identifier")})
}

func (c *Console) showKey(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string, page keyView) {
	page.Hot, page.Denied = c.rank(v, page, controlv1.TopBy_TOP_BY_HOT), c.rank(v, page, controlv1.TopBy_TOP_BY_DENIED)
	for _, k := range page.Hot.Keys {
		if page.Identifier != "" && k.GetIdentifier() == page.Identifier {
			page.Seen = append(page.Seen, see(k.TopKey, page.Hot.GetNowMs()))
		}
	}
	page.Asked = page.Workspace != "" && page.Namespace != ""
	if page.Asked {
		if err := c.lookUp(v, &page); err != nil {
			code, page.Problem = status(err), words(err)
		}
	}
	c.renderWith(w, r, v, code, "keys", "Keys", problem, page)
}

// overridesSearched bounds how many overrides are looked through for the one that applies.
const overridesSearched = 10_000

func (c *Console) lookUp(v *viewer, page *keyView) error {
	resets, err := ask(v.ctx, c.backend.settings.ListResets, &controlv1.ListResetsRequest{Workspace: page.Workspace, Namespace: page.Namespace})
	if err != nil {
		return err
	}
	page.Resets = resets.GetResets()
	for _, reset := range page.Resets {
		if reset.GetIdentifier() == page.Identifier {
			page.Reset = reset
		}
	}
	if page.Identifier == "" {
		return nil
	}
	after := ""
	for range overridesSearched / 1000 {
		list, err := ask(v.ctx, c.backend.settings.ListOverrides, &controlv1.ListOverridesRequest{Workspace: page.Workspace, Namespace: page.Namespace, After: after})
		if err != nil {
			return err
		}
		for _, o := range list.GetOverrides() {
			if matches(o.GetPattern(), page.Identifier) && (page.Override == nil || moreSpecific(o.GetPattern(), page.Override.GetPattern())) {
				page.Override = o
			}
			after = o.GetPattern()
		}
		if !list.GetHasMore() {
			break
		}
	}
	return nil
}

func (c *Console) resetKey(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	page := keyView{Workspace: f.Get("workspace"), Namespace: f.Get("namespace"), Identifier: f.Get("identifier"), Window: strings.TrimSpace(f.Get("window"))}
	msg := &controlv1.ResetKeyRequest{Workspace: page.Workspace, Namespace: page.Namespace, Identifier: page.Identifier}
	msg.Actor, msg.Reason = by(w, r, v)
	if page.Window != "" {
		window, err := time.ParseDuration(page.Window)
		if err != nil {
			c.showKey(w, r, v, http.StatusBadRequest, fmt.Sprintf("longest window is %q, want something like 60s, 24h, or nothing", page.Window), page)
			return
		}
		msg.LongestWindowMs = window.Milliseconds()
	}
	if _, err := ask(v.ctx, c.backend.settings.ResetKey, msg); err != nil {
		c.showKey(w, r, v, status(err), words(err), page)
		return
	}
	done(w, r, "/console/keys", "key.reset", url.Values{"workspace": {page.Workspace}, "namespace": {page.Namespace}, "identifier": {page.Identifier}})
}
