package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type keysList struct {
	space
	Prefix string `placeholder:"TEXT" help:"Only identifiers that begin with this text."`
	After  string `placeholder:"IDENTIFIER" help:"Only identifiers after this one: the next page."`
	Limit  int32  `default:"50" help:"How many (1 to 1000)."`
}

func (k keysList) Run(c *call) error {
	ask := &controlv1.ListKeysRequest{Workspace: k.Workspace, Namespace: k.Namespace, Prefix: k.Prefix,
		After: []byte(k.After), Limit: k.Limit}
	return show(c, c.TopKeys.ListKeys, ask, func(w io.Writer, answer *controlv1.ListKeysResponse) {
		writeListedKeys(w, answer, k.After)
	})
}

func writeListedKeys(w io.Writer, answer *controlv1.ListKeysResponse, after string) {
	if len(answer.GetKeys()) == 0 && len(answer.GetNext()) == 0 {
		format.Head(w, "%s", none(after,
			"regions have stored no counts of such keys lately; they store counts from half of a limit on"))
		return
	}
	t := format.NewTable(w)
	t.Row("IDENTIFIER", "WINDOW", "COUNT", "LIMIT", "OVERRIDE", "PASSES")
	truncated := false
	for _, k := range answer.GetKeys() {
		truncated = truncated || k.GetTruncated()
		for _, window := range k.GetWindows() {
			t.Row(k.GetIdentifier(), listedWindow(window), format.Digits(window.GetCount()), listedLimit(window),
				format.OrNone(k.GetOverride()), passes(k, window, answer.GetNowMs()))
		}
	}
	t.Flush()
	format.Head(w, "\nThese are the counts that regions have stored: "+
		"from half of a limit on, in steps of a quarter of it.")
	if truncated {
		format.Head(w, "Some keys have more counts than one answer covers: the sums may be too low.")
	}
	if problem := answer.GetLimitsProblem(); problem != "" {
		format.Head(w, "Limits without an override are unknown, because the reports of nodes could not be read: %s",
			format.Plain(problem))
	}
	writeMore(w, len(answer.GetNext()) > 0, string(answer.GetNext()))
}

func listedWindow(k *controlv1.ListedWindow) string {
	if k.GetMode() != "exact" {
		return format.Span(k.GetDurationMs()) + " (" + k.GetMode() + ")"
	}
	return format.Span(k.GetDurationMs())
}

func listedLimit(k *controlv1.ListedWindow) string {
	if k.Limit == nil {
		return "unknown"
	}
	return format.Digits(k.GetLimit())
}

// passes describes when a request with a cost of 1 passes.
func passes(k *controlv1.ListedKey, w *controlv1.ListedWindow, nowMs int64) string {
	switch {
	case k.GetShadow():
		return "now (shadow)"
	case w.Limit == nil:
		return "unknown"
	case w.FreeAtMs == nil:
		return "never"
	case w.GetFreeAtMs() <= nowMs:
		return "now"
	}
	return "in " + format.Span(w.GetFreeAtMs()-nowMs)
}

type keysExport struct {
	space
	Prefix string `placeholder:"TEXT" help:"Only identifiers that begin with this text."`
	File   string `short:"f" placeholder:"FILE" help:"Write to this file instead of stdout."`
	Format string `enum:"jsonl,csv" default:"jsonl" help:"${enum} (default ${default}). Callers choose identifiers: a spreadsheet must import them as text, not as formulas."`
}

// exportedKey is a line of keys export. Fields without a value are unknown.
type exportedKey struct {
	Workspace  string `json:"workspace"`
	Namespace  string `json:"namespace"`
	Identifier string `json:"identifier"`
	Mode       string `json:"mode"`
	DurationMs int64  `json:"duration_ms"`
	Count      int64  `json:"count"`
	Limit      *int64 `json:"limit,omitempty"`
	Override   string `json:"override,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"` // the key is in shadow mode: a cost of 1 passes at NowMs
	FreeAtMs   *int64 `json:"free_at_ms,omitempty"`
	NowMs      int64  `json:"now_ms"`
}

func (k keysExport) Run(c *call) error {
	if k.File == "" {
		return k.write(c, c.stdout)
	}
	return files.ReplaceWith(k.File, 0o644, func(w io.Writer) error { return k.write(c, w) })
}

func (k keysExport) write(c *call, to io.Writer) error {
	write, flush := jsonLines(to)
	if k.Format == "csv" {
		write, flush = csvLines(to)
	}
	ask := &controlv1.ListKeysRequest{Workspace: k.Workspace, Namespace: k.Namespace, Prefix: k.Prefix, Limit: 1000}
	for {
		page, err := c.keyPage(ask)
		if err != nil {
			return err
		}
		for _, key := range page.GetKeys() {
			for _, w := range key.GetWindows() {
				err := write(&exportedKey{k.Workspace, k.Namespace, key.GetIdentifier(), w.GetMode(), w.GetDurationMs(),
					w.GetCount(), w.Limit, key.GetOverride(), key.GetShadow(), w.FreeAtMs, page.GetNowMs()})
				if err != nil {
					return err
				}
			}
		}
		if err := flush(); err != nil {
			return err
		}
		if ask.After = page.GetNext(); len(ask.GetAfter()) == 0 {
			return nil
		}
	}
}

// keyPage reads a page with its own timeout, because all keys together can take longer than --timeout.
func (c *call) keyPage(ask *controlv1.ListKeysRequest) (*controlv1.ListKeysResponse, error) {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	return apiclient.Ask(ctx, c.TopKeys.ListKeys, ask)
}

func jsonLines(w io.Writer) (write func(*exportedKey) error, flush func() error) {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return func(k *exportedKey) error { return lines.Encode(k) }, func() error { return nil }
}

func csvLines(w io.Writer) (write func(*exportedKey) error, flush func() error) {
	lines := csv.NewWriter(w)
	flush = func() error {
		lines.Flush()
		return lines.Error()
	}
	_ = lines.Write([]string{"workspace", "namespace", "identifier", "mode", "duration_ms", "count", "limit", "override",
		"shadow", "free_at_ms", "now_ms"}) // flush returns the error
	return func(k *exportedKey) error {
		return lines.Write([]string{k.Workspace, k.Namespace, k.Identifier, k.Mode, fmt.Sprint(k.DurationMs),
			fmt.Sprint(k.Count), orEmpty(k.Limit), k.Override, fmt.Sprint(k.Shadow), orEmpty(k.FreeAtMs),
			fmt.Sprint(k.NowMs)})
	}, flush
}

func orEmpty(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
