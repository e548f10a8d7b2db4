package node

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// For any bytes in any protocol nothing panics, no error is the server's fault, and only valid requests reach the
// limiter.
func FuzzBodies(f *testing.F) {
	procedures := []string{weirv1connect.RateLimitServiceLimitProcedure, weirv1connect.RateLimitServiceLimitManyProcedure, weirv1connect.RateLimitServicePeekProcedure}
	contentTypes := []string{"application/json", "application/proto", "application/grpc", "application/grpc+json", "application/grpc-web", "application/grpc-web+json", "text/plain"}
	encodings := []string{"", "gzip", "br"}

	f.Add(uint8(0), uint8(0), uint8(0), []byte(minimal))
	f.Add(uint8(1), uint8(0), uint8(0), []byte(`{"requests":[`+minimal+`,{"limit":"1e3"}]}`))
	f.Add(uint8(2), uint8(1), uint8(0), []byte("\x0a\x01a\x12\x01b\x1a\x01c\x20\x05\x28\xe8\x07"))
	f.Add(uint8(0), uint8(2), uint8(0), []byte("\x00\x00\x00\x00\x0e\x0a\x01a\x12\x01b\x1a\x01c\x20\x05\x28\xe8\x07"))
	f.Add(uint8(0), uint8(4), uint8(0), []byte("\x80\xff\xff\xff\xff"))
	f.Add(uint8(0), uint8(0), uint8(1), []byte("\x1f\x8b\x08\x00"))
	f.Add(uint8(1), uint8(6), uint8(2), []byte{})

	check := func(r dataplane.Request) dataplane.Decision {
		if err := r.Validate(); err != nil {
			panic(err)
		}
		return dataplane.Decision{Allowed: true}
	}
	h := prepare(f, scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision { return check(r) },
		peek:  func(_ context.Context, r dataplane.Request) dataplane.Decision { return check(r) },
		many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
			if len(r) == 0 || len(r) > dataplane.BatchMax {
				panic(len(r))
			}
			batch := dataplane.Batch{Allowed: true}
			for _, r := range r {
				batch.Decisions = append(batch.Decisions, check(r))
			}
			return batch
		},
	})
	handler := h.calls.server.Handler
	f.Fuzz(func(t *testing.T, procedure, contentType, encoding uint8, body []byte) {
		r := httptest.NewRequest(http.MethodPost, procedures[int(procedure)%len(procedures)], bytes.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", contentTypes[int(contentType)%len(contentTypes)])
		for _, name := range []string{"Content-Encoding", "Grpc-Encoding"} {
			if e := encodings[int(encoding)%len(encodings)]; e != "" {
				r.Header.Set(name, e)
			}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
		if n := testutil.ToFloat64(h.gate.metrics.panics); n != 0 {
			t.Fatalf("panic: %s", h.log)
		}
	})
}
