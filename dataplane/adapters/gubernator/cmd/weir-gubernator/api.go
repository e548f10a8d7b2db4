package main

import (
	"fmt"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/adapters/gubernator"
	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/node/nodecmd"
	"github.com/weirhq/weir/shared/bounded"
)

// program returns a node with gubernator's V1 API.
func (s *settings) program() nodecmd.Program {
	return nodecmd.Program{Name: name, API: s.api, Settings: names, CallsPublic: true, TLSVersionMin: s.tlsVersionMin,
		GRPCConnectionAge: s.connectionAge}
}

func (s *settings) api(l *dataplane.Limiter) (*node.API, error) {
	server, err := gubernator.New(l, s.workspace)
	if err != nil {
		return nil, err
	}
	return &node.API{
		Service: &v1.V1_ServiceDesc,
		Server:  server,
		HTTP:    server.Handler(),
		Refuse:  gubernator.Refuse,

		Workspace: s.workspace,
		Methods: []node.Method{
			{Name: "GetRateLimits", Path: "/v1/GetRateLimits", Label: "gubernator.GetRateLimits",
				BytesMax: gubernator.BodyMax, CheckMessage: checkMessage, CheckBody: checkBody},
			{Name: "HealthCheck", Path: "/v1/HealthCheck", Probe: true},
			{Name: "LiveCheck", Path: "/v1/LiveCheck", Probe: true},
		},
		ProbeListen: s.probeListen,
		Draining:    server.Drain,
	}, nil
}

// Numbers of GetRateLimitsReq.requests, and of a request's metadata.
const (
	requestsField = 1
	metadataField = 9
)

// metadataMax is how many entries of metadata the requests of a call may have together: each takes eight times its
// length.
const metadataMax = 16 * gubernator.ItemsMax

func checkMessage(message []byte) error {
	if n := node.FieldsIn(message, requestsField); n > gubernator.ItemsMax {
		return &tooMany{fmt.Sprintf("requests holds %d items (at most %d)", n, gubernator.ItemsMax)}
	}
	if n := node.NestedIn(message, requestsField, metadataField); n > metadataMax {
		return &tooMany{fmt.Sprintf("metadata holds %d entries (at most %d)", n, metadataMax)}
	}
	return nil
}

// membersMax is how many members they may have: a request has ten fields.
const membersMax = 1 + 10*gubernator.ItemsMax + metadataMax

// objectsMax is how many objects a body may hold: the body itself, and for each request the request and its metadata.
// The server counts the requests.
const objectsMax = 1 + 2*gubernator.ItemsMax

func checkBody(body []byte) error {
	if n := node.ObjectsIn(body); n > objectsMax {
		return &tooMany{fmt.Sprintf("the body holds %d objects (at most %d)", n, objectsMax)}
	}
	if n := node.MembersIn(body); n > membersMax {
		return &tooMany{fmt.Sprintf("the body's objects hold %d members (at most %d)", n, membersMax)}
	}
	return nil
}

// tooMany is a refusal with the code that gubernator gives it.
type tooMany struct{ message string }

func (t *tooMany) Error() string { return t.message }

func (t *tooMany) Unwrap() error {
	return &bounded.Refusal{Bound: bounded.BoundItems, Message: t.message}
}

// GRPCStatus makes it a status of gRPC.
func (t *tooMany) GRPCStatus() *status.Status { return status.New(codes.OutOfRange, t.message) }
