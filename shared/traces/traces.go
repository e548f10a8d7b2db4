// Package traces sends OpenTelemetry spans of calls and of background work to a collector. Programs use it if their
// environment names a collector, in the standard way:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 weir-node
//
// Spans are sent by OTLP over HTTP, in the background and in batches. If the collector is slow or gone, spans are
// dropped, and no call waits. Other variables of the standard also apply: OTEL_EXPORTER_OTLP_HEADERS and _CERTIFICATE,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER=none and OTEL_TRACES_SAMPLER. A
// value that the standard does not have is an error.
//
// Without OTEL_TRACES_SAMPLER, a call is traced if its caller's trace is, as its traceparent header shows. Background
// work is always traced. A rate limiter receives every request of a fleet: if it began traces by itself, its own traces
// would be most of all traces.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir/shared/strict"
)

// Traces makes spans. A nil *Traces makes none: you can call all of its methods, at no cost. All methods are safe for
// concurrent use.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Process identifies the program that sends spans.
type Process struct {
	Service, Version string
	Instance         string // empty: not in the spans
	Region           string // empty: not in the spans
}

// Open reads the environment. It returns nil if no collector is configured, and an error if the variables are
// incomplete or invalid. It does not call the collector.
func Open(ctx context.Context, p Process, log *slog.Logger) (*Traces, error) {
	if !wanted() {
		return nil, nil
	}
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_…: %w", err)
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(p.attributes()...),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	options := []sdk.TracerProviderOption{sdk.WithBatcher(&quietly{SpanExporter: exporter, log: log}),
		sdk.WithResource(from)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdk.WithSampler(sdk.ParentBased(ownWork{})))
	}
	provider := sdk.NewTracerProvider(options...)
	return &Traces{provider: provider, tracer: provider.Tracer("github.com/weirhq/weir")}, nil
}

func wanted() bool {
	// OpenTelemetry ignores the case of this variable
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// checkEnvironment rejects values that OpenTelemetry would replace by its defaults, which send every trace, or send
// traces elsewhere.
func checkEnvironment() error {
	for _, v := range []struct {
		name  string
		known []string
	}{
		{"OTEL_TRACES_EXPORTER", []string{"otlp"}},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", []string{"http/protobuf"}},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", []string{"http/protobuf"}},
		{"OTEL_TRACES_SAMPLER", []string{"always_on", "always_off", "traceidratio", "parentbased_always_on",
			"parentbased_always_off", ratioOfParent}},
	} {
		if value := os.Getenv(v.name); value != "" && !slices.Contains(v.known, value) {
			return fmt.Errorf("%s is %s (one of: %s)", v.name, strict.Quote(value), strings.Join(v.known, ", "))
		}
	}
	const argument = "OTEL_TRACES_SAMPLER_ARG"
	sampler := os.Getenv("OTEL_TRACES_SAMPLER")
	if ratio := os.Getenv(argument); ratio != "" && (sampler == "traceidratio" || sampler == ratioOfParent) {
		_, err := strict.Float(argument, ratio, 0, 1)
		return err
	}
	return nil
}

const ratioOfParent = "parentbased_traceidratio"

func (p *Process) attributes() (all []attribute.KeyValue) {
	for _, a := range []attribute.KeyValue{
		attribute.String("service.name", p.Service), attribute.String("service.version", p.Version),
		attribute.String("service.instance.id", p.Instance), attribute.String("weir.region", p.Region),
	} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	return all
}

// Handler is h with a span for each call that has a name. Calls without a name are not traced.
func (t *Traces) Handler(h http.Handler, name func(*http.Request) string) http.Handler {
	return t.handler(h, name, trace.SpanKindServer)
}

// Work is Handler for calls by which a queue or a scheduler hands out work that may begin a
// trace.
func (t *Traces) Work(h http.Handler, name func(*http.Request) string) http.Handler {
	return t.handler(h, name, trace.SpanKindConsumer)
}

func (t *Traces) handler(h http.Handler, name func(*http.Request) string, kind trace.SpanKind) http.Handler {
	if t == nil {
		return h
	}
	return otelhttp.NewHandler(h, "", otelhttp.WithSpanOptions(trace.WithSpanKind(kind)),
		otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool { return name(r) != "" }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return name(r) }))
}

// Transport is base with a span for each call that is part of a trace; the call carries the trace to the
// server.
func (t *Traces) Transport(base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsSampled() }))
}

// Provider returns the provider for other packages' instrumentation. It returns nil on nil.
func (t *Traces) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Turn begins the span of a turn of background work. Call end once, with the turn's error or nil.
func (t *Traces) Turn(ctx context.Context, name string) (within context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Close sends the remaining spans until ctx ends.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// ownWork samples spans that begin a trace: background work, and no calls.
type ownWork struct{}

func (ownWork) Description() string { return "OwnWork" }

func (ownWork) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Kind == trace.SpanKindServer {
		return sdk.SamplingResult{Decision: sdk.Drop}
	}
	return sdk.SamplingResult{Decision: sdk.RecordAndSample}
}

// quietly logs when the collector stops accepting spans and when it accepts them again, and nothing in between.
type quietly struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

func (q *quietly) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && !q.failing.Swap(true):
		q.log.Warn("the collector does not take spans; they are dropped", "error", err)
	case err == nil && q.failing.Swap(false):
		q.log.Info("the collector takes spans again")
	}
	return nil
}
