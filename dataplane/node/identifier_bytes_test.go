package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// oddNames are identifiers as limited callers may send them, in JSON and as bytes.
var oddNames = []struct{ json, bytes string }{
	{strings.Repeat("x", 256), strings.Repeat("x", 256)},
	{strings.Repeat("x", 257), strings.Repeat("x", 257)},
	{strings.Repeat("é", 4000), strings.Repeat("é", 4000)},
	{`\ud800`, "\xed\xa0\x80"},
	{`\udfff\ud800`, "\xed\xbf\xbf\xed\xa0\x80"},
	{"\xff", "\xff"},
	{"\xfe", "\xfe"},
	{`\u0000`, "\x00"},
	{`�`, "�"},
	{`\\ud800`, `\ud800`},
}

// An identifier of any bytes is counted, by every protocol under the same key, and apart from others.
func TestIdentifiersOfAnyBytesAreCounted(t *testing.T) {
	seen := make(chan string, 1)
	h := start(t, scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
			seen <- r.Identifier
			return dataplane.Decision{Allowed: true, Err: r.Validate()}
		},
		many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
			seen <- r[1].Identifier
			return dataplane.Batch{Allowed: true, Decisions: make([]dataplane.Decision, len(r)), Err: r[1].Validate()}
		},
	})
	one, many := weirv1connect.RateLimitServiceLimitProcedure, weirv1connect.RateLimitServiceLimitManyProcedure
	wire := func(name string) []byte {
		return append(slices.Concat(stringField(1, []byte("a")), stringField(2, []byte("b")), stringField(3, []byte(name))), "\x20\x05\x28\xe8\x07"...)
	}
	var all []string
	for _, name := range oddNames {
		text := strings.Replace(minimal, `"c"`, `"`+name.json+`"`, 1)
		message, plain := wire(name.bytes), wire("plain")
		batch := slices.Concat(stringField(1, plain), stringField(1, message))
		var same []string
		for _, call := range []struct{ base, procedure, kind, body string }{
			{h.base, one, "application/json", text},
			{h.base, many, "application/json", `{"requests":[` + minimal + `,` + text + `]}`},
			{h.base, one, "application/proto", string(message)},
			{h.base, many, "application/proto", string(batch)},
			{h.base, one, "application/grpc-web+proto", string(frame(0, message))},
			{h.base, one, "application/grpc-web+json", string(frame(0, []byte(text)))},
			{h.base, many, "application/grpc-web+proto", string(frame(0, batch))},
		} {
			status, header, answer := curl(t, call.base+call.procedure, call.body, "Content-Type", call.kind)
			if grpc := header.Get("Grpc-Status"); status != 200 || grpc != "" && grpc != "0" {
				t.Errorf("%s as %s, %.20q: %d %v %s", call.procedure, call.kind, name.json, status, header, answer)
				continue
			}
			same = append(same, <-seen)
		}
		raw := dialRaw(t, h)
		for procedure, m := range map[string][]byte{one: message, many: batch} {
			if err := raw(procedure, m); err != nil {
				t.Errorf("gRPC, %s, %.20q: %v", procedure, name.json, err)
				continue
			}
			same = append(same, <-seen)
		}
		slices.Sort(same)
		if same = slices.Compact(same); len(same) != 1 || len(same[0]) > 255 {
			t.Errorf("%.20q is counted as %q", name.json, same)
		}
		all = append(all, same...)
	}
	slices.Sort(all)
	if different := slices.Compact(slices.Clone(all)); len(different) != len(oddNames) {
		t.Errorf("%d keys of %d identifiers", len(different), len(oddNames))
	}
}

// Every method that is given such an identifier answers, and its answer can be sent: an error is never the server's.
func TestEveryMethodTakesAnIdentifierOfAnyBytes(t *testing.T) {
	h := start(t, newLimiter(t, nil))
	base := "/weir.v1.RateLimitService/"
	for i, name := range oddNames {
		key := `"workspace":"a","namespace":"b","identifier":"` + name.json + `"`
		request := `{` + key + `,"limit":9,"duration_ms":60000}`
		for _, call := range []struct{ method, body string }{
			{"Limit", request}, {"LimitMany", `{"requests":[` + request + `,` + request + `]}`}, {"Peek", request},
			{"Refund", `{` + key + `,"duration_ms":60000}`}, {"Explain", request},
			{"Reserve", fmt.Sprintf(`{"id":"r%d","requests":[%s]}`, i, request)},
			{"Acquire", `{` + key + `,"limit":3}`}, {"ExplainLease", `{` + key + `,"limit":3}`},
		} {
			status, _, answer := curl(t, h.base+base+call.method, call.body)
			if status != 200 || !json.Valid([]byte(answer)) {
				t.Errorf("%s of %.20q: %d %s", call.method, name.json, status, answer)
			}
		}
	}
	// in one request, because a node lists its keys at most once a second
	status, _, answer := curl(t, h.base+base+"TopKeys", `{"workspace":"a","by":"TOP_BY_HOT"}`)
	if status != 200 || !json.Valid([]byte(answer)) {
		t.Errorf("TopKeys: %d %s", status, answer)
	}
}

// dialRaw calls the port for gRPC with messages as they are.
func dialRaw(t *testing.T, h *harness) func(procedure string, message []byte) error {
	t.Helper()
	conn := dialGRPC(t, h.GRPCAddr()).conn
	return func(procedure string, message []byte) error {
		return conn.Invoke(t.Context(), procedure, message, new(emptypb.Empty), grpc.ForceCodec(rawCodec{}))
	}
}
