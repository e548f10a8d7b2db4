package routes_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/routes"
)

// For any body, the response is a decision for exactly the values in it, which the limiter finds valid, or an error.
// Bodies with different names never have the same key.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"namespace":"n","identifier":"i","limit":1,"duration":1000,"cost":2}`,
		`[{"namespace":"n","identifier":"i","limit":1,"duration":1000}]`,
		`{"namespace":"n","identifier":"\ud83d\ude00","limit":1,"duration":1000}`,
		`{"namespace":"n","identifier":"\ud800","limit":1,"duration":1000}`,
		`{"namespace":"n","identifier":"\\ud800","limit":1,"duration":1000}`,
		`{"namespace":"n","cursor":"YQ","limit":3}`,
		`{"namespace":"n","identifier":"i"}`,
		`{"limit":1,"limit":-1}`, "[[[[", "{\"\xff\":1}", `""`, "",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var asked []dataplane.Request
		s := newService(scripted(func(r dataplane.Request) dataplane.Decision { asked = append(asked, r); return allowAll(r) }), new(routes.Memory))
		for name := range routes.Paths {
			asked = nil
			answer := post(t, s, name, body)
			switch answer.status {
			case http.StatusOK, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			case http.StatusBadRequest:
				if len(answer.Error.Errors) == 0 || len(asked) > 0 {
					t.Errorf("%s %q: %d violations, asked %v", name, body, len(answer.Error.Errors), asked)
				}
			default:
				t.Errorf("%s %q: %d", name, body, answer.status)
			}
			for i := range asked {
				if err := asked[i].Validate(); err != nil {
					t.Errorf("%s %q: %v", name, body, err)
				}
				if strings.Contains(asked[i].Identifier, "\uFFFD") && !strings.Contains(strings.ToLower(body), "\uFFFD") && !strings.Contains(strings.ToLower(body), `\ufffd`) {
					t.Errorf("%s %q: a name was changed into %q", name, body, asked[i].Identifier)
				}
			}
		}
	})
}

// A cursor is the last pattern of a page. Any other text is rejected.
func FuzzCursors(f *testing.F) {
	for _, cursor := range []string{"", "YQ", "YQ==", "!", "YR", strings.Repeat("YWFh", 100)} {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		body, err := json.Marshal(map[string]string{"namespace": "n", "cursor": cursor})
		if err != nil {
			t.Fatal(err)
		}
		answer := post(t, newService(scripted(allowAll), new(routes.Memory)), "listOverrides", string(body))
		if answer.status == http.StatusOK && (cursor == "" || len(cursor) > 340 || answer.Pagination == nil || answer.Pagination.HasMore) {
			t.Errorf("%q: %+v", cursor, answer)
		}
		if answer.status != http.StatusOK && answer.status != http.StatusBadRequest && answer.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%q: %d", cursor, answer.status)
		}
	})
}
