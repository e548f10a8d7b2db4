package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// minimal is the shortest body that is a valid LimitRequest; it blocks.
const minimal = `{"workspace":"a","namespace":"b","identifier":"c","duration_ms":1000}`

// JSON responses have every field, including false and zero fields, under the names of the .proto file. All builds
// write the same bytes.
func TestJSONForm(t *testing.T) {
	denied := dataplane.Decision{Source: dataplane.SourceLocal, Limit: 10, Duration: time.Second, Current: 10.5, ResetAt: time.UnixMilli(1_700_000_040_000), RetryAfter: 1234 * time.Millisecond}
	const deniedJSON = `{"allowed":false,"limit":"10","remaining":"0","reset_at_ms":"1700000040000","retry_after_ms":"1234","current":10.5,"source":"SOURCE_LOCAL","shadowed":false,"override":"","candidate_denied":false,"duration_ms":"1000","never_passes":false}`
	h := start(t, scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision { return denied },
		peek:  func(context.Context, dataplane.Request) dataplane.Decision { return denied },
		many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
			return dataplane.Batch{Decisions: []dataplane.Decision{denied, denied}}
		},
	})
	for _, step := range []struct{ procedure, body, want string }{
		{weirv1connect.RateLimitServiceLimitProcedure, minimal, deniedJSON},
		{weirv1connect.RateLimitServicePeekProcedure, minimal, `{"response":` + deniedJSON + `}`},
		{weirv1connect.RateLimitServiceLimitManyProcedure, `{"requests":[` + minimal + `,` + minimal + `]}`,
			`{"allowed":false,"responses":[` + deniedJSON + `,` + deniedJSON + `]}`},
	} {
		for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"} {
			status, header, got := curl(t, h.base+step.procedure, step.body, "Content-Type", contentType)
			if status != 200 || got != step.want {
				t.Errorf("%s as %s: status %d\n%s\nwant\n%s", step.procedure, contentType, status, got, step.want)
			}
			if got := header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
				t.Errorf("Content-Type is %q", got)
			}
		}
	}
}

// Requests are read in both of protobuf's spellings, with integers as numbers or
// as strings.
func TestJSONSpellings(t *testing.T) {
	seen := make(chan dataplane.Request, 1)
	h := start(t, scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
		seen <- r
		return dataplane.Decision{}
	}})
	want := dataplane.Request{Workspace: "a", Namespace: "b", Identifier: "c", Limit: 5, Duration: time.Minute, Cost: 2}
	for _, body := range []string{
		`{"workspace":"a","namespace":"b","identifier":"c","limit":5,"duration_ms":60000,"cost":2}`,
		`{"workspace":"a","namespace":"b","identifier":"c","limit":5,"durationMs":60000,"cost":2}`,
		`{"workspace":"a","namespace":"b","identifier":"c","limit":"5","duration_ms":"60000","cost":"2"}`,
		`{"cost":2.0,"limit":5e0,"duration_ms":6e4,"identifier":"\u0063","namespace":"b","workspace":"a"}`,
	} {
		if status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, body); status != 200 {
			t.Errorf("%s: status %d %s", body, status, answer)
			continue
		}
		if got := <-seen; got != want {
			t.Errorf("%s was read as %+v", body, got)
		}
	}
}

