package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// keyView is an identifier with the counts that regions have stored and the settings that apply to it.
type keyView struct {
	Workspace, Namespace, Identifier string
	Asked                            bool
	Problem                          string
	Resets                           []*controlv1.Reset
	Limit, Cost                      string // of the request to judge
	Key                              *controlv1.GetKeyResponse
	Prefix, After                    string                      // of the listed keys
	Listed                           *controlv1.ListKeysResponse // nil: the page has an identifier
	Cells                            []cellsView
	Window                           string

	Hot, Denied ranking
	Held        heldView
	Names       names
	Seen        []seenKey // durations of the identifier that nodes report and no region has stored
}

func (c keyPages) keysPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	q := r.URL.Query()
	c.showKey(w, r, v, http.StatusOK, "", keyOf(q))
}

// keyOf returns the key that an address names.
func keyOf(q url.Values) keyView {
	return keyView{
		Workspace: strings.TrimSpace(q.Get("workspace")), Namespace: strings.TrimSpace(q.Get("namespace")),
		Identifier: q.Get("identifier"),
		Limit:      strings.TrimSpace(q.Get("limit")), Cost: strings.TrimSpace(q.Get("cost")),
		Prefix: q.Get("prefix"), After: q.Get("after"),
	}
}

func (c keyPages) showKey(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string, page keyView) {
	page.Hot, page.Denied = c.rank(v, page, controlv1.TopBy_TOP_BY_HOT), c.rank(v, page, controlv1.TopBy_TOP_BY_DENIED)
	page.Held = c.listHeld(v, page)
	for _, k := range page.Hot.Keys {
		if page.Identifier != "" && k.GetIdentifier() == page.Identifier {
			page.Seen = append(page.Seen, see(k.TopKey, page.Hot.GetNowMs()))
		}
	}
	if !byScript(r) {
		seen, problem := keysOf(page.Hot, page.Denied)
		if page.Workspace != "" || page.Namespace != "" {
			seen, problem = c.seenKeys(v)
		}
		page.Names = c.listNames(v, seen, problem)
	}
	page.Asked = page.Workspace != "" && page.Namespace != ""
	if page.Asked {
		if err := c.lookUp(v, &page); err != nil {
			code, page.Problem = status(err), apiclient.Words(err)
		}
	}
	c.renderWith(w, r, v, code, "keys", "Keys", problem, page)
}

// Identifiers returns identifiers that the input field can suggest: identifiers of the page's namespace, or of all.
func (k keyView) Identifiers() []string {
	return distinct(slices.Concat(k.Hot.Keys, k.Denied.Keys), func(k rankedKey) string { return k.GetIdentifier() })
}

func (c keyPages) lookUp(v *viewer, page *keyView) error {
	resets, err := apiclient.Ask(v.ctx, c.backend.Settings.ListResets,
		&controlv1.ListResetsRequest{Workspace: page.Workspace, Namespace: page.Namespace})
	if err != nil {
		return err
	}
	page.Resets = resets.GetResets()
	if page.Identifier == "" {
		page.Listed, err = apiclient.Ask(v.ctx, c.backend.TopKeys.ListKeys, &controlv1.ListKeysRequest{
			Workspace: page.Workspace, Namespace: page.Namespace, Prefix: page.Prefix, After: []byte(page.After)})
		return err
	}
	msg, err := page.question()
	if err != nil {
		return err
	}
	if page.Key, err = apiclient.Ask(v.ctx, c.backend.TopKeys.GetKey, msg); err != nil {
		return err
	}
	for _, w := range page.Key.GetWindows() {
		page.Cells = append(page.Cells, drawCells(w, page.Key, max(1, msg.GetCost())))
		page.Seen = slices.DeleteFunc(page.Seen, func(s seenKey) bool { return s.GetDurationMs() == w.GetDurationMs() })
	}
	return nil
}

// question returns the API request for the page's key.
func (k *keyView) question() (*controlv1.GetKeyRequest, error) {
	msg := &controlv1.GetKeyRequest{Workspace: k.Workspace, Namespace: k.Namespace, Identifier: k.Identifier, Judge: true}
	for _, field := range []struct {
		name, text string
		to         *int64
	}{{"limit", k.Limit, &msg.Limit}, {"cost", k.Cost, &msg.Cost}} {
		if field.text == "" {
			continue
		}
		n, err := typedInt(field.text)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument,
				fmt.Errorf("%s is %q, want a whole number", field.name, field.text))
		}
		*field.to = n
	}
	return msg, nil
}

// Next returns the address of the next page of listed keys, or "" if there is none.
func (k keyView) Next() string {
	if len(k.Listed.GetNext()) == 0 {
		return ""
	}
	return "/console/keys?" + url.Values{"workspace": {k.Workspace}, "namespace": {k.Namespace}, "prefix": {k.Prefix},
		"after": {string(k.Listed.GetNext())}}.Encode()
}

// FreeIn returns how long it takes until a cost of 1 passes a window, in milliseconds; 0: it passes now.
func (k keyView) FreeIn(w *controlv1.ListedWindow) int64 {
	return max(0, w.GetFreeAtMs()-k.Listed.GetNowMs())
}

func (c keyPages) resetKey(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	page := keyView{Workspace: f.Get("workspace"), Namespace: f.Get("namespace"), Identifier: f.Get("identifier"),
		Window: strings.TrimSpace(f.Get("window"))}
	msg := &controlv1.ResetKeyRequest{Workspace: page.Workspace, Namespace: page.Namespace, Identifier: page.Identifier}
	msg.Actor, msg.Reason = c.by(w, r, v)
	if page.Window != "" {
		ms, err := typedMs(page.Window)
		if err != nil {
			c.showKey(w, r, v, http.StatusBadRequest,
				fmt.Sprintf("longest window is %q, want something like 60s, 24h, or nothing", page.Window), page)
			return
		}
		msg.LongestWindowMs = ms
	}
	if _, err := apiclient.Ask(v.ctx, c.backend.Settings.ResetKey, msg); err != nil {
		c.showKey(w, r, v, status(err), apiclient.Words(err), page)
		return
	}
	done(w, r, "/console/keys", "key.reset", url.Values{"workspace": {page.Workspace}, "namespace": {page.Namespace},
		"identifier": {page.Identifier}})
}
