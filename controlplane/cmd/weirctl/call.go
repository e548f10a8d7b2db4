package main

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/contexts"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// call is what a command needs to do its work.
type call struct {
	terminal
	ctx         context.Context // ends after --timeout, which bounds all calls of a command
	cancel      context.CancelFunc
	timeout     time.Duration
	patient     context.Context // not, for commands that watch
	api         controlv1connect.ControlServiceClient
	rollouts    controlv1connect.RolloutServiceClient
	retirements controlv1connect.RetirementServiceClient
	tokens      controlv1connect.TokenServiceClient
	settings    controlv1connect.SettingsServiceClient
	keys        controlv1connect.TopKeysServiceClient
	health      controlv1connect.HealthServiceClient
	audit       controlv1connect.AuditServiceClient
	form        form
	dryRun      bool
	yes         bool            // what cannot be undone is confirmed
	transport   *http.Transport // without a token
	fleet       contexts.Flags
}

// connect prepares calls to the API that flags and context name. It makes none.
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
	client, api := &http.Client{Transport: bearer{c.transport, token}}, c.fleet.API
	before := connect.UnaryInterceptorFunc(c.confirmed)
	if c.dryRun {
		before = dryRun
	}
	options := connect.WithInterceptors(before)
	c.api = controlv1connect.NewControlServiceClient(client, api, options)
	c.rollouts = controlv1connect.NewRolloutServiceClient(client, api, options)
	c.retirements = controlv1connect.NewRetirementServiceClient(client, api, options)
	c.tokens = controlv1connect.NewTokenServiceClient(client, api, options)
	c.settings = controlv1connect.NewSettingsServiceClient(client, api, options)
	c.keys = controlv1connect.NewTopKeysServiceClient(client, api, options)
	c.health = controlv1connect.NewHealthServiceClient(client, api, options)
	c.audit = controlv1connect.NewAuditServiceClient(client, api, options)
	return "", nil
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
