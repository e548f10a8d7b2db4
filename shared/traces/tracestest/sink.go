// Package tracestest is a collector of spans for tests.
package tracestest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Parent is a traceparent header of a trace that is sampled.
const Parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Sink is a collector that keeps the spans it receives. All methods are safe for concurrent use.
type Sink struct {
	mu    sync.Mutex
	down  bool
	spans []*otlp.Span
	from  map[string]string
}

// NewSink serves a sink on a port of loopback until the test ends, and has the environment
// name it.
func NewSink(t *testing.T) *Sink {
	t.Helper()
	s := &Sink{from: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(s.take))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return s
}

func (s *Sink) take(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if s.down || err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			s.from[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			s.spans = append(s.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Refuse makes the sink take nothing from now on.
func (s *Sink) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
}

// Names returns the names of all spans so far, sorted.
func (s *Sink) Names() (names []string) {
	for _, span := range s.Spans() {
		names = append(names, span.GetName())
	}
	slices.Sort(names)
	return names
}

// Spans returns all spans so far.
func (s *Sink) Spans() []*otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.spans)
}

// From returns the attributes that identify the spans' process, by the standard's names.
func (s *Sink) From() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.from)
}
