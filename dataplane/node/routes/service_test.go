package routes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/routes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted calls the function of a test.
type scripted func(dataplane.Request) dataplane.Decision

func (s scripted) Allow(_ context.Context, r dataplane.Request) dataplane.Decision { return s(r) }

func (s scripted) AppendAllowMany(_ context.Context, _ []dataplane.Decision, requests []dataplane.Request) dataplane.Batch {
	b := dataplane.Batch{Allowed: true}
	for _, r := range requests {
		d := s(r)
		b.Allowed = b.Allowed && d.Allowed
		b.Decisions = append(b.Decisions, d)
		if d.Err != nil {
			return dataplane.Batch{Err: d.Err}
		}
	}
	return b
}

func allowAll(r dataplane.Request) dataplane.Decision {
	return dataplane.Decision{Allowed: true, Limit: r.Limit, Duration: r.Duration, Remaining: r.Limit - r.Cost, ResetAt: time.UnixMilli(1_700_000_000_000)}
}

func newService(limiter routes.Limiter, overrides routes.Overrides) *routes.Service {
	return &routes.Service{Limiter: limiter, Overrides: overrides, Workspace: "acme", Logger: slog.New(slog.DiscardHandler)}
}

// said is a response, in either format.
type said struct {
	status int
	kind   string
	Meta   struct {
		RequestID string `json:"requestId"`
	}
	Data  json.RawMessage
	Error *struct {
		Title, Detail, Type string
		Status              int
		Errors              []struct{ Location, Message string }
	}
	Pagination *struct {
		HasMore bool
		Cursor  string
	}
}

func post(t testing.TB, s http.Handler, route, body string) said {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/ratelimit."+route, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	answer := said{status: w.Code, kind: w.Header().Get("Content-Type")}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if !strings.HasPrefix(answer.Meta.RequestID, "req_") || len(answer.Meta.RequestID) < 20 {
		t.Errorf("request ID %q", answer.Meta.RequestID)
	}
	if (answer.Error != nil) != (w.Code != http.StatusOK) || answer.Error != nil && (answer.Error.Status != w.Code || answer.Error.Title == "" || answer.Error.Type == "" || answer.Error.Detail == "") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	return answer
}

// The limiter gets the values that were sent, in the service's workspace. The cost is 1 if it is missing or null.
func TestLimitAsksWhatWasSent(t *testing.T) {
	var asked dataplane.Request
	s := newService(scripted(func(r dataplane.Request) dataplane.Decision { asked = r; return allowAll(r) }), nil)
	for body, want := range map[string]dataplane.Request{
		`{"namespace":"n","identifier":"i","limit":10,"duration":60000}`:                              {Limit: 10, Duration: time.Minute},
		`{"namespace":"n","identifier":"i","limit":0,"duration":1000,"cost":null}`:                    {Limit: 0, Duration: time.Second},
		`{"cost":0,"duration":31622400000,"limit":9007199254740991,"identifier":"i","namespace":"n"}`: {Limit: 1<<53 - 1, ZeroCost: true, Duration: 366 * 24 * time.Hour},
	} {
		want.Workspace, want.Namespace, want.Identifier = "acme", "n", "i"
		if answer := post(t, s, "limit", body); answer.status != http.StatusOK || asked != want {
			t.Errorf("%s: %d, asked %+v", body, answer.status, asked)
		}
	}
}

