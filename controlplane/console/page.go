package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"strings"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
)

//go:embed templates static
var files embed.FS

// templates are the pages by name, each with the frame around it.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	frame := template.Must(template.New("frame.html").Funcs(funcs).ParseFS(files, "templates/frame.html",
		"templates/parts.html"))
	pages, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	parsed := make(map[string]*template.Template)
	for _, path := range pages {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "templates/"), ".html")
		if name != "frame" && name != "parts" {
			parsed[name] = template.Must(template.Must(frame.Clone()).ParseFS(files, path))
		}
	}
	return parsed
}

// view is the data of the frame around a page.
type view struct {
	*viewer
	Page    string // the template
	Title   string
	Section string // of the navigation
	Theme   string // "light" or "dark"; empty: the system's
	Actor   string // the name that was entered last, if the API requires no tokens
	Did     string // the action that has just succeeded
	Problem string // why the requested action failed
	Version string
	Missing bool   // the page does not exist; nothing is broken
	Assets  string // changes whenever a static file changes
	Data    any
}

// sections map a page to its section of the navigation.
var sections = map[string]string{
	"fleet": "fleet", "region": "fleet",
	"rollouts": "rollouts", "rollout": "rollouts", "rollout-new": "rollouts", "rollout-limits": "rollouts",
	"jobs":   "jobs",
	"limits": "limits", "namespace": "limits",
	"usage":  "usage",
	"keys":   "keys",
	"health": "health",
	"audit":  "audit",
	"tokens": "tokens",
}

// dids confirm a finished action, by the query parameter of the redirect.
var dids = map[string]string{
	"cleanup.pause":     "The cleanup's schedule is paused.",
	"cleanup.resume":    "The cleanup's schedule is resumed; a run starts immediately.",
	"cleanup.run":       "The cleanup has run; the run is the first in the history.",
	"rollout.start":     "The rollout has started.",
	"rollout.approve":   "Approved: the stage begins as soon as it has all its approvals.",
	"rollout.pause":     "The rollout is paused until it is resumed.",
	"rollout.resume":    "The rollout continues.",
	"rollout.abort":     "The rollout is aborted: what it has applied is rolled back.",
	"rollout.rollback":  "The rollout is being rolled back.",
	"key.reset":         "The identifier is reset: its earlier counts no longer apply after two settings intervals.",
	"retirement.start":  "The retirement has started. It observes the table first.",
	"retirement.rename": "Approved: the table is renamed as soon as all approvals are given.",
	"retirement.drop":   "Approved: the table is dropped as soon as all approvals are given.",
	"retirement.abort":  "Aborted: the table keeps its name, or gets it back.",
	"override.set":      "The override is set. Nodes have it within two settings intervals.",
	"override.delete":   "The override is deleted. Nodes follow within two settings intervals.",
	"token.revoke":      "The token is revoked.",
	"namespace.set":     "The settings are changed. Nodes have them within two settings intervals.",
}

// render shows a page. The whole page is rendered before the first byte is sent, so that a fault causes an error
// instead of half a page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, v *viewer, code int, page, title string, data any) {
	c.renderWith(w, r, v, code, page, title, "", data)
}

// renderWith shows a page with the reason why the requested action failed.
func (c *Console) renderWith(w http.ResponseWriter, r *http.Request, v *viewer, code int, page, title,
	problem string, data any) {
	out := view{
		viewer: v, Page: page, Title: title, Section: sections[page], Theme: theme(r), Actor: actorOf(r),
		Did: dids[r.URL.Query().Get("did")], Problem: problem, Version: c.Version, Missing: code == http.StatusNotFound,
		Assets: assetsVersion, Data: data,
	}
	var b bytes.Buffer
	if err := templates[page].ExecuteTemplate(&b, "frame.html", out); err != nil {
		c.Log.ErrorContext(r.Context(), "a page cannot be rendered", "page", page, "error", err)
		http.Error(w, "Internal error: see the log of weir-control.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // the browser may be gone
}

// firstOf returns the first entries of a list, and the name after which the next page begins. The name is empty if
// there are no more entries.
func firstOf[T any](list []T, shown int, more bool, name func(T) string) (first []T, next string) {
	first = list[:min(len(list), shown)]
	if more || len(list) > shown {
		next = name(first[len(first)-1])
	}
	return first, next
}

// broken shows an error in place of a page that cannot be read.
func (c *Console) broken(w http.ResponseWriter, r *http.Request, v *viewer, err error) {
	c.render(w, r, v, status(err), "broken", "Not available", apiclient.Words(err))
}

func (c *Console) notFound(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.render(w, r, v, http.StatusNotFound, "broken", "No such page", "There is no page at this address.")
}

// theme returns the theme that was chosen in this browser, or an empty text.
func theme(r *http.Request) string {
	if chosen, err := r.Cookie("weir_theme"); err == nil && (chosen.Value == "dark" || chosen.Value == "light") {
		return chosen.Value
	}
	return ""
}

// assetsVersion is a part of the addresses of static files, so that an address changes with the content.
var assetsVersion = func() string {
	sum := sha256.New()
	err := fs.WalkDir(files, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(path)
		sum.Write(b)
		return err
	})
	if err != nil {
		panic(err) // they are embedded
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}()

// asset serves a static file. The content of an address with a version never changes.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/console/")
	b, err := files.ReadFile(path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	for suffix, kind := range map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
		".svg": "image/svg+xml", "LICENSE": "text/plain; charset=utf-8"} {
		if strings.HasSuffix(path, suffix) {
			w.Header().Set("Content-Type", kind)
		}
	}
	etag := `"` + assetsVersion + `"`
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == assetsVersion {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(b)
}
