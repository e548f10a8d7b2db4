package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// operatorMessage is a request that makes a change. It has an actor and a reason; no other request has.
type operatorMessage interface {
	proto.Message
	GetActor() string
	GetReason() string
}

// unsent is a change that --dry-run did not send to the API.
type unsent struct {
	procedure string
	request   proto.Message
}

func (u *unsent) Error() string { return "--dry-run keeps " + u.procedure + " from the API" }

// dryRun returns an interceptor that sends reads, and fails the first change with an unsent.
func dryRun(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		procedure := req.Spec().Procedure
		if msg, ok := req.Any().(operatorMessage); ok {
			return nil, &unsent{procedure[strings.LastIndexByte(procedure, '/')+1:], msg}
		}
		return next(ctx, req)
	}
}

// shown prints an unsent change and returns nil. Other errors are returned as they are.
func (c *call) shown(err error) error {
	var u *unsent
	if !errors.As(err, &u) {
		return err
	}
	text, err := protojson.Marshal(u.request)
	if err != nil {
		return err
	}
	if c.form.documents() {
		return c.document(map[string]any{"dryRun": map[string]any{"call": u.procedure, "request": json.RawMessage(text)}})
	}
	fields, err := asYAML(text)
	if err != nil {
		return err
	}
	format.Head(c.stdout, "would call %s:", u.procedure)
	for line := range strings.Lines(string(fields)) {
		_, _ = fmt.Fprint(c.stdout, "  "+line)
	}
	format.Head(c.stdout, "--dry-run changes nothing")
	return nil
}
