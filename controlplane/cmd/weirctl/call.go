package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/contexts"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
)

// call has everything that a command needs.
type call struct {
	terminal
	ctx     context.Context // ends after --timeout, which bounds all calls of a command together
	cancel  context.CancelFunc
	timeout time.Duration
	patient context.Context // without --timeout, for commands that watch
	apiclient.Clients
	form      form
	dryRun    bool
	yes       bool            // --yes confirms changes that cannot be undone
	transport *http.Transport // without a token
	fleet     contexts.Flags
}

// connect prepares the clients for the API that flags and context select. It makes no call.
func (c *call) connect() (hint string, err error) {
	if err := c.fleet.Resolve(); err != nil {
		return "Correct --api, WEIR_API or the context: see weirctl context list.", err
	}
	token, err := c.fleet.Secret()
	if err != nil {
		return "See weirctl --help.", err
	}
	c.transport = http.DefaultTransport.(*http.Transport).Clone()
	if c.transport.TLSClientConfig, err = c.fleet.TLS(); err != nil {
		return "Correct --ca, --cert or --key.", err
	}
	before := connect.UnaryInterceptorFunc(c.confirmed)
	if c.dryRun {
		before = dryRun
	}
	c.Clients = apiclient.New(&http.Client{Transport: bearer{c.transport, token}}, c.fleet.API,
		connect.WithInterceptors(connect.UnaryInterceptorFunc(c.signed), before))
	return "", nil
}

// show calls an RPC and prints its response: as JSON or YAML for programs, and with write for people.
func show[Q, A any](c *call, rpc apiclient.RPC[Q, A], msg *Q, write func(io.Writer, *A)) error {
	answer, err := apiclient.Ask(c.ctx, rpc, msg)
	if err != nil {
		return err
	}
	return c.print(any(answer).(proto.Message), func(w io.Writer) { write(w, answer) })
}

// signed sets the actor of a change to the user of this machine if the change has no actor.
func (c *call) signed(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if msg, ok := req.Any().(operatorMessage); ok && msg.GetActor() == "" {
			actor, err := c.actor()
			if err != nil {
				return nil, err
			}
			fields := msg.ProtoReflect()
			fields.Set(fields.Descriptor().Fields().ByName("actor"), protoreflect.ValueOfString(actor))
		}
		return next(ctx, req)
	}
}

func (c *call) ago(unixMs int64) string {
	return format.Span(max(0, c.now().UnixMilli()-unixMs)) + " ago"
}

func (c *call) in(unixMs int64) string {
	left := unixMs - c.now().UnixMilli()
	if left <= 0 {
		return "now"
	}
	return "in " + format.Span(left)
}