// A faulty body is rejected with 400, and the error has the place and the fault.
func TestJSONFaults(t *testing.T) {
	h := start(t, scripted{})
	for _, step := range []struct{ body, want string }{
		{`{"workspace":"a","limt":3}`, `{"code":"invalid_argument","message":"unmarshal message: (line 1:18): unknown field \"limt\"; known are workspace, namespace, identifier, limit, duration_ms, cost, zero_cost"}`},
		{`{"limit":"ten"}`, `invalid value for int64 field limit: \"ten\"`},
		{`{"limit":1.5}`, `invalid value for int64 field limit: 1.5`},
		{`{"limit":9223372036854775808}`, `invalid value for int64 field limit: 9223372036854775808`},
		{`{"duration_ms":"abc"}`, `invalid value for int64 field duration_ms: \"abc\"`},
		{`{"limit":true}`, `invalid value for int64 field limit: true`},
		{`{"workspace":7}`, `invalid value for string field workspace: 7`},
		{`{"workspace":{}}`, `invalid value for string field workspace: {`},
		{`{"duration_ms":1,"durationMs":2}`, `duplicate field \"durationMs\"`},
		{"{\"workspace\":\"\xff\xfe\"}", `invalid UTF-8`},
		{`{"workspace":"\ud800"}`, `unmarshal message`},
		{`{"workspace":"a"`, `unmarshal message`},
		{`{} {}`, `unmarshal message`},
		{`null`, `unmarshal message`},
		{`[]`, `unmarshal message`},
		{``, `the body is empty, want a JSON object`},
	} {
		status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, step.body)
		if status != 400 || !strings.Contains(answer, step.want) || !strings.Contains(answer, `"code":"invalid_argument"`) {
			t.Errorf("%q: status %d %s\nwant 400 with %s", step.body, status, answer, step.want)
		}
	}
	status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitManyProcedure, `{"requests":[`+minimal+`,{"costs":1}]}`)
	if status != 400 || !strings.Contains(answer, `unknown field \"costs\"; known are requests; in requests workspace, namespace, identifier, limit, duration_ms, cost, zero_cost"`) {
		t.Errorf("unknown field in a batch: status %d %s", status, answer)
	}
	for procedure, step := range map[string]struct{ body, want string }{
		weirv1connect.RateLimitServiceLimitManyProcedure: {`{"requests":[{"duration_ms":1.5}]}`, `invalid value for int64 field duration_ms: 1.5"`},
		weirv1connect.RateLimitServiceTopKeysProcedure:   {`{"by":"TOP_BY_COLD"}`, `invalid value for enum field by: \"TOP_BY_COLD\"; known are TOP_BY_UNSPECIFIED, TOP_BY_HOT, TOP_BY_DENIED"`},
	} {
		if status, _, answer := curl(t, h.base+procedure, step.body); status != 400 || !strings.Contains(answer, step.want) {
			t.Errorf("%s: status %d %s\nwant %s", step.body, status, answer, step.want)
		}
	}
}

// Only long responses are compressed: most callers accept compression, and few responses are long.
func TestCompression(t *testing.T) {
	h := start(t, scripted{})
	for _, step := range []struct{ procedure, body, want string }{
		{weirv1connect.RateLimitServiceLimitProcedure, minimal, ""},
		{weirv1connect.RateLimitServiceLimitManyProcedure, `{"requests":[` + strings.Repeat(minimal+`,`, 99) + minimal + `]}`, "gzip"},
	} {
		if _, header, _ := curl(t, h.base+step.procedure, step.body, "Accept-Encoding", "gzip"); header.Get("Content-Encoding") != step.want {
			t.Errorf("%s: Content-Encoding is %q, want %q", step.procedure, header.Get("Content-Encoding"), step.want)
		}
	}
}

// A caller that uses none of the protocols gets an error that lists them.
func TestNoCallAtAll(t *testing.T) {
	h := start(t, scripted{})
	status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal, "Content-Type", "application/x-www-form-urlencoded")
	if status != 415 || !strings.HasPrefix(answer, "Content-Type must be application/json") {
		t.Errorf("curl without a Content-Type: status %d %q", status, answer)
	}
	if status, answer := get(t, h.base+weirv1connect.RateLimitServiceLimitProcedure); status != 405 || answer != "method must be POST\n" {
		t.Errorf("GET: status %d %q", status, answer)
	}
	if status, _ := get(t, h.base+"/weir.v1.RateLimitService/Nonsense"); status != 404 {
		t.Errorf("a procedure that does not exist: status %d", status)
	}
}
