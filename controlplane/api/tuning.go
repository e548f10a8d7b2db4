package api

import (
	"context"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// GetTuning answers the tuning in force.
func (s *service) GetTuning(ctx context.Context,
	_ *connect.Request[controlv1.GetTuningRequest]) (*connect.Response[controlv1.GetTuningResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	inForce, err := s.Tuning(ctx)
	if err != nil {
		return nil, s.fail(ctx, "GetTuning", err)
	}
	answer := &controlv1.GetTuningResponse{}
	for _, t := range inForce {
		answer.Tunings = append(answer.Tunings, &controlv1.RegionTuning{Region: valid(t.Region), Version: t.Version,
			Document: t.Document})
	}
	return connect.NewResponse(answer), nil
}
