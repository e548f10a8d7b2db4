package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/explanation"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/strict"
)

// explainKey calls nodes directly, because the counts that decide are in a node's memory and the control plane has no
// addresses of nodes. Nodes do not get the API's token.
type explainKey struct {
	space
	Identifier    string        `arg:"" help:"The identifier."`
	Limit         int64         `required:"" placeholder:"LIMIT" help:"The limit in the callers' requests."`
	Duration      time.Duration `help:"The window in the callers' requests (1s to 8784h). Required without --leases."`
	Leases        bool          `help:"Explain a concurrency limit: LIMIT leases at once."`
	Cost          int64         `default:"1" help:"The cost of the request; 0: a request that counts nothing."`
	Node          []string      `env:"WEIR_NODE" default:"http://127.0.0.1:7001" placeholder:"URL" help:"Address of a node (default ${default}). Repeat it to compare nodes."`
	NodeTokenFile string        `env:"WEIR_NODE_TOKEN_FILE" placeholder:"FILE" help:"File with a bearer token for calls to the nodes. Default: the environment variable WEIR_NODE_TOKEN."`
}

// nodesMax bounds the nodes that are called concurrently and shown side by side.
const nodesMax = 16

// Run calls the nodes and prints their explanations.
func (e explainKey) Run(c *call) error {
	if len(e.Node) > nodesMax {
		return &hinted{fmt.Errorf("%d nodes (1 to %d)", len(e.Node), nodesMax), exitUsage, "Name fewer with --node."}
	}
	for _, node := range e.Node {
		if err := strict.URL("--node", node); err != nil {
			return &hinted{err, exitUsage, "Name the address where the node serves calls."}
		}
	}
	if !e.Leases && e.Duration == 0 {
		return &hinted{errors.New("--duration is missing"), exitUsage, "Name the window, or --leases."}
	}
	if e.Leases && (e.Duration != 0 || e.Cost != 1) {
		return &hinted{errors.New("--duration and --cost are for rates, --leases explains a concurrency limit"), exitUsage,
			"Leave them out, or --leases."}
	}
	token, err := e.token()
	if err != nil {
		return &hinted{err, exitUsage, "Correct --node-token-file."}
	}
	client := &http.Client{Transport: bearer{c.transport, token}}
	all := make([]explanation.Node, len(e.Node))
	var asking sync.WaitGroup
	for i, node := range e.Node {
		asking.Go(func() { all[i] = e.ask(c.ctx, client, node) })
	}
	asking.Wait()
	var first error
	var answered []explanation.Node
	for _, a := range all {
		switch {
		case a.Err == nil:
			answered = append(answered, a)
		case first == nil:
			first = nodeTold(a)
		default:
			c.fail(nodeTold(a), 0, "")
		}
	}
	if c.form.documents() {
		err = c.printNodes(all)
	} else if len(answered) > 0 && e.Leases {
		explanation.WriteLeases(c.stdout, answered)
	} else if len(answered) > 0 {
		explanation.Write(c.stdout, answered)
	}
	return errors.Join(first, err)
}

func (e explainKey) token() (string, error) {
	if e.NodeTokenFile == "" {
		return strings.TrimSpace(os.Getenv("WEIR_NODE_TOKEN")), nil
	}
	text, err := strict.Line("--node-token-file", e.NodeTokenFile)
	return strings.TrimSpace(text), err
}

func (e explainKey) ask(ctx context.Context, client *http.Client, node string) explanation.Node {
	service := weirv1connect.NewRateLimitServiceClient(client, node, connect.WithReadMaxBytes(1<<20))
	if e.Leases {
		answer, err := apiclient.Ask(ctx, service.ExplainLease, &weirv1.ExplainLeaseRequest{Workspace: e.Workspace,
			Namespace: e.Namespace, Identifier: e.Identifier, Limit: e.Limit})
		return explanation.Node{Address: node, Leases: answer, Err: err}
	}
	answer, err := apiclient.Ask(ctx, service.Explain, &weirv1.ExplainRequest{
		Workspace: e.Workspace, Namespace: e.Namespace, Identifier: e.Identifier,
		Limit: e.Limit, DurationMs: e.Duration.Milliseconds(), Cost: e.Cost, ZeroCost: e.Cost == 0,
	})
	return explanation.Node{Address: node, Answer: answer, Err: err}
}

// nodeTold returns the error of a node without an explanation, with the next step.
func nodeTold(a explanation.Node) error {
	t := &hinted{fmt.Errorf("%s: %s", a.Address, apiclient.Words(a.Err)), exitFailure, "The cause is in the node's log."}
	switch connect.CodeOf(a.Err) {
	case connect.CodeInvalidArgument:
		t.code, t.hint = exitUsage, "Correct it and try again; see weirctl explain --help."
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		t.hint = "Set WEIR_NODE_TOKEN or --node-token-file to a token of the node's tokens-file."
	case connect.CodeUnimplemented:
		t.hint = "A node serves calls at another address (its listen option), or it is older than this weirctl."
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeCanceled:
		t.code, t.hint = exitUnreachable,
			"Name the address where the node serves calls with --node or WEIR_NODE; see --ca, --cert and --key where it "+
				"requires TLS."
	}
	return t
}

// printNodes prints a document with the explanations of all nodes.
func (c *call) printNodes(all []explanation.Node) error {
	type said struct {
		Node        string          `json:"node"`
		Explanation json.RawMessage `json:"explanation,omitempty"`
		Error       string          `json:"error,omitempty"`
	}
	var document struct {
		Nodes []said `json:"nodes"`
	}
	for _, a := range all {
		s := said{Node: a.Address}
		if a.Err != nil {
			s.Error = a.Err.Error()
		} else {
			b, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(a.Message())
			if err != nil {
				return err
			}
			s.Explanation = b
		}
		document.Nodes = append(document.Nodes, s)
	}
	return c.document(document)
}
