package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type keysTop struct {
	Hot       bool   `xor:"by" help:"Keys with the most cost in their windows (the default)."`
	Denied    bool   `xor:"by" help:"Keys denied most often in the last minute or two; requests that only shadow mode allowed, and leases refused, count too."`
	Workspace string `placeholder:"NAME" help:"Only this workspace. Default: all."`
	Namespace string `placeholder:"NAME" help:"Only this namespace. Default: all."`
	Limit     int32  `default:"20" help:"How many (1 to 100)."`
}

func (k keysTop) Run(c *call) error {
	by := controlv1.TopBy_TOP_BY_HOT
	if k.Denied {
		by = controlv1.TopBy_TOP_BY_DENIED
	}
	ask := &controlv1.TopKeysRequest{Workspace: k.Workspace, Namespace: k.Namespace, By: by, Limit: k.Limit}
	return show(c, c.TopKeys.TopKeys, ask,
		func(w io.Writer, answer *controlv1.TopKeysResponse) { writeTopKeys(w, answer, k.Denied) })
}

func writeTopKeys(w io.Writer, answer *controlv1.TopKeysResponse, denied bool) {
	if len(answer.GetKeys()) == 0 {
		_, _ = fmt.Fprintf(w, "no keys; %s reported\n", format.Plural(int64(answer.GetNodes()), "node"))
		return
	}
	t := format.NewTable(w)
	counted := "COST"
	if denied {
		counted = "DENIED"
	}
	t.Row("WORKSPACE", "NAMESPACE", "IDENTIFIER", counted, "SHARE", "LIMIT", "REGIONS")
	for _, k := range answer.GetKeys() {
		count := format.Digits(k.GetCount())
		if k.GetMore() > 0 {
			count += fmt.Sprintf(" (to %s)", format.Digits(k.GetCount()+k.GetMore()))
		}
		share := float64(k.GetCount()) / float64(max(1, answer.GetTotal()))
		t.Row(k.GetWorkspace(), k.GetNamespace(), k.GetIdentifier(), count, fmt.Sprintf("%.1f %%", 100*share), topLimit(k),
			topRegions(k))
	}
	t.Flush()
	_, _ = fmt.Fprintf(w, "\nshares are of all that %s reported, up to %s ago\n", format.Plural(int64(answer.GetNodes()),
		"node"),
		format.Span(answer.GetOldestMs()))
	writeReporting(w, answer)
}

func topLimit(k *controlv1.TopKey) string {
	if k.Limit == nil {
		return "unknown"
	}
	if k.GetDurationMs() == 0 {
		return format.Digits(k.GetLimit()) + " at once"
	}
	return format.Digits(k.GetLimit()) + " per " + format.Span(k.GetDurationMs())
}

func topRegions(k *controlv1.TopKey) string {
	var parts []string
	for _, r := range k.GetRegions() {
		parts = append(parts, r.GetRegion()+" "+format.Digits(r.GetCount()))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
