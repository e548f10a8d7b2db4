package gubernator

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/bounded"
)

// BodyMax bounds the body of an HTTP request, in bytes: a thousand requests with the longest names are less.
const BodyMax = 1 << 20

var (
	read  = protojson.UnmarshalOptions{DiscardUnknown: true}
	write = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
)

// Handler serves gubernator's HTTP API: POST /v1/GetRateLimits, GET /v1/HealthCheck and GET /v1/LiveCheck. It bounds
// bodies. The http.Server should bound time and connections, and a handler around this handler the calls at once.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/GetRateLimits", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, BodyMax))
		in := &v1.GetRateLimitsReq{}
		if err == nil {
			err = wire.UnmarshalJSONWith(read, body, in)
		}
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			answer(w, nil, status.Errorf(codes.InvalidArgument, "the body is longer than %d bytes", BodyMax))
			return
		} else if err != nil {
			answer(w, nil, status.Error(codes.InvalidArgument, err.Error()))
			return
		}
		place := bounded.PlaceOf(r.Context())
		place.Leave() // requests may wait for Redis
		out, err := s.GetRateLimits(r.Context(), in)
		place.Return(r.Context())
		answer(w, out, err)
	})
	mux.HandleFunc("GET /v1/HealthCheck", look(s.HealthCheck))
	mux.HandleFunc("GET /v1/LiveCheck", look(s.LiveCheck))
	return mux
}

func look[In, Out any](of func(context.Context, *In) (*Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := of(r.Context(), new(In))
		message, _ := any(out).(proto.Message)
		answer(w, message, err)
	}
}

// Refuse answers a call that does not reach Handler, as this API does. err has a status of gRPC's.
func Refuse(w http.ResponseWriter, err error) { answer(w, nil, err) }

func answer(w http.ResponseWriter, out proto.Message, err error) {
	said := status.Convert(err)
	if err != nil {
		out = said.Proto()
	}
	text, err := write.Marshal(out)
	code := runtime.HTTPStatusFromCode(said.Code())
	if err != nil {
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // a caller who has left needs none
}