// An error lists every field's fault with its place, and nothing is decided.
func TestEveryFaultIsTold(t *testing.T) {
	s := newService(scripted(func(dataplane.Request) dataplane.Decision { t.Error("decided"); return dataplane.Decision{} }), new(routes.Memory))
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ route, body, want string }{
		{"limit", ``, "body is not a JSON object"},
		{"limit", `null`, "body is not a JSON object"},
		{"limit", `[]`, "body is not a JSON object"},
		{"limit", `{`, "body is not a JSON object"},
		{"limit", `{} {}`, "body is not a JSON object"},
		{"limit", "{\"namespace\":\"\xff\",\"identifier\":\"i\",\"limit\":1,\"duration\":1000}", "body.namespace is not a string"},
		{"limit", `{}`, "body.namespace is required; body.identifier is required; body.limit is required; body.duration is required"},
		{"limit", `{"namespace":null,"identifier":1,"limit":"1","duration":[]}`, "body.namespace is required; body.identifier is not a string; body.limit is not an integer; body.duration is not an integer"},
		{"limit", `{"namespace":"","identifier":"","limit":-1,"duration":999,"cost":-1}`, "body.namespace is empty (1 to 255 bytes); body.identifier is empty (1 byte or more); body.limit is -1 (0 to 9007199254740991); body.duration is 999 (1000 to 31622400000); body.cost is -1 (0 to 9007199254740991)"},
		{"limit", `{"namespace":"n","identifier":"i","limit":99999999999999999999,"duration":1.5e3}`, "body.limit is 99999999999999999999 (0 to 9007199254740991); body.duration is not an integer"},
		{"limit", `{"namespace":"n","identifier":"i","limit":1,"duration":1000,"Cost":1,"async":true}`, `body has the unknown field "Cost" (known: namespace, identifier, limit, duration, cost); body has the unknown field "async" (known: namespace, identifier, limit, duration, cost)`},
		{"limit", `{"namespace":"\ud800","identifier":"i","limit":1,"duration":1000}`, "body.namespace is not a string"},
		{"setOverride", `{"namespace":"n","identifier":"\ud800","limit":1,"duration":1000}`, "body.identifier is not a string"},
		{"setOverride", `{"namespace":"n","identifier":"` + long + `","limit":1,"duration":1000}`, "body.identifier is 256 bytes long (1 to 255 bytes)"},
		{"multiLimit", `{}`, "body is not a JSON array"},
		{"multiLimit", `null`, "body is not a JSON array"},
		{"multiLimit", `[]`, "body has 0 items (1 to 100)"},
		{"multiLimit", `[` + strings.Repeat("1,", 100) + `1]`, "body has 101 items (1 to 100)"},
		{"multiLimit", `[1]`, "body[0] is not a JSON object"},
		{"multiLimit", `[{"namespace":"n","identifier":"i","limit":1,"duration":1000},{"namespace":"n","identifier":"i","limit":1,"duration":0}]`, "body[1].duration is 0 (1000 to 31622400000)"},
		{"setOverride", `{"namespace":"n","identifier":"i*"}`, "body.limit is required; body.duration is required"},
		{"setOverride", `{"namespace":"n","identifier":"10.0.0.1/8","limit":1,"duration":1000}`, `body.identifier is "10.0.0.1/8" (this network is written "10.0.0.0/8")`},
		{"setOverride", `{"namespace":"n","identifier":"*a*a*a*a*a*a*a*a*","limit":1,"duration":1000}`, "body.identifier has 9 '*' (0 to 8)"},
		{"getOverride", `{"namespace":"n","limit":1}`, `body has the unknown field "limit" (known: namespace, identifier); body.identifier is required`},
		{"deleteOverride", `{}`, "body.namespace is required; body.identifier is required"},
		{"listOverrides", `{"namespace":"n","limit":0,"cursor":""}`, "body.limit is 0 (1 to 100); body.cursor is not a cursor of this API"},
		{"listOverrides", `{"namespace":"n","cursor":5}`, "body.cursor is not a string"},
	} {
		answer := post(t, s, c.route, c.body)
		if answer.status != http.StatusBadRequest || answer.kind != "application/json" || answer.Error.Detail != c.want {
			t.Errorf("%s %.80s: %d %s\n%s, want\n%s", c.route, c.body, answer.status, answer.kind, answer.Error.Detail, c.want)
			continue
		}
		if n := len(answer.Error.Errors); n != strings.Count(c.want, ";")+1 {
			t.Errorf("%s %.80s: %d violations", c.route, c.body, n)
		}
	}
	answer := post(t, s, "multiLimit", "["+strings.Repeat("{},", 50)+"{}]")
	if n := len(answer.Error.Errors); n != 16 || !strings.HasSuffix(answer.Error.Detail, "and 188 more") {
		t.Errorf("%d violations: %s", n, answer.Error.Detail)
	}
}

