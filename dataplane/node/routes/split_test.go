package routes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Valid JSON is taken apart as encoding/json takes it apart.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, ` [ 1 , "a,]" ,[2,[3]],{"b":[4]} ] `, `{"a":1,"b":"}\"","c":{"d":[1,2]},"e":null}`,
		"\t{ \"a\" :\r\n 1.5e3 , \"\\u0061\" : true }", `{"\ud800":1,"":""}`, `null`, `7`, `"[]"`, `[[],{},[]]`, `[`, `{"a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !valid(text) {
			return
		}
		var list []json.RawMessage
		if isList, n := json.Unmarshal(text, &list) == nil && list != nil, 0; items(text, func(item []byte) {
			if n >= len(list) || !bytes.Equal(item, list[n]) {
				t.Fatalf("item %d is %q of %q", n, item, list)
			}
			n++
		}) != isList || n != len(list) {
			t.Errorf("%d items of %q", n, list)
		}
		var object, split map[string]json.RawMessage
		isObject := json.Unmarshal(text, &object) == nil && object != nil
		split = make(map[string]json.RawMessage)
		if members(text, func(name, value []byte) { split[string(name)] = value }) != isObject {
			t.Errorf("is an object: %v", isObject)
		}
		if isObject && fmt.Sprintf("%q", split) != fmt.Sprintf("%q", object) {
			t.Errorf("members are %q, want %q", split, object)
		}
	})
}

// A field that appears twice is rejected, because different readers would use different values.
func TestAFieldTwice(t *testing.T) {
	s := &Service{Overrides: new(Memory)}
	for _, step := range []struct{ route, body, want string }{
		{"limit", `{"namespace":"n","identifier":"i","limit":1,"duration":1000,"limit":1000}`, `body has the field \"limit\" twice`},
		{"limit", `{"namespace":"n","identifier":"i","limit":1,"duration":1000,"l\u0069mit":1000}`, `body has the field \"limit\" twice`},
		{"multiLimit", `[{"namespace":"n","identifier":"i","identifier":"j","limit":1,"duration":1000}]`, `body[0] has the field \"identifier\" twice`},
		{"setOverride", `{"namespace":"n","identifier":"i","limit":1,"duration":1000,"namespace":"m"}`, `body has the field \"namespace\" twice`},
	} {
		r := httptest.NewRequest(http.MethodPost, Paths[step.route], strings.NewReader(step.body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s %s: %d %s, want %s", step.route, step.body, w.Code, w.Body, step.want)
		}
	}
}

// BenchmarkHostileBodies are the longest bodies of multiLimit, of shapes that cost the most.
func BenchmarkHostileBodies(b *testing.B) {
	fields := new(strings.Builder)
	for i := 0; fields.Len() < multiBodyBytesMax-40; i++ {
		fmt.Fprintf(fields, `"a%d":1,`, i)
	}
	for name, body := range map[string]string{
		"unknown fields": `[{` + fields.String() + `"z":1}]`,
		"items":          `[` + strings.Repeat("1,", multiBodyBytesMax/2-2) + `1]`,
		"nesting":        `[` + strings.Repeat("[", 4_000) + strings.Repeat("]", 4_000) + strings.Repeat(" ", multiBodyBytesMax-8_002) + `]`,
		"one field":      `[{` + strings.Repeat(`"limit":1,`, multiBodyBytesMax/10-1) + `"limit":1}]`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var r reader
				r.readMulti([]byte(body))
				if r.fault() == nil {
					b.Fatal("it is taken")
				}
			}
		})
	}
}
