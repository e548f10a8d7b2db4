package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type keysHeld struct {
	Workspace  string `placeholder:"NAME" help:"Only this workspace. Default: all."`
	Namespace  string `placeholder:"NAME" help:"Only this namespace. Default: all."`
	Identifier string `placeholder:"NAME" help:"Only this identifier. Default: all."`
	Limit      int32  `default:"20" help:"How many (1 to 100)."`
}

func (k keysHeld) Run(c *call) error {
	return show(c, c.TopKeys.ListHeld, &controlv1.ListHeldRequest{Workspace: k.Workspace,
		Namespace: k.Namespace, Identifier: k.Identifier, Limit: k.Limit}, writeHeld)
}

func writeHeld(w io.Writer, answer *controlv1.ListHeldResponse) {
	if len(answer.GetHeld()) == 0 {
		_, _ = fmt.Fprintf(w, "nothing is held; %s reported\n", format.Plural(int64(answer.GetNodes()), "node"))
		return
	}
	t := format.NewTable(w)
	t.Row("WORKSPACE", "NAMESPACE", "IDENTIFIER", "WHAT", "AMOUNT", "HOLDER", "REGION", "NODE", "FOR", "ENDS IN")
	for _, h := range answer.GetHeld() {
		ends := "-"
		if h.GetEndsMs() > 0 {
			ends = format.Span(max(0, h.GetEndsMs()-answer.GetNowMs()))
		}
		t.Row(h.GetWorkspace(), h.GetNamespace(), h.GetIdentifier(), h.GetKind(), format.Digits(h.GetAmount()),
			cmp.Or(h.GetHolder(), "-"), h.GetRegion(), h.GetNode(), format.Span(max(0, answer.GetNowMs()-h.GetSinceMs())), ends)
	}
	t.Flush()
	_, _ = fmt.Fprintf(w, "\nas %s reported, up to %s ago; each reports its oldest leases and reservations\n",
		format.Plural(int64(answer.GetNodes()), "node"), format.Span(answer.GetOldestMs()))
	writeReporting(w, answer)
}

// writeReporting prints which reports a response lacks.
func writeReporting(w io.Writer, answer interface {
	GetNodesUnreadable() int32
	GetTruncated() bool
}) {
	if n := answer.GetNodesUnreadable(); n > 0 {
		_, _ = fmt.Fprintf(w, "the reports of %s could not be read, in whole or in part\n", format.Plural(int64(n), "node"))
	}
	if answer.GetTruncated() {
		_, _ = fmt.Fprintln(w, "the fleet has more nodes than one answer covers: these reported last")
	}
}
