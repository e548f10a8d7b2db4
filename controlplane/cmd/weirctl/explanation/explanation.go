// Package explanation prints nodes' explanations of a key: each term of their decisions, its source and its age.
package explanation

import (
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// Node is a node with its explanation or error.
type Node struct {
	Address string
	Answer  *weirv1.ExplainResponse      // nil for leases
	Leases  *weirv1.ExplainLeaseResponse // nil for a rate
	Err     error
}

// Message returns the explanation.
func (a Node) Message() Summarized {
	if a.Leases != nil {
		return a.Leases
	}
	return a.Answer
}

// Summarized is an explanation of either kind.
type Summarized interface {
	proto.Message
	GetSummary() string
}

// Write prints the terms of all nodes side by side.
func Write(w io.Writer, nodes []Node) {
	t := format.NewTable(w)
	head := []string{"TERM"}
	for _, n := range nodes {
		name := "VALUE"
		if len(nodes) > 1 {
			name = n.Address
		}
		head = append(head, name, "AGE")
	}
	t.Row(append(head, "FROM")...)
	for _, term := range terms {
		cells := []string{term.name}
		for _, n := range nodes {
			age := "-"
			if ms := term.atMs(n.Answer); ms > 0 {
				age = format.Span(max(0, n.Answer.GetAtMs()-ms))
			}
			cells = append(cells, term.value(n.Answer), age)
		}
		if slices.ContainsFunc(nodes, func(n Node) bool { return term.value(n.Answer) != "" }) {
			t.Row(append(cells, term.from)...)
		}
	}
	t.Flush()
	writeSummaries(w, nodes)
}

// writeSummaries prints each node's summary.
func writeSummaries(w io.Writer, nodes []Node) {
	for _, n := range nodes {
		begin := ""
		if len(nodes) > 1 {
			begin = n.Address + ": "
		}
		_, _ = fmt.Fprintln(w)
		format.Prose(w, begin, n.Message().GetSummary())
	}
}
