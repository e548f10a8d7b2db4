package node

import (
	"maps"
	"net/http"
	"path"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/bounded"
)

// codeOK is the label of an answered call, a denial included. All other labels
// are connect's names of its codes.
const codeOK = "ok"

// codesPublished are the codes with which a call can end. Each is shown at 0 from the start. Other codes are counted as
// unknown.
var codesPublished = []string{
	codeOK,
	connect.CodeCanceled.String(),
	connect.CodeUnknown.String(),
	connect.CodeInvalidArgument.String(),
	connect.CodeDeadlineExceeded.String(),
	connect.CodeResourceExhausted.String(), // a message that is too long, from gRPC
	connect.CodeOutOfRange.String(),        // too many items, from gRPC for a further API
	connect.CodeUnimplemented.String(),     // wrong HTTP method, media type or compression
	connect.CodeInternal.String(),
	connect.CodeUnauthenticated.String(),  // no token, or an invalid token
	connect.CodeUnavailable.String(),      // see the Help of weir_rpc_requests_total
	connect.CodeNotFound.String(),         // an override that is not there
	connect.CodePermissionDenied.String(), // overrides on a node that does not change them
}

// durationBuckets are seconds: from a decision out of memory to a cold read that
// ran into its deadline.
var durationBuckets = []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}

// metrics are the server's own metrics; the limiter has its own. Handles are resolved once here, so that a call looks
// up only its path.
type metrics struct {
	inFlight prometheus.Gauge
	panics   prometheus.Counter
	streamed prometheus.Counter
	reloads  *prometheus.CounterVec
	refused  map[bounded.Bound]prometheus.Counter
	calls    map[string]callMetrics // by path of the procedure
}

type callMetrics struct {
	seconds prometheus.Observer
	byCode  map[string]prometheus.Counter
}

// newMetrics has labels for the methods of a further API, by procedure and path.
func newMetrics(registerer prometheus.Registerer, further map[string]string) (*metrics, error) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rpc_requests_total",
		Help: "Calls answered, by method and code. A denial is ok. unavailable: no slot or memory was left, the origin " +
			"did not answer a call about a reservation or lease, or the connection's certificate is no longer accepted.",
	}, []string{"method", "code"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "weir_rpc_seconds",
		Help:    "Time from a call's headers to its answer, by method, without shed calls.",
		Buckets: durationBuckets,
	}, []string{"method"})
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rpc_in_flight",
			Help: "Calls being served now.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_rpc_panics_total",
			Help: "Calls that ended in a panic and were answered as internal.",
		}),
		streamed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_rpc_stream_requests_total",
			Help: "Requests answered within streams; weir_rpc_requests_total counts the streams.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reloads_total",
			Help: "Changes of watched files, by content and outcome; after an error the last good files stay in force.",
		}, []string{"what", "outcome"}),
		refused: make(map[bounded.Bound]prometheus.Counter),
		calls:   make(map[string]callMetrics),
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_refused_total",
		Help: "Connections that the node closed and calls that it refused to stay within a bound, by that bound.",
	}, []string{"bound"})
	for _, bound := range bounded.Bounds {
		m.refused[bound] = refused.WithLabelValues(string(bound))
	}
	for _, collector := range []prometheus.Collector{refused, requests, seconds, m.inFlight, m.panics,
		m.streamed, m.reloads} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	methods := map[string]string{rls.Procedure: path.Base(rls.Procedure)}
	for procedure := range actions {
		methods[procedure] = path.Base(procedure)
	}
	for _, procedure := range kuadrantProcedures {
		methods[procedure] = "kuadrant." + path.Base(procedure)
	}
	for name, route := range routes.Paths {
		methods[route] = "v2." + name
	}
	maps.Copy(methods, further)
	for procedure, method := range methods {
		call := callMetrics{byCode: make(map[string]prometheus.Counter)}
		if procedure != streamProcedure { // a stream takes as long as its caller likes
			call.seconds = seconds.WithLabelValues(method)
		}
		for _, code := range codesPublished {
			call.byCode[code] = requests.WithLabelValues(method, code)
		}
		m.calls[procedure] = call
	}
	return m, nil
}

func (c callMetrics) count(code string) {
	counter, ok := c.byCode[code]
	if !ok {
		counter = c.byCode[connect.CodeUnknown.String()]
	}
	counter.Inc()
}

// observe does nothing for streams.
func (c callMetrics) observe(start time.Time) {
	if c.seconds != nil {
		c.seconds.Observe(time.Since(start).Seconds())
	}
}

// answerCode returns the code with which the call ended, from the caller's view: the status of gRPC if there is one, or
// else of HTTP. gRPC-Web has the status of a completed call in the body; the code is then ok.
func answerCode(header http.Header, status int) string {
	for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if value := header[name]; len(value) == 1 {
			return grpcCode(value[0])
		}
	}
	return httpCode(status)
}

func grpcCode(status string) string {
	n, err := strconv.ParseUint(status, 10, 8)
	switch {
	case err != nil:
		return connect.CodeUnknown.String()
	case n == 0:
		return codeOK
	}
	return connect.Code(n).String()
}

func httpCode(status int) string {
	switch status {
	case http.StatusOK:
		return codeOK
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return connect.CodeInvalidArgument.String()
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported: // a stream over HTTP/1.1
		return connect.CodeUnimplemented.String()
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated.String()
	case http.StatusForbidden:
		return connect.CodePermissionDenied.String()
	case http.StatusNotFound:
		return connect.CodeNotFound.String()
	case http.StatusTooManyRequests:
		return connect.CodeResourceExhausted.String()
	case 499:
		return connect.CodeCanceled.String()
	case http.StatusServiceUnavailable:
		return connect.CodeUnavailable.String()
	case http.StatusGatewayTimeout:
		return connect.CodeDeadlineExceeded.String()
	case http.StatusInternalServerError:
		return connect.CodeInternal.String()
	}
	return connect.CodeUnknown.String()
}
