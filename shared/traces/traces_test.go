package traces_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weirhq/weir/shared/traces"
	"github.com/weirhq/weir/shared/traces/tracestest"
)

func open(t *testing.T) *traces.Traces {
	t.Helper()
	all, err := traces.Open(t.Context(), traces.Process{Service: "weir-test", Version: "v1", Instance: "a", Region: "eu"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func call(h http.Handler, path, traceparent string) {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// A call is traced if its caller's trace is, and background work always.
func TestSpansArrive(t *testing.T) {
	s := tracestest.NewSink(t)
	all := open(t)
	h := all.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if byPath(r) != "" {
			_, end := all.Turn(r.Context(), "within")
			end(nil)
		}
	}), byPath)
	call(h, "/traced", tracestest.Parent)
	call(h, "/not", "")
	call(h, "/nor", strings.TrimSuffix(tracestest.Parent, "1")+"0")
	call(h, "/", tracestest.Parent) // has no name
	call(all.Work(http.NotFoundHandler(), byPath), "/work", "")
	_, end := all.Turn(t.Context(), "turn")
	end(errors.New("no luck"))
	if err := all.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"traced", "turn", "within", "work"}) {
		t.Errorf("spans %q", got)
	}
	for _, span := range s.Spans() {
		switch span.GetName() {
		case "traced":
			if !bytes.Equal(span.GetParentSpanId(), []byte("\xb7\xad\x6b\x71\x69\x20\x33\x31")) {
				t.Errorf("its parent is %x", span.GetParentSpanId())
			}
		case "turn":
			if span.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || span.GetStatus().GetMessage() != "no luck" {
				t.Errorf("turn ended with %v", span.GetStatus())
			}
		}
	}
	for key, want := range map[string]string{"service.name": "weir-test", "service.version": "v1", "service.instance.id": "a", "weir.region": "eu"} {
		if s.From()[key] != want {
			t.Errorf("%s is %q, want %q", key, s.From()[key], want)
		}
	}
}

// OTEL_TRACES_SAMPLER replaces the default sampler: always_on traces every call.
func TestTheEnvironmentHasTheLastWord(t *testing.T) {
	s := tracestest.NewSink(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_SERVICE_NAME", "edge")
	all := open(t)
	call(all.Handler(http.NotFoundHandler(), byPath), "/call", "")
	if err := all.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"call"}) || s.From()["service.name"] != "edge" {
		t.Errorf("spans %q of %q", got, s.From()["service.name"])
	}
}

// Calls to other services carry their caller's trace. Without a trace they make no span.
func TestTracesGoOn(t *testing.T) {
	s := tracestest.NewSink(t)
	all := open(t)
	var heard []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		heard = append(heard, r.Header.Get("Traceparent"))
	}))
	t.Cleanup(server.Close)
	ask := func(ctx context.Context) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		answer, err := all.Transport(http.DefaultTransport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	ask(t.Context())
	ctx, end := all.Turn(t.Context(), "turn")
	ask(ctx)
	end(nil)
	if err := all.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"HTTP GET", "turn"}) || len(heard) != 2 || heard[0] != "" || !strings.HasSuffix(heard[1], "-01") {
		t.Errorf("spans %q, traces told %q", got, heard)
	}
}

// A value that OpenTelemetry would replace by its default is an error, which names the variable.
func TestAVariableThatCannotBeRead(t *testing.T) {
	for variable, values := range map[string]map[string]bool{
		"OTEL_TRACES_EXPORTER":        {"otlp": true, "console": false, "OTLP ": false},
		"OTEL_EXPORTER_OTLP_PROTOCOL": {"http/protobuf": true, "grpc": false},
		"OTEL_TRACES_SAMPLER":         {"always_off": true, "traceidratio": true, "traceidration": false, "always on": false},
		"OTEL_TRACES_SAMPLER_ARG":     {"0.5": true, "0": true, "0,5": false, "2": false, "10%": false},
	} {
		for value, right := range values {
			t.Run(variable+"="+value, func(t *testing.T) {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
				t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
				t.Setenv(variable, value)
				all, err := traces.Open(t.Context(), traces.Process{Service: "weir-test"}, slog.New(slog.DiscardHandler))
				if (err == nil) != right || err != nil && !strings.Contains(err.Error(), variable) {
					t.Errorf("%v", err)
				}
				if err := all.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Without a collector there is nothing: no span, no wrapper, no goroutine.
func TestWithoutACollectorNothingIsTraced(t *testing.T) {
	for name, env := range map[string][2]string{
		"no endpoint": {"OTEL_SERVICE_NAME", "x"},
		"disabled":    {"OTEL_SDK_DISABLED", "true"},
		"DISABLED":    {"OTEL_SDK_DISABLED", "TRUE"},
		"none":        {"OTEL_TRACES_EXPORTER", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "no endpoint" {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			}
			t.Setenv(env[0], env[1])
			all := open(t)
			h := http.NewServeMux()
			if all != nil || all.Handler(h, byPath) != http.Handler(h) || all.Transport(http.DefaultTransport) != http.DefaultTransport || all.Provider() != nil {
				t.Error("something is there")
			}
			ctx, end := all.Turn(t.Context(), "turn")
			end(nil)
			if ctx != t.Context() || all.Close(ctx) != nil {
				t.Error("a turn was traced")
			}
		})
	}
}

// A collector that is gone is logged once, and only spans are lost.
func TestALostCollectorIsToldOfOnce(t *testing.T) {
	s := tracestest.NewSink(t)
	s.Refuse()
	var log bytes.Buffer
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	all, err := traces.Open(t.Context(), traces.Process{Service: "weir-test"}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, end := all.Turn(t.Context(), "turn")
		end(nil)
	}
	if err := all.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "does not take spans") {
		t.Errorf("logged %q", &log)
	}
}