// An identifier is bytes: of any length, not UTF-8, and with half of a UTF-16 pair. Identifiers that differ are counted
// apart, and each answer has its identifier as it was sent.
func TestIdentifiersOfAnyBytesAreCountedApart(t *testing.T) {
	var asked []string
	s := newService(scripted(func(r dataplane.Request) dataplane.Decision {
		asked = append(asked, r.Identifier)
		return dataplane.Decision{Allowed: true, Err: r.Validate()}
	}), nil)
	long := strings.Repeat("x", 256)
	bodies := []string{long, long + "x", `\ud800`, `\ud801`, `\udc00\ud800`, "\xff", "\xfe", `\ufffd`, `\u0000`, `\ud83d\ude00`, `\\ud800`}
	for _, route := range []string{"limit", "multiLimit"} {
		asked = nil
		for _, identifier := range bodies {
			body := `{"namespace":"n","identifier":"` + identifier + `","limit":1,"duration":1000}`
			if route == "multiLimit" {
				body = "[" + body + "]"
			}
			if answer := post(t, s, route, body); answer.status != http.StatusOK {
				t.Errorf("%s %.20q: %d %+v", route, identifier, answer.status, answer.Error)
			}
		}
		slices.Sort(asked)
		if different := slices.Compact(asked); len(different) != len(bodies) {
			t.Errorf("%s: %d identifiers of %d", route, len(different), len(bodies))
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/ratelimit.multiLimit", strings.NewReader(`[{"namespace":"n","identifier":"`+long+`","limit":1,"duration":1000}]`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); !strings.Contains(w.Body.String(), `"identifier":"`+long+`"`) {
		t.Errorf("the identifier is not in %s", w.Body)
	}
}

// The longest valid checks fit into a body, with any bytes in their names.
func TestLongestBodyFits(t *testing.T) {
	name := strings.Repeat(`\u0001`, 255)
	check := fmt.Sprintf(`{"namespace":"%s","identifier":"%s","limit":9007199254740991,"duration":31622400000,"cost":9007199254740991}`, name, name)
	s := newService(scripted(allowAll), nil)
	if answer := post(t, s, "limit", check); answer.status != http.StatusOK {
		t.Errorf("one: %d", answer.status)
	}
	if answer := post(t, s, "multiLimit", "["+strings.Repeat(check+",", 99)+check+"]"); answer.status != http.StatusOK {
		t.Errorf("a hundred: %d", answer.status)
	}
}

// Two errors that should never occur: a limiter that contradicts the checks here, and a store that is down. Neither
// shows its cause to callers.
func TestWhatCallersAreNotTold(t *testing.T) {
	odd := newService(scripted(func(r dataplane.Request) dataplane.Decision { return dataplane.Decision{Err: errors.New("secret")} }), broken{})
	invalid := newService(scripted(func(r dataplane.Request) dataplane.Decision {
		return dataplane.Decision{Err: fmt.Errorf("%w: too odd", dataplane.ErrInvalid)}
	}), nil)
	check := `{"namespace":"n","identifier":"i","limit":1,"duration":1000}`
	name := `{"namespace":"n","identifier":"i"}`
	for _, c := range []struct {
		service     *routes.Service
		route, body string
		want        int
	}{
		{odd, "limit", check, 500}, {odd, "multiLimit", "[" + check + "]", 500},
		{invalid, "limit", check, 400}, {invalid, "multiLimit", "[" + check + "]", 400},
		{odd, "setOverride", check, 503}, {odd, "getOverride", name, 503}, {odd, "deleteOverride", name, 503}, {odd, "listOverrides", `{"namespace":"n"}`, 503},
		{invalid, "setOverride", check, 403}, {invalid, "getOverride", name, 403}, {invalid, "deleteOverride", name, 403}, {invalid, "listOverrides", `{"namespace":"n"}`, 403},
	} {
		answer := post(t, c.service, c.route, c.body)
		if answer.status != c.want || answer.kind != "application/json" || strings.Contains(answer.Error.Detail, "secret") {
			t.Errorf("%s: %d %s %s, want %d", c.route, answer.status, answer.kind, answer.Error.Detail, c.want)
		}
	}
}

type broken struct{}

var errSecret = errors.New("secret")

func (broken) Set(context.Context, string, string, routes.Override) error { return errSecret }
func (broken) Get(context.Context, string, string, string) (routes.Override, bool, error) {
	return routes.Override{}, false, errSecret
}
func (broken) List(context.Context, string, string, string, int) ([]routes.Override, error) {
	return nil, errSecret
}
func (broken) Delete(context.Context, string, string, string) (bool, error) { return false, errSecret }

// Only 429 has the type application/problem+json.
func TestRefuse(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 413, 415, 429, 500, 503} {
		w := httptest.NewRecorder()
		routes.Refuse(w, routes.NewFault(status, "because of %d", status))
		want := "application/json"
		if status == 429 {
			want = "application/problem+json"
		}
		var body struct {
			Error struct {
				Detail, Type string
				Errors       *[]any
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != status || w.Header().Get("Content-Type") != want {
			t.Errorf("%d: %d %s, %v", status, w.Code, w.Header().Get("Content-Type"), err)
		}
		if body.Error.Detail != "because of "+strconv.Itoa(status) || !strings.HasPrefix(body.Error.Type, "urn:weir:error:") || (body.Error.Errors != nil) != (status == 400) {
			t.Errorf("%s", w.Body)
		}
	}
}

// An override has the same ID on every node, and different overrides have different IDs.
func TestOverrideIDs(t *testing.T) {
	limiter := scripted(func(r dataplane.Request) dataplane.Decision { d := allowAll(r); d.Override = r.Identifier; return d })
	seen := make(map[string]string)
	for _, workspace := range []string{"a", "b"} {
		for _, namespace := range []string{"a", "ab"} {
			for _, pattern := range []string{"c", "bc", "*"} {
				s := newService(limiter, new(routes.Memory))
				s.Workspace = workspace
				body := fmt.Sprintf(`{"namespace":%q,"identifier":%q,"limit":1,"duration":1000}`, namespace, pattern)
				set, decided := data(t, post(t, s, "setOverride", body)), data(t, post(t, s, "limit", body))
				id, ok := set["overrideId"].(string)
				if !ok || id == "" || id != decided["overrideId"] {
					t.Errorf("%s: %v set, %v applied", body, set, decided)
				}
				if other, taken := seen[id]; taken {
					t.Errorf("%s and %s have one ID", other, workspace+body)
				}
				seen[id] = workspace + body
			}
		}
	}
}

// The response has an override's window only if it differs from the requested window.
func TestOtherWindow(t *testing.T) {
	limiter := scripted(func(r dataplane.Request) dataplane.Decision {
		d := allowAll(r)
		if r.Identifier == "vip" {
			d.Duration = time.Hour
		}
		return d
	})
	s := newService(limiter, new(routes.Memory))
	for identifier, want := range map[string]any{"vip": 3_600_000.0, "k": nil} {
		body := fmt.Sprintf(`{"namespace":"n","identifier":%q,"limit":1,"duration":1000}`, identifier)
		if got := data(t, post(t, s, "limit", body))["duration"]; got != want {
			t.Errorf("limit of %s: duration is %v, want %v", identifier, got, want)
		}
		limits, _ := data(t, post(t, s, "multiLimit", "["+body+"]"))["limits"].([]any)
		if first, _ := limits[0].(map[string]any); first["duration"] != want {
			t.Errorf("multiLimit of %s: %v, want %v", identifier, first, want)
		}
	}
}

func data(t *testing.T, answer said) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal(answer.Data, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}
