package heartbeat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

func topKey(nameBytes int) TopKey {
	name := bytes.Repeat([]byte{0xff}, nameBytes)
	return TopKey{Workspace: name[:min(nameBytes, 191)], Namespace: name, Identifier: name, DurationMs: 1000, Limit: -1, Count: 7}
}

// "Leaves out the last keys until it is at most TopBytesMax long", whatever the names.
func TestDocumentIsBounded(t *testing.T) {
	for _, nameBytes := range []int{1, 20, 100, 255} {
		var top Top
		for range TopKeysMax + 5 {
			top.Hot, top.Denied = append(top.Hot, topKey(nameBytes)), append(top.Denied, topKey(nameBytes))
		}
		document, err := top.Document()
		if err != nil || len(document) > TopBytesMax {
			t.Fatalf("%d bytes, %v", len(document), err)
		}
		read, err := ReadTop([]byte(document))
		if err != nil || len(read.Hot) == 0 || len(read.Hot) > TopKeysMax || len(read.Hot)-len(read.Denied) > 1 || !bytes.Equal(read.Hot[0].Identifier, top.Hot[0].Identifier) {
			t.Errorf("names of %d bytes: %d hot, %d denied, %v", nameBytes, len(read.Hot), len(read.Denied), err)
		}
	}
}

// A document of which nothing can be read is an error.
func TestReadTopNamesWhatIsWrong(t *testing.T) {
	for document, says := range map[string]string{
		"":            "unexpected end",
		"{":           "unexpected end",
		`{"hot":"x"}`: "cannot unmarshal string",
		fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", TopBytesMax)): "at most 16384",
	} {
		if _, err := ReadTop([]byte(document)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", document, err, says)
		}
	}
}

// Malformed entries are left out and counted. The other keys are read.
func TestABadKeyOfAReportSpoilsItselfAlone(t *testing.T) {
	const names = `"w":"YQ==","n":"YQ==","i":"YQ=="`
	const good, goodHeld = `{` + names + `,"d":1,"c":7}`, `{"k":"lease",` + names + `}`
	for _, bad := range []string{
		`{}`, `null`, `5`, `{"w":"@","n":"YQ==","i":"YQ==","d":1}`, `{` + names + `,"d":"1"}`, `{` + names + `,"d":-1}`,
		`{` + names + `,"d":1,"l":-2}`, `{` + names + `,"d":1,"c":-1}`, `{` + names + `,"d":1,"r":9000000000000000000}`,
		`{` + names + `,"d":1,"m":-9}`, `{"w":"` + strings.Repeat("YWFh", 64) + `","n":"YQ==","i":"YQ==","d":1}`,
	} {
		for _, list := range []string{"hot", "denied", "refused"} {
			top, err := ReadTop([]byte(`{"at_ms":9,"` + list + `":[` + good + `,` + bad + `,` + good + `],"held":[` + goodHeld + `]}`))
			keys := len(top.Hot) + len(top.Denied) + len(top.Refused)
			if err != nil || top.AtMs != 9 || keys != 2 || len(top.Held) != 1 || top.Unread != 1 {
				t.Errorf("%s with %s: %d keys, %d held, %d unread, %v", list, bad, keys, len(top.Held), top.Unread, err)
			}
		}
	}
	for _, bad := range []string{`{}`, `{"k":"",` + names + `}`, `{"k":"lease",` + names + `,"s":-1}`, `{"k":"lease",` + names + `,"a":-1}`,
		`{"k":"lease",` + names + `,"h":"` + strings.Repeat("YWFh", 22) + `"}`} {
		top, err := ReadTop([]byte(`{"hot":[` + good + `],"held":[` + goodHeld + `,` + bad + `]}`))
		if err != nil || len(top.Hot) != 1 || len(top.Held) != 1 || top.Unread != 1 {
			t.Errorf("held with %s: %d hot, %d held, %d unread, %v", bad, len(top.Hot), len(top.Held), top.Unread, err)
		}
	}
	top, err := ReadTop([]byte(`{"hot":[{` + names + `,"d":0}],"refused":[{` + names + `}]}`))
	if err != nil || len(top.Hot) != 0 || len(top.Refused) != 1 || top.Unread != 1 {
		t.Errorf("keys without a duration: %+v, %v; want them of refused leases alone", top, err)
	}
}

// A document that was read can be written, and read again.
func FuzzReadTop(f *testing.F) {
	f.Add([]byte(`{"at_ms":1,"hot":[{"w":"YQ==","n":"Yg==","i":"Yw==","d":60000,"l":100,"c":40,"r":30}],"denied":[]}`))
	f.Add([]byte(`{"hot":[{"w":"YQ==","n":"Yg==","i":"Yw==","d":60000,"new":[1]}]}`))
	f.Add([]byte(`{"hot":[{"w":"YQ==","n":"Yg==","i":"Yw==","d":60000},{"w":5}],"held":[null,{"k":"lease"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		top, err := ReadTop(document)
		if err != nil {
			return
		}
		written, err := top.Document()
		if err != nil || len(written) > TopBytesMax {
			t.Fatalf("%d bytes, %v", len(written), err)
		}
		if again, err := ReadTop([]byte(written)); err != nil || again.Unread > 0 {
			t.Errorf("%q from %q: %d unread, %v", written, document, again.Unread, err)
		}
	})
}

// Limits of any content fit into LimitsBytesMax, and keep their numbers.
func TestLimitsAreBounded(t *testing.T) {
	key := TopKey{Workspace: make([]byte, 191), Namespace: make([]byte, 255), Identifier: make([]byte, 255)}
	full := Limits{Judged: math.MaxInt64, NewlyDenied: math.MaxInt64, Caller: &key}
	for i := range uint64(CallersKept) {
		full.Callers = append(full.Callers, 1<<callersBits-1-i)
	}
	for range 100 {
		full.Top = append(full.Top, key)
		full.Namespaces = append(full.Namespaces, LimitsNamespace{Workspace: key.Workspace, Namespace: key.Namespace})
	}
	small := Limits{Judged: 3, Top: []TopKey{{}}, Namespaces: []LimitsNamespace{{}}}
	huge := full
	huge.Caller = &TopKey{Identifier: make([]byte, LimitsBytesMax)}
	for name, l := range map[string]*Limits{"full": &full, "small": &small, "huge": &huge} {
		b := l.Bounded()
		document, err := json.Marshal(b)
		if err != nil || len(document) > LimitsBytesMax || b.Judged != l.Judged || b.NewlyDenied != l.NewlyDenied {
			t.Errorf("%s: %d bytes, %v", name, len(document), err)
		}
	}
	if b := small.Bounded(); len(b.Top) != 1 || len(b.Namespaces) != 1 {
		t.Errorf("%+v", b)
	}
	if b := full.Bounded(); len(b.Top) < 3 || len(b.Namespaces) < 3 || b.Caller == nil {
		t.Errorf("%d keys, %d namespaces", len(b.Top), len(b.Namespaces))
	}
	if (*Limits)(nil).Bounded() != nil {
		t.Error("no limits are some")
	}
}
