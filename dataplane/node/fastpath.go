package node

import (
	"math"
	"net/http"
	"strconv"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// fastpathBytesMax bounds a body that fastpath looks at.
const fastpathBytesMax = 2 << 10

// fastpath responds to the calls that nearly all callers without generated code make: Limit in plain JSON, without a
// fault. Its response equals connect's byte for byte, at half the cost. All other calls are left to connect: calls with
// an escape, a deadline, an unknown field, or a value out of its bounds. Tests check that both give the same responses.
func (g *gate) fastpath(w http.ResponseWriter, r *http.Request, body []byte) (answered bool) {
	if g.service.all == nil || !fastpathTakes(r) {
		return false
	}
	request, ok := readFastpath(body)
	if !ok {
		return false
	}
	decision := g.service.limiter(r.Context()).Allow(r.Context(), request.Request)
	if decision.Err != nil { // nothing was counted, and nothing will be
		return false
	}
	writeFastpath(w, decision)
	return true
}

func fastpathTakes(r *http.Request) bool {
	h := r.Header
	contentType := h["Content-Type"]
	if r.URL.Path != weirv1connect.RateLimitServiceLimitProcedure || r.Method != http.MethodPost ||
		len(contentType) != 1 || contentType[0] != "application/json" ||
		r.ContentLength <= 0 || r.ContentLength > fastpathBytesMax {
		return false
	}
	for _, name := range [...]string{"Content-Encoding", "Connect-Timeout-Ms", "Connect-Protocol-Version"} {
		if value := h[name]; len(value) > 0 && (name != "Connect-Protocol-Version" || len(value) > 1 || value[0] != "1") {
			return false
		}
	}
	return true
}

// writeFastpath writes a decision exactly as jsonCodec would.
func writeFastpath(w http.ResponseWriter, d dataplane.Decision) {
	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Accept-Encoding"] = acceptsGzip
	if seconds := retryAfterSeconds(d); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	var room [512]byte
	_, _ = w.Write(appendFastpath(room[:0], d))
}

// Shared by all answers: net/http only reads them.
var (
	jsonContentType = []string{"application/json"}
	acceptsGzip     = []string{"gzip"}
)

func appendFastpath(b []byte, d dataplane.Decision) []byte {
	if !fastpathFloat(d.Current) || !fastpathString(d.Override) {
		written, _ := jsonCodec{}.MarshalAppend(b, writeDecision(d)) // cannot fail: there is no text but Override
		return written
	}
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = appendQuoted(b, `,"limit":"`, d.Limit)
	b = appendQuoted(b, `","remaining":"`, d.Remaining)
	b = appendQuoted(b, `","reset_at_ms":"`, d.ResetAt.UnixMilli())
	b = appendQuoted(b, `","retry_after_ms":"`, retryAfterMs(d))
	b = append(b, `","current":`...)
	b = strconv.AppendFloat(b, d.Current, 'f', -1, 64)
	b = append(b, `,"source":"`...)
	b = append(b, writeSource(d.Source).String()...)
	b = append(b, `","shadowed":`...)
	b = strconv.AppendBool(b, d.Shadowed)
	b = append(b, `,"override":"`...)
	b = append(b, d.Override...)
	b = append(b, `","candidate_denied":`...)
	b = strconv.AppendBool(b, d.CandidateDenied)
	b = appendQuoted(b, `,"duration_ms":"`, d.Duration.Milliseconds())
	b = append(b, `","never_passes":`...)
	b = strconv.AppendBool(b, d.NeverPasses)
	return append(b, '}')
}

func appendQuoted(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

// fastpathFloat reports whether JSON writes f without an exponent.
func fastpathFloat(f float64) bool {
	return f == 0 && !math.Signbit(f) || f >= 1e-6 && f < 1e21
}

// fastpathString reports whether JSON writes s without escapes.
func fastpathString[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
