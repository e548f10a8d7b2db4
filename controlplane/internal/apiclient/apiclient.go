// Package apiclient has the clients of all services of the operators' API, for weirctl and the console.
package apiclient

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// Clients has a client of each service.
type Clients struct {
	Control     controlv1connect.ControlServiceClient
	Rollouts    controlv1connect.RolloutServiceClient
	Retirements controlv1connect.RetirementServiceClient
	Tokens      controlv1connect.TokenServiceClient
	Settings    controlv1connect.SettingsServiceClient
	TopKeys     controlv1connect.TopKeysServiceClient
	Health      controlv1connect.HealthServiceClient
	Audit       controlv1connect.AuditServiceClient
}

// New returns clients of the API at a URL.
func New(client connect.HTTPClient, api string, options ...connect.ClientOption) Clients {
	return Clients{
		Control:     controlv1connect.NewControlServiceClient(client, api, options...),
		Rollouts:    controlv1connect.NewRolloutServiceClient(client, api, options...),
		Retirements: controlv1connect.NewRetirementServiceClient(client, api, options...),
		Tokens:      controlv1connect.NewTokenServiceClient(client, api, options...),
		Settings:    controlv1connect.NewSettingsServiceClient(client, api, options...),
		TopKeys:     controlv1connect.NewTopKeysServiceClient(client, api, options...),
		Health:      controlv1connect.NewHealthServiceClient(client, api, options...),
		Audit:       controlv1connect.NewAuditServiceClient(client, api, options...),
	}
}

// Words returns the message of an API's error, without the name of its code.
func Words(err error) string {
	if coded := new(connect.Error); errors.As(err, &coded) && coded.Message() != "" {
		return coded.Message()
	}
	return err.Error()
}

// RPC is the method of a client.
type RPC[Q, A any] func(context.Context, *connect.Request[Q]) (*connect.Response[A], error)

// Ask calls an RPC and returns the message of its answer.
func Ask[Q, A any](ctx context.Context, rpc RPC[Q, A], msg *Q) (*A, error) {
	answer, err := rpc(ctx, connect.NewRequest(msg))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}
